"""Modules of SYCL for compiling ahead of time, through both passes without DPC++: host and device."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler.core.process import Completed, run
from compiler.core.settings import child_environment, load_settings
from compiler.runtime.library import INCLUDE, SOURCES
from compiler.runtime.vendor_runtimes import IntelRuntime, find_intel_runtime, runtime_environment
from compiler.targets.sycl_tools import SHIM, ahead_text

CLANGS = ("clang++", *(f"clang++-{version}" for version in range(20, 10, -1)))
HOST_COMPILERS = (("g++",), CLANGS)
"""Names of each compiler, of which the first that is found is taken."""

_FLAGS = ("-std=c++17", "-w", "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING")
_SPIRV = Path(__file__).with_name("sycl_spirv.cpp")
_LIMIT_SECONDS = 900.0
_INCLUDED_SHIM = '#include "shim.cpp"\n'


@pytest.fixture(scope="session")
def sycl_runtime() -> IntelRuntime:
    """Intel's SYCL runtime with its headers; skips without one."""
    found = find_intel_runtime(load_settings())
    if found is None or found.sycl is None or found.headers is None:
        pytest.skip("no SYCL runtime: pip install dpcpp-cpp-rt, or TK_SYCL_ROOT")
    return found


@pytest.fixture(scope="session")
def spirv_compiler(sycl_runtime: IntelRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The program that asks the runtime's compiler for SPIR-V."""
    path = tmp_path_factory.mktemp("sycl-spirv") / "compile"
    argv = [
        "g++", *_FLAGS, "-isystem", str(sycl_runtime.headers), str(_SPIRV), "-o", str(path),
        str(sycl_runtime.sycl),
    ]  # fmt: skip
    done = run(argv, env=child_environment(), timeout=_LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr[:3000]
    yield path
    path.unlink()


def host_compiler(names: tuple[str, ...]) -> str:
    """The first of these that is on the PATH; skips when none is."""
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"{names[0]} is not installed")
    return found


def host_pass(text: str, arch: str, cxx: str, runtime: IntelRuntime, directory: Path) -> Completed:
    """A C++ compiler of the host reads what DPC++ would: the module, its launchers, the shim."""
    (directory / "module.cpp").write_text(ahead_text(text, arch))
    folders = ["-isystem", str(runtime.headers), *(f"-I{path}" for path in (INCLUDE, SOURCES, SHIM.parent))]
    argv = [cxx, *_FLAGS, "-fsyntax-only", "-DTK_AHEAD", *folders, str(directory / "module.cpp")]
    return run(argv, env=child_environment(), timeout=_LIMIT_SECONDS)


def device_pass(text: str, arch: str, compiler: Path, directory: Path) -> tuple[Completed, bytes]:
    """The runtime's compiler makes SPIR-V of the same text but for the shim, which is the host's."""
    source, output = directory / "device.cpp", directory / "device.syclbin"
    source.write_text("#define TK_AHEAD 1\n" + ahead_text(text, arch).replace(_INCLUDED_SHIM, ""))
    env = runtime_environment(load_settings(), TMPDIR=str(directory))
    done = run([str(compiler), str(source), str(output)], env=env, timeout=_LIMIT_SECONDS)
    return done, output.read_bytes() if done.returncode == 0 else b""
