"""Stand-ins for vendors' drivers: libraries that take CUDA's or HIP's calls and work on host memory."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from compiler.core.process import run
from compiler.runtime.library import COMPILE_FLAGS

FIXTURES = Path(__file__).parents[1] / "runtime" / "fixtures"
CXX = shutil.which("g++") or shutil.which("clang++") or "c++"


@dataclass(frozen=True)
class FakeDriver:
    """One stand-in: the language it serves, the library that it is, its source."""

    language: str
    library: str
    source: str


CUDA = FakeDriver("cuda", "libcuda.so.1", "fake_cuda.cpp")
HIP = FakeDriver("hip", "libamdhip64.so.7", "fake_hip.cpp")


def compile_cpp(directory: Path, output: Path, *arguments: str) -> None:
    """Compile and link C++ with the runtime's options."""
    argv = [CXX, *COMPILE_FLAGS, "-Wall", "-Wextra", "-Werror", *arguments, "-o", str(output)]
    done = run(argv, cwd=directory, timeout=300)
    assert done.returncode == 0, done.stderr


def build_driver(driver: FakeDriver, directory: Path, *flags: str, name: str = "") -> Path:
    """The folder, below `directory`, that has the library: named for the language unless told otherwise."""
    folder = directory / (name or driver.language)
    folder.mkdir()
    output = folder / driver.library
    source = str(FIXTURES / driver.source)
    compile_cpp(directory, output, "-fvisibility=default", "-shared", *flags, source)
    return folder


def environment(folder: Path, gpus: str, log: Path, fail: str = "") -> dict[str, str]:
    """Variables that make a process find the library in `folder` and these GPUs ("NAME=ARCH;NAME=ARCH")."""
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_GPUS": gpus, "FAKE_LOG": str(log), "FAKE_FAIL": fail}
