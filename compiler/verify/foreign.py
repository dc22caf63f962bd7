"""Libraries for another processor than this machine's: each run is a program in QEMU, which is slow."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import compiled
from compiler.core.diagnostics import BadInputError, CrashError, HostError
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import Completed, run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.runtime.abi import DLDataType
from compiler.runtime.elf import machine_of
from compiler.runtime.library import INCLUDE, headers_digest
from compiler.runtime.manifest import manifest_of
from compiler.runtime.specs import SymbolicDim, TensorSpec, dtype_name
from compiler.runtime.tensors import Array, PackedArray, as_input, in_memory, numpy_dtype
from compiler.targets.toolchain import Cxx, find_cxx

_SOURCE = Path(__file__).with_name("runner.cpp")
_FLAGS = ("-std=c++17", "-O2")
_LIMIT_SECONDS = 3600.0


class ForeignModel(AbstractContextManager["ForeignModel"]):
    """A library of another processor; each run is a program of its own in an emulator.

    Raises HostError without the emulator or a compiler for that processor, and BadInputError for a file that
    is no model library.
    """

    def __init__(self, path: Path, settings: Settings, threads: int | None = None) -> None:
        self.path = path
        self.manifest: dict[str, Any] = manifest_of(path)
        self.machine = machine_of(path)
        self.default_threads = threads or settings.jobs
        self._emulator = _emulator(self.machine, str(path))
        self._settings = settings
        with private_directory("tk-foreign") as directory:
            described = self.call(directory).stdout.splitlines()
        names = {"in": self._names("inputs"), "out": self._names("outputs")}
        self.inputs = tuple(map(_spec, names["in"], _lines(described, "in")))
        self.outputs = tuple(map(_spec, names["out"], _lines(described, "out")))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays open between runs."""

    @property
    def device(self) -> str:
        """What it runs on, for people."""
        return f"{self.machine}, emulated by {Path(self._emulator).name}"

    def output_shapes(self, inputs: Mapping[str, object]) -> dict[str, tuple[int, ...]]:
        """The shapes that a run with these inputs gives to the outputs."""
        if not any(one.symbolic for one in self.outputs):
            return {one.name: one.largest_shape for one in self.outputs}
        with private_directory("tk-foreign") as directory:
            lines = _lines(self.call(directory, self.shapes_text(inputs)).stdout.splitlines(), "out")
        shapes = (tuple(map(int, words)) for words in lines)
        return {one.name: shape for one, shape in zip(self.outputs, shapes, strict=True)}

    def shapes_text(self, inputs: Mapping[str, object]) -> str:
        """Shapes of the inputs as the program reads them."""
        shapes = [as_input(one, inputs[one.name]).shape for one in self.inputs]
        return "".join(f"{','.join(map(str, shape))};" for shape in shapes)

    def context(self, threads: int | None = None) -> ForeignContext:
        """What runs it; see `compiler.runtime.loader.Model.context`."""
        return ForeignContext(self, threads or self.default_threads)

    def call(self, directory: Path, *arguments: str) -> Completed:
        """Run the program around the library, in an own directory; raises BadInputError or CrashError."""
        program = directory / "runner"
        write_atomic(program, self._runner, mode=0o700)
        prefix = ["-L", str(self._sysroot), str(program), str(self.path.resolve())]
        done = run([self._emulator, *prefix, *arguments], env=child_environment(), timeout=_LIMIT_SECONDS)
        if done.returncode < 0:
            raise CrashError(
                f"the library crashed with signal {-done.returncode}",
                where=str(self.path),
                why=done.stderr.strip(),
                hint="this is a defect of the generated code: please report it with the model",
            )
        if done.returncode:
            raise BadInputError(done.stderr.strip().partition(" ")[2], where=str(self.path))
        return done

    def _names(self, kind: str) -> list[str]:
        return [str(one["name"]) for one in self.manifest[kind]]

    @cached_property
    def _cxx(self) -> Cxx:
        return find_cxx(self._settings, self.machine)

    @cached_property
    def _sysroot(self) -> Path:
        """Where the libraries of that processor are: above the folder of its C library."""
        done = run([self._cxx.path, "-print-file-name=libc.so.6"], env=child_environment())
        return Path(done.stdout.strip()).resolve().parent.parent

    @cached_property
    def _runner(self) -> bytes:
        """The program that loads a library, for that processor."""
        argv = [self._cxx.path, *_FLAGS, "-I", str(INCLUDE), _SOURCE.name, "-ldl", "-o", "runner"]
        key = content_key("runner", _SOURCE.read_bytes(), headers_digest(INCLUDE), self._cxx.identity)
        what = "the C++ compiler rejected the program that runs libraries"
        make = partial(compiled, argv, {_SOURCE.name: _SOURCE.read_bytes()}, "runner", what)
        return ContentCache(self._settings.cache_dir / "runners").made(key, make).read_bytes()


