"""Fixtures: the OpenCL drivers of this machine, each under the selector that the runtime knows it by."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.opencl_host import build_host, drivers


@pytest.fixture(scope="session")
def opencl_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OpenCL device behind functions for ctypes."""
    return build_host(tmp_path_factory.mktemp("opencl"))


@pytest.fixture(scope="session", params=["pocl", "intel"])
def opencl_driver(request: pytest.FixtureRequest, opencl_library: Path) -> str:
    """A selector of each driver for processors; skipped where this machine has not got it."""
    offered = drivers(opencl_library)
    if request.param not in offered:
        why = offered.get("", "only another one")
        pytest.skip(f"no OpenCL driver `{request.param}` for processors: {why}")
    return str(request.param)
