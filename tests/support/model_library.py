"""A model library around kernels written by hand, for tests of the runtime."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.core.cache import ContentCache
from compiler.core.process import run
from compiler.core.settings import load_settings
from compiler.runtime.library import COMPILE_FLAGS, INCLUDE, PROGRAM_FLAGS, Contents, Toolchain, link_library
from compiler.targets.toolchain import find_cxx

FIXTURES = Path(__file__).parents[1] / "runtime" / "fixtures"
STRICT = ("-Wall", "-Wextra", "-Werror")
LINKERS = [(), *([("-fuse-ld=lld",)] if shutil.which("ld.lld") else [])]
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]

WEIGHTS = np.linspace(-2, 2, 8, dtype=np.float32)
CONSTANTS = bytes(64) + WEIGHTS.tobytes()  # the plan wants the weights at byte 64
MANIFEST = b'{"flops": 3, "kernels": []}'
NAMES = (("x", "z"), ("y", "total"))
SCALE_ADD = Contents(MANIFEST, *NAMES, lambda stream: stream.write(CONSTANTS))
NOTHING = Contents(b"{}", (), (), lambda _: None)


Arrays = dict[str, NDArray[np.float32]]
Feeds = Callable[[int], Arrays]


def expected(feeds: Arrays) -> Arrays:
    """What the model computes, by numpy."""
    y = feeds["x"] * WEIGHTS + feeds["z"]
    return {"y": y, "total": np.asarray(y.sum(dtype=np.float64), np.float32)}


def assert_right(outputs: Mapping[str, NDArray[Any]], feeds: Arrays) -> None:
    want = expected(feeds)
    np.testing.assert_allclose(outputs["y"], want["y"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(outputs["total"], want["total"], rtol=1e-5, atol=1e-5)


class Builder:
    """Compiles and links fixtures with one compiler."""

    def __init__(self, cxx: str, cache: ContentCache, directory: Path) -> None:
        self.cxx = cxx
        self.cache = cache
        self.directory = directory

    def compile(self, source: Path, *flags: str) -> Path:
        output = self.directory / f"{source.stem}-{abs(hash(flags))}.o"
        done = run(
            [
                self.cxx,
                *COMPILE_FLAGS,
                *STRICT,
                *flags,
                "-I",
                str(INCLUDE),
                "-c",
                str(source),
                "-o",
                str(output),
            ]
        )
        assert done.returncode == 0, done.stderr
        return output

    def toolchain(self, *flags: str, link_flags: tuple[str, ...] = ()) -> Toolchain:
        """With warnings as errors, but for a runtime with `flags`: that one is built once for all tests."""
        identity = find_cxx(replace(load_settings(), cxx=self.cxx)).identity
        return Toolchain(self.cxx, identity, flags or STRICT, link_flags, jobs=2)

    def library(
        self,
        output: Path,
        *defines: str,
        constants: bytes = CONSTANTS,
        manifest: bytes = MANIFEST,
        names: tuple[tuple[str, ...], tuple[str, ...]] = NAMES,
        link_flags: tuple[str, ...] = (),
    ) -> Path:
        kernels = self.compile(FIXTURES / "scale_add.cpp", *defines)
        contents = Contents(manifest, *names, lambda stream: stream.write(constants))
        link_library([kernels], contents, output, self.toolchain(link_flags=link_flags), self.cache)
        return output

    def program(
        self, output: Path, sources: Sequence[str], *flags: str, contents: Contents = NOTHING
    ) -> Path:
        objects = [self.compile(FIXTURES / source, *flags) for source in sources]
        toolchain = self.toolchain(*flags)
        link_library(objects, contents, output, toolchain, self.cache, flags=PROGRAM_FLAGS)
        return output