class ForeignContext(AbstractContextManager["ForeignContext"]):
    """Runs a foreign library with so many threads."""

    def __init__(self, model: ForeignModel, threads: int) -> None:
        self.model, self.threads = model, threads

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing stays open between runs."""

    def run(
        self, inputs: Mapping[str, object], *, out: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """One inference: outputs by name, in the arrays of `out` where it has them."""
        model = self.model
        feeds = [as_input(one, inputs[one.name]) for one in model.inputs]
        shapes = model.output_shapes(inputs)
        results = {
            one.name: (out or {}).get(one.name, np.zeros(shapes[one.name], numpy_dtype(one.dtype)))
            for one in model.outputs
        }
        with private_directory("tk-foreign") as directory:
            given, made = directory / "in", directory / "out"
            write_atomic(given, b"".join(_to_bytes(np.asarray(one)) for one in feeds))
            write_atomic(made, b"".join(map(_to_bytes, results.values())))
            call = model.call(directory, model.shapes_text(inputs), str(self.threads), str(given), str(made))
            data = made.read_bytes()
        place, lines = 0, _lines(call.stdout.splitlines(), "out")
        for (name, array), words in zip(list(results.items()), lines, strict=True):
            shape = tuple(map(int, words))
            results[name] = cut = array.reshape(-1)[: math.prod(shape)].reshape(shape)
            place += _from_bytes(cut, data, place)
        return results


def _to_bytes(array: Array) -> bytes:
    """What a model holds in memory for an array."""
    held = in_memory(array)
    if not isinstance(held, PackedArray):
        return array.tobytes()
    held.pack()
    return held.memory.tobytes()


def _from_bytes(array: Array, data: bytes, place: int) -> int:
    """Fill an array from what a model made; returns the number of bytes."""
    held = in_memory(array)
    if not isinstance(held, PackedArray):
        array[...] = np.frombuffer(data, array.dtype, array.size, place).reshape(array.shape)
        return array.nbytes
    held.memory[:] = np.frombuffer(data, np.uint8, held.memory.size, place)
    held.unpack()
    return held.memory.size


def _emulator(machine: str, where: str) -> str:
    for name in (f"qemu-{machine}", f"qemu-{machine}-static"):
        if found := shutil.which(name, path=search_path()):
            return found
    raise HostError(
        f"this library is for {machine}, and nothing here emulates one",
        where=where,
        why=f"qemu-{machine} is not on the PATH",
        hint="install it (Debian, Ubuntu: apt install qemu-user), or verify on such a machine",
    )


def _lines(described: list[str], kind: str) -> list[list[str]]:
    return [line.split()[1:] for line in described if line.split()[0] == kind]


def _spec(name: str, words: list[str]) -> TensorSpec:
    code, bits, *dims = words
    spec = TensorSpec(name, dtype_name(DLDataType(int(code), int(bits), 1)), tuple(map(_dim, dims)), 0)
    return replace(spec, nbytes=-(-math.prod(spec.largest_shape) * int(bits) // 8))


def _dim(word: str) -> int | SymbolicDim:
    """`3`, or `symbol:minimum:maximum:divisor`."""
    first, *rest = map(int, word.split(":"))
    if not rest:
        return first
    minimum, maximum, divisor = rest
    return SymbolicDim(first, minimum, maximum, divisor)
