"""The model of fixtures/scale_add.cpp, built with each C++ compiler of this machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.core.cache import ContentCache
from tests.support.model_library import COMPILERS, Arrays, Builder, Feeds


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
