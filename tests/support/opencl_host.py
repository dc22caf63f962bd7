"""Kernels in OpenCL C written by hand, run by the runtime's OpenCL device on arrays of numpy."""

from __future__ import annotations

import ctypes
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.core.process import run
from compiler.core.settings import load_settings
from compiler.runtime.library import COMPILE_FLAGS, INCLUDE, SOURCES
from compiler.runtime.vendor_runtimes import reach_runtimes

Array = NDArray[Any]

HOST = "libopencl_host.so"
_FIXTURE = Path(__file__).parents[1] / "runtime" / "fixtures" / "opencl_host.cpp"
_FILES = (
    _FIXTURE,
    SOURCES / "error.cpp",
    *(SOURCES / "devices" / f"{n}.cpp" for n in ("opencl", "opencl_choice", "program_cache")),
)


class RefusedError(Exception):
    """The runtime's status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def build_host(directory: Path) -> None:
    """Compile the device file with the functions for ctypes."""
    cxx = shutil.which("g++") or "clang++"
    include = ("-I", str(INCLUDE), "-I", str(SOURCES))
    done = run(
        [cxx, *COMPILE_FLAGS, "-Wall", "-Wextra", "-Werror", *include, "-shared", *map(str, _FILES), "-ldl",
         "-o", str(directory / HOST)]
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@lru_cache(maxsize=4)
def _library(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    library.host_error.restype = library.host_describe.restype = ctypes.c_char_p
    library.host_describe.argtypes = library.host_close.argtypes = [ctypes.c_void_p]
    return library


@dataclass
class Program:
    """A source with its kernels on a device."""

    library: Any
    handle: ctypes.c_void_p
    functions: tuple[str, ...]

    @property
    def device(self) -> str:
        return str(self.library.host_describe(self.handle).decode())

    def run(
        self,
        function: str,
        arrays: Sequence[Array],
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        repeats: int = 1,
        shared_bytes: int = 0,
    ) -> int:
        """Launch a kernel on the arrays, which are changed in place; the time in nanoseconds."""
        three = ctypes.c_uint32 * 3
        pointers = (ctypes.c_void_p * len(arrays))(*(one.ctypes.data for one in arrays))
        sizes = (ctypes.c_int64 * len(arrays))(*(one.nbytes for one in arrays))
        time = ctypes.c_int64()
        status = self.library.host_run(
            self.handle, self.functions.index(function), three(*grid), three(*block),
            len(arrays), pointers, sizes, repeats, shared_bytes, ctypes.byref(time),
        )  # fmt: skip
        _check(self.library, status)
        return time.value

    def close(self) -> None:
        self.library.host_close(self.handle)


def open_program(
    library: Path, source: str | bytes, functions: Sequence[str], selector: str = "", *,
    kind: str = "source", arch: str = "cpu",
) -> Program:  # fmt: skip
    """Build a source for the device that a selector names; raises RefusedError."""
    loaded = _library(library)
    data = source.encode() if isinstance(source, str) else source
    handle = ctypes.c_void_p()
    names = "".join(f"{name}\n" for name in functions)
    status = loaded.host_open(
        kind.encode(), arch.encode(), data, ctypes.c_int64(len(data)), names.encode(), selector.encode(),
        ctypes.byref(handle),
    )  # fmt: skip
    _check(loaded, status)
    return Program(loaded, handle, tuple(functions))


def drivers(library: Path) -> dict[str, str]:
    """Drivers for processors that this machine has: selector -> device; under "" why there is none.

    Intel's comes with the extra `sycl` into the running Python, or lies where TK_SYCL_ROOT says.
    """
    reach_runtimes(load_settings())
    found = {}
    for name in ("pocl", "intel"):
        try:
            program = open_program(library, "__kernel void nothing(void) {}", ["nothing"], name)
        except RefusedError as error:
            found[""] = str(error)
            continue
        if name == "pocl" or "Intel(R) OpenCL" in program.device:  # not a processor of Intel behind PoCL
            found[name] = program.device
        program.close()
    return found


def main(library: str, arch: str, selector: str) -> None:
    """Open a device in this process and run a kernel that doubles; prints what came of it as JSON."""
    source = "__kernel void twice(__global float *x) { x[get_group_id(0)] *= 2; }"
    try:
        program = open_program(Path(library), source, ["twice"], selector, arch=arch)
        values = np.arange(4, dtype=np.float32)
        program.run("twice", [values], grid=(4, 1, 1))
        sys.stdout.write(json.dumps({"device": program.device, "values": values.tolist()}))
    except RefusedError as error:
        sys.stdout.write(json.dumps({"status": error.status, "message": str(error)}))


def _check(library: Any, status: int) -> None:
    if status:
        raise RefusedError(status, library.host_error().decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
