"""The OpenCL device: what it says when something is missing, what it takes, what it keeps on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.core.process import run
from compiler.runtime.abi import Status
from tests.support.command import environment
from tests.support.model_library import FIXTURES
from tests.support.opencl_fixtures import need_driver
from tests.support.opencl_host import RefusedError, open_program

TWICE = "__kernel void twice(__global float *x) { x[get_group_id(0)] *= 2; }"
DOUBLED = [0.0, 2.0, 4.0, 6.0]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose lib/libOpenCL.so.1 offers what the variable STUB says."""
    root = tmp_path_factory.mktemp("stub")
    (root / "lib").mkdir()
    cxx = shutil.which("g++") or "clang++"
    output = root / "lib" / "libOpenCL.so.1"
    done = run([cxx, "-std=c++17", "-shared", "-fPIC", str(FIXTURES / "opencl_stub.cpp"), "-o", str(output)])
    assert done.returncode == 0, done.stderr
    return root


def opened(library: Path, arch: str = "cpu", selector: str = "", **changes: str) -> dict[str, Any]:
    """What a process of its own makes of a device: loaders are opened once in a process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.opencl_host", str(library), arch, selector],
        env=environment(changes), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def refused(library: Path, stub: Path, says: str, arch: str = "cpu", selector: str = "") -> tuple[int, str]:
    answer = opened(library, arch, selector, TK_SYCL_ROOT=str(stub), STUB=says)
    return answer["status"], answer["message"]


def test_no_loader(opencl_library: Path, tmp_path: Path) -> None:
    for name in ("libOpenCL.so.1", "libOpenCL.so"):
        (tmp_path / name).touch()  # found first, and no library
    answer = opened(opencl_library, LD_LIBRARY_PATH=str(tmp_path), TK_SYCL_ROOT=str(tmp_path))
    assert answer["status"] == Status.HOST
    assert "no OpenCL loader (libOpenCL.so.1)" in answer["message"]
    assert "apt install ocl-icd-libopencl1" in answer["message"]


def test_no_driver(opencl_library: Path, stub: Path) -> None:
    status, message = refused(opencl_library, stub, "none")
    assert status == Status.HOST
    assert "finds no driver" in message
    assert "pocl-opencl-icd" in message
    assert "dpcpp-cpp-rt" in message


@pytest.mark.parametrize(
    ("arch", "device", "names"),
    [
        ("cpu", "gpu nvidia", ("processor", "Stub device (Stub platform)", "pocl-opencl-icd")),
        ("nvidia", "cpu", ("NVIDIA GPU", "Stub device (Stub platform)", "NVIDIA's driver")),
        ("amd", "gpu nvidia", ("AMD GPU", "rocm-opencl")),
        ("hygon", "gpu intel", ("Hygon DCU", "DTK")),
        ("intel", "gpu amd", ("Intel GPU", "intel-opencl-icd")),
    ],
)
def test_no_device_of_the_kind(
    opencl_library: Path, stub: Path, arch: str, device: str, names: tuple[str, ...]
) -> None:
    status, message = refused(opencl_library, stub, device, arch)
    assert status == Status.DEVICE
    assert "opencl-test" in message  # the target as the user named it
    for name in names:
        assert name in message


def test_kinds_that_fit_are_taken(opencl_library: Path, stub: Path) -> None:
    for arch, device in (
        ("nvidia", "gpu nvidia"),
        ("amd", "gpu amd"),
        ("hygon", "gpu amd"),
        ("intel", "gpu intel"),
    ):
        status, message = refused(opencl_library, stub, device, arch)
        assert (status, "clEnqueueNDRangeKernel" in message) == (
            Status.MEMORY,
            True,
        )  # as far as the stub goes
    status, message = refused(opencl_library, stub, "gpu nvidia", "cpu", "any:")
    assert "clEnqueueNDRangeKernel: status -5 (CL_OUT_OF_RESOURCES)" in message


def test_no_shared_virtual_memory(opencl_library: Path, stub: Path) -> None:
    status, message = refused(opencl_library, stub, "cpu nosvm")
    assert status == Status.DEVICE
    assert "no shared virtual memory" in message
    assert "Stub device" in message


def test_the_build_log_is_in_the_message(opencl_library: Path, stub: Path) -> None:
    status, message = refused(opencl_library, stub, "cpu refuses")
    assert status == Status.DEVICE
    assert "CL_BUILD_PROGRAM_FAILURE" in message
    assert "line 7: this stub likes no program" in message


def test_an_unknown_selector_lists_what_there_is(opencl_library: Path, stub: Path) -> None:
    for selector in ("nope", "3", "stub:1"):
        status, message = refused(opencl_library, stub, "cpu", selector=selector)
        assert status == Status.DEVICE
        assert f"no OpenCL device '{selector}'" in message
        assert "Stub device (Stub platform)" in message


@pytest.mark.parametrize("selector", ["", "0", "cpu", "cpu:0", "stub", "STUB PLATFORM", "stub:0"])
def test_selectors(opencl_library: Path, stub: Path, selector: str) -> None:
    _, message = refused(opencl_library, stub, "cpu", selector=selector)
    assert "clEnqueueNDRangeKernel" in message


def test_an_image_for_something_else(opencl_library: Path, stub: Path) -> None:
    status, message = refused(opencl_library, stub, "cpu", "sm_70")
    assert (status, message) == (
        Status.LIBRARY, "the library holds no kernels that an OpenCL device could run"
    )  # fmt: skip


# ---------------------------------------------------------------- real drivers


def test_source_that_does_not_compile(opencl_library: Path, opencl_driver: str) -> None:
    with pytest.raises(
        RefusedError, match=r"refuses the kernels \(source\)[\s\S]*undeclared_thing"
    ) as caught:
        open_program(opencl_library, "__kernel void k(void) { undeclared_thing(); }", ["k"], opencl_driver)
    assert caught.value.status == Status.DEVICE


def test_too_much_local_memory_is_refused(opencl_library: Path, opencl_driver: str) -> None:
    program = open_program(opencl_library, TWICE, ["twice"], opencl_driver)
    with pytest.raises(RefusedError, match=r"needs 4000000000 bytes of local memory.*TK_DEVICE"):
        program.run("twice", [np.zeros(4, np.float32)], shared_bytes=4_000_000_000)
    program.close()


def test_time_passes_between_marks(opencl_library: Path, opencl_driver: str) -> None:
    source = (
        "__kernel void k(__global float *x) { for (int i = 0; i < 1000000; i++) x[0] = x[0] * 0.5f + 1; }"
    )
    program = open_program(opencl_library, source, ["k"], opencl_driver)
    values = np.zeros(1, np.float32)
    program.run("k", [values])
    once, often = program.run("k", [values]), program.run("k", [values], repeats=20)
    program.close()
    assert values[0] == 2
    assert once > 100_000  # a million dependent operations take longer than 0.1 ms
    assert often > 3 * once


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TK_CACHE_DIR", str(tmp_path))
    return tmp_path / "programs"


def files(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*") if path.is_file())


def doubled(library: Path, driver: str) -> None:
    program = open_program(library, TWICE, ["twice"], driver)
    values = np.arange(4, dtype=np.float32)
    program.run("twice", [values], grid=(4, 1, 1))
    program.close()
    assert values.tolist() == DOUBLED


@pytest.fixture
def keeper(opencl_drivers: dict[str, str]) -> str:
    """A driver whose programs are kept; PoCL does that by itself."""
    return need_driver("intel", opencl_drivers)


def test_the_programs_of_pocl_are_not_kept_twice(
    opencl_library: Path, opencl_drivers: dict[str, str], cache: Path
) -> None:
    doubled(opencl_library, need_driver("pocl", opencl_drivers))
    assert files(cache) == []


def test_programs_are_kept_and_found(opencl_library: Path, keeper: str, cache: Path) -> None:
    doubled(opencl_library, keeper)
    (kept,) = files(cache)
    assert kept.parent.parent.name == kept.parent.name[:2]
    os.utime(kept, (1, 1))
    doubled(opencl_library, keeper)
    assert files(cache) == [kept]
    assert kept.stat().st_mtime > 1  # was used


def test_a_damaged_program_is_made_again(opencl_library: Path, keeper: str, cache: Path) -> None:
    doubled(opencl_library, keeper)
    (kept,) = files(cache)
    kept.write_bytes(kept.read_bytes()[:-1])
    doubled(opencl_library, keeper)
    (again,) = files(cache)
    assert again.stat().st_size > 0
    doubled(opencl_library, keeper)


def test_a_binary_that_the_driver_refuses_is_made_again(
    opencl_library: Path, keeper: str, cache: Path
) -> None:
    """The digest is right, the content is not the driver's."""
    doubled(opencl_library, keeper)
    (kept,) = files(cache)
    data = b"not a program"
    other = kept.with_name(hashlib.sha256(data).hexdigest())
    other.write_bytes(data)
    kept.unlink()
    doubled(opencl_library, keeper)
    assert other not in files(cache)
    assert len(files(cache)) == 1


def test_without_a_place_for_the_cache(opencl_library: Path, opencl_driver: str, cache: Path) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file in the way")
    doubled(opencl_library, opencl_driver)


def test_processes_at_the_same_time(opencl_library: Path, opencl_driver: str, cache: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: opened(opencl_library, "cpu", opencl_driver), range(3)))
    assert [answer["values"] for answer in answers] == [DOUBLED] * 3
    assert len(files(cache)) == (0 if opencl_driver == "pocl" else 1)
