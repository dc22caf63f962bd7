"""Random graphs and networks on the host's cores behind SYCL, against onnxruntime: a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.test_random_libraries import GRAPHS, NETWORKS
from tests.support.merged_cases import assert_computes
from tests.support.random_graphs import random_model
from tests.support.random_networks import random_network
from tests.support.random_parts import together
from tests.support.sycl_fixtures import need_sycl

SAMPLES = {
    "graphs": (random_model, GRAPHS[4::20]),
    "networks": (random_network, NETWORKS[4::15]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name: str, tmp_path: Path) -> None:
    need_sycl()
    random, seeds = SAMPLES[name]
    assert_computes(together(random, seeds), "sycl-cpu", tmp_path)
