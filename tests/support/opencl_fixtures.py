"""Fixtures: the OpenCL drivers of this machine, each under the selector that the runtime knows it by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.once import Once
from tests.support.opencl_host import HOST, build_host, drivers

DRIVERS = ("pocl", "intel")


@pytest.fixture(scope="session")
def opencl_library(once: Once) -> Path:
    """The OpenCL device behind functions for ctypes."""
    return once("opencl", build_host) / HOST


@pytest.fixture(scope="session")
def opencl_drivers(opencl_library: Path) -> dict[str, str]:
    """The drivers for processors that this machine has; under "" why there is none."""
    return drivers(opencl_library)


@pytest.fixture(scope="session", params=DRIVERS)
def opencl_driver(request: pytest.FixtureRequest, opencl_drivers: dict[str, str]) -> str:
    """A selector of each driver for processors; skipped where this machine has not got it."""
    return need_driver(str(request.param), opencl_drivers)


def need_driver(name: str, offered: dict[str, str]) -> str:
    """The selector of a driver; skips the test where this machine has not got it."""
    if name not in offered:
        why = offered.get("", "only another one")
        pytest.skip(f"no OpenCL driver `{name}` for processors: {why}")
    return name
