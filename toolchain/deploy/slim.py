"""The files of an image that runs one library and nothing else: runner, shared libraries, model, sample.

No shell, no package manager, no compiler: glibc and the C++ runtime are those that the C++ compiler of the
library's machine links with, each with the package that it is of.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from compiler import (
    DynamicNeeds,
    HostError,
    build_program,
    dynamic_needs,
    linked_library,
    private_directory,
    run,
    write_atomic,
)
from toolchain.deploy.bill import GCC_RUNTIME, GLIBC, CopiedLibrary, package_bill
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.packed import PackedFile
from toolchain.deploy.texts import shipped_text
from toolchain.deploy.tree import licence_texts, manifest_text

RUNNER = "/usr/bin/tk-run"
MODEL = "/model/model.so"
USER = "65532:65532"
"""Who the runner is: nobody else, as images without a root user call theirs."""
_USERS = {
    "etc/passwd": "root:x:0:0:root:/:/none\ntk:x:65532:65532:tk:/:/none\n",
    "etc/group": "root:x:0:\ntk:x:65532:\n",
}
_LIBRARIES = "/lib"
_LINK = ("-Wl,--disable-new-dtags", f"-Wl,-rpath,{_LIBRARIES}")
"""An rpath, which holds for the libraries of libraries, too: dynamic linkers differ in where they look."""
_LICENCES = (
    (re.compile(r"lib(c|m|dl|pthread|rt|mvec)\.so|ld-linux"), GLIBC),
    (re.compile(r"lib(stdc\+\+|gcc_s|atomic)\.so"), GCC_RUNTIME),
)
_QUERY_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ImageLayer:
    """Files that are one layer of an image, and what they are."""

    title: str
    files: tuple[PackedFile, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    """A shared library of this machine: by which name it is looked for, and where it is."""

    name: str
    path: Path


def slim_layers(
    library: PackagedLibrary, sample: Sequence[PackedFile], licence_files: Sequence[Path] = ()
) -> tuple[ImageLayer, ...]:
    """The layers of a library's image, those first that images of other models have, too.

    sample: files for the self test, `input0.npy` and so on. Raises HostError where there is no compiler for
    the library's machine, or it has no such shared library.
    """
    runner = _runner(library, *_LINK)
    needs = _needs_of(runner)
    found = list(_closure(library, needs))
    packages = {one.name: _package_of(one.path) for one in found}
    copied = [_copied(one, packages[one.name]) for one in found]
    return (
        ImageLayer("shared libraries", tuple(_base_files(found, needs, packages))),
        _runner_layer(runner),
        ImageLayer("model", tuple(_model_files(library, copied, sample, licence_files))),
    )


def based_layers(
    library: PackagedLibrary,
    sample: Sequence[PackedFile],
    licence_files: Sequence[Path] = (),
    *,
    readme: str,
) -> tuple[tuple[ImageLayer, ...], DynamicNeeds]:
    """The layers of a library's image on a base, which has the shared libraries; and its runner's needs."""
    runner = _runner(library)
    files = [
        *_model_files(library, (), sample, licence_files),
        PackedFile("model/README.md", readme.encode()),
    ]
    return (_runner_layer(runner), ImageLayer("model", tuple(files))), _needs_of(runner)


def _runner(library: PackagedLibrary, *flags: str) -> bytes:
    return build_program(shipped_text("runner.c"), library.needs.machine, f'-DTK_LIBRARY="{MODEL}"', *flags)


def _runner_layer(runner: bytes) -> ImageLayer:
    return ImageLayer("runner", (PackedFile(RUNNER.lstrip("/"), runner, executable=True),))


def _model_files(
    library: PackagedLibrary,
    copied: Sequence[CopiedLibrary],
    sample: Sequence[PackedFile],
    licence_files: Sequence[Path],
) -> Iterator[PackedFile]:
    yield PackedFile("model/model.so", library.path, executable=True)
    yield PackedFile("model/manifest.json", manifest_text(library))
    yield PackedFile("model/sbom.cdx.json", package_bill(library, copied, has_runner=True))
    yield from (PackedFile(f"model/sample/{one.path}", one.content) for one in sample)
    yield from licence_texts("model/licences", licence_files)


def _needs_of(program: bytes) -> DynamicNeeds:
    with private_directory("tk-package") as folder:
        write_atomic(folder / "program", program)
        return dynamic_needs(folder / "program")


def _closure(library: PackagedLibrary, runner: DynamicNeeds) -> Iterator[_Found]:
    """All shared libraries that runner and model need, directly or not; the dynamic linker among them."""
    linker = PurePosixPath(runner.interpreter).name
    waiting = [linker, *runner.libraries, *library.needs.libraries]
    known: set[str] = set()
    while waiting:
        name = waiting.pop(0)
        if name in known:
            continue
        known.add(name)
        path = linked_library(name, library.needs.machine)
        if path is None:
            raise HostError(
                f"the C++ compiler for {library.needs.machine} finds no {name}, which the library needs",
                where=str(library.path),
                hint="package it on a machine that can run it",
            )
        yield _Found(name, path)
        waiting += dynamic_needs(path).libraries


def _base_files(
    found: Sequence[_Found], runner: DynamicNeeds, packages: dict[str, tuple[str, str]]
) -> Iterator[PackedFile]:
    linker = PurePosixPath(runner.interpreter)
    for one in found:
        place = str(linker) if one.name == linker.name else f"{_LIBRARIES}/{one.name}"
        yield PackedFile(place.lstrip("/"), one.path, executable=True)
    for path, text in _USERS.items():
        yield PackedFile(path, text.encode())
    for name in sorted({name for name, _ in packages.values() if name}):
        terms = Path("/usr/share/doc") / name / "copyright"
        if terms.is_file():
            yield PackedFile(f"usr/share/doc/{name}/copyright", terms.resolve())


def _copied(one: _Found, package: tuple[str, str]) -> CopiedLibrary:
    name, version = package
    licence = next((terms for pattern, terms in _LICENCES if pattern.match(one.name)), "")
    return CopiedLibrary(
        one.name, PackedFile("", one.path).sha256, f"{name}={version}" if name else "", licence
    )


def _package_of(path: Path) -> tuple[str, str]:
    """Name and version of the Debian package that a file is of; empty where none is known."""
    if shutil.which("dpkg-query") is None:
        return "", ""
    for place in (path, Path("/") / path.relative_to("/usr") if path.is_relative_to("/usr") else path):
        said = _dpkg("-S", str(place))  # packages may name a file by its place before /lib became a link
        owner = said.partition(": ")[0].partition(", ")[0]
        if owner:
            return owner.partition(":")[0], _dpkg("-W", "-f", "${Version}", owner)
    return "", ""


def _dpkg(*words: str) -> str:
    with contextlib.suppress(HostError):
        done = run(["dpkg-query", *words], timeout=_QUERY_SECONDS)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""
