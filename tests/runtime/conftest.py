"""The model of fixtures/scale_add.cpp, built with each C++ compiler of this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.core.cache import ContentCache
from tests.support.model_library import COMPILERS, Arrays, Builder, Feeds
from tests.support.opencl_host import build_host, drivers


@pytest.fixture(scope="session", params=COMPILERS)
def builder(
    request: pytest.FixtureRequest, own_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Builder:
    directory = tmp_path_factory.mktemp(f"runtime-{request.param}")
    return Builder(request.param, ContentCache(own_cache / "objects"), directory)


@pytest.fixture(scope="session")
def library(builder: Builder) -> Path:
    return builder.library(builder.directory / "model.so")


@pytest.fixture
def feeds() -> Feeds:
    def make(rows: int) -> Arrays:
        random = np.random.default_rng(rows)
        return {name: random.standard_normal((rows, 8), dtype=np.float32) for name in ("x", "z")}

    return make


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
