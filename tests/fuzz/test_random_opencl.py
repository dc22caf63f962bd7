"""Random graphs and networks on the host's cores behind OpenCL: they compute what onnxruntime computes.

All seeds of the tests of target `cpu`. Several share one model: building programs takes the drivers longest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.test_random_libraries import GRAPHS, NETWORKS, ONCE_BROKEN
from tests.support.merged_cases import assert_computes
from tests.support.random_graphs import random_model
from tests.support.random_networks import random_network
from tests.support.random_parts import in_groups, together

SIZE, USUAL = 10, 2
AS_FOR_GPUS = range(100)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seeds", in_groups(GRAPHS, SIZE, USUAL, ONCE_BROKEN))
def test_graphs(seeds: tuple[int, ...], opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(together(random_model, seeds), "opencl-cpu", tmp_path, opencl_driver)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seeds", in_groups(NETWORKS, SIZE, USUAL))
def test_networks(seeds: tuple[int, ...], opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(together(random_network, seeds), "opencl-cpu", tmp_path, opencl_driver)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seeds", in_groups(AS_FOR_GPUS, SIZE, 1))
def test_networks_as_for_gpus(seeds: tuple[int, ...], opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(together(random_network, seeds), "opencl-intel", tmp_path, f"any:{opencl_driver}")
