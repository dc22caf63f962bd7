"""Every network of the zoo verifies on the host's cores behind OpenCL, with each driver, and behind SYCL.

    python -m pytest tests/networks/test_device_networks.py -k "squeezenet and pocl" --record verified.jsonl

The smallest come first. With `--record FILE` what has passed is written there, and a later run with the same
file leaves out what passed with the same kernels: it goes on where it was stopped.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import compiler
from tests.support.opencl_fixtures import DRIVERS, need_driver
from tests.support.sycl_fixtures import need_sycl
from tests.support.verified import Verified, record, recorded, subject_of
from toolchain import zoo

SMALLEST_FIRST = sorted(zoo.networks(), key=lambda name: zoo.network(name).parameters or 0)
USUAL = {"mnist"}
"""Verified with every test run; the others take minutes each."""
MOST_ERROR = 1e-4
LIMIT_SECONDS = 3600.0


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in USUAL else [pytest.mark.slow]) for name in SMALLEST_FIRST],
)
def network(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The model's file; made once for all devices, and removed."""
    path = tmp_path_factory.mktemp("network") / f"{request.param}.onnx"
    zoo.make(str(request.param), path)
    yield path
    for file in path.parent.iterdir():
        file.unlink()


@pytest.fixture(scope="session")
def record_file(request: pytest.FixtureRequest) -> Path | None:
    """What `--record` names."""
    name = request.config.getoption("--record")
    return Path(name) if name else None


@pytest.mark.parametrize("driver", DRIVERS)
def test_opencl(
    network: Path,
    driver: str,
    opencl_drivers: dict[str, str],
    record_file: Path | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    device = need_driver(driver, opencl_drivers)
    verified = verify(network, "opencl-cpu", device, record_file)
    with capsys.disabled():
        sys.stdout.write(f"\n{verified.line()}\n")


def test_sycl(network: Path, record_file: Path | None, capsys: pytest.CaptureFixture[str]) -> None:
    need_sycl()
    verified = verify(network, "sycl-cpu", "cpu", record_file)
    with capsys.disabled():
        sys.stdout.write(f"\n{verified.line()}\n")


def verify(model: Path, target: str, device: str, record_file: Path | None) -> Verified:
    """Compile a model and compare a run on the device with onnxruntime; skips what is on record."""
    library = model.with_suffix(".so")
    began = time.perf_counter()
    compiler.compile_model(model, compiler.CompileOptions(output=library, target=target))
    subject = subject_of(library, model.stem, device)
    before = recorded(record_file, subject)
    if before is not None:
        pytest.skip(f"on record: {before.line()}")
    request = compiler.VerifyRequest(library, model, runs=1, device=device)
    report = compiler.verify_library(request, timeout=LIMIT_SECONDS)
    assert report.passed, report.outputs
    assert report.needed <= MOST_ERROR
    assert report.reference.startswith("onnxruntime")
    verified = Verified(subject, report.reference, report.needed, round(time.perf_counter() - began, 1))
    record(record_file, verified)
    return verified
