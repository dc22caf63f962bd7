"""Random graphs and networks on the host's cores behind OpenCL: they compute what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from tests.fuzz.test_random_libraries import GRAPHS, NETWORKS, ONCE_BROKEN, seeds
from tests.support.onnx_models import assert_close, run_onnxruntime
from tests.support.random_graphs import random_model
from tests.support.random_networks import random_network

USUAL = range(3)
AS_FOR_GPUS = range(100)


def assert_computes_the_same(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray], directory: Path, target: str, device: str
) -> None:
    want = run_onnxruntime(proto, feeds, optimise=False)
    onnx.save(proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target=target)
    compiler.compile_model(directory / "m.onnx", options)
    with compiler.load(directory / "m.so", device=device) as model:
        got = model.run(feeds)
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert_close(got[name], array, 1e-4, f"output {name}")


@pytest.mark.parametrize("seed", seeds(GRAPHS, USUAL, ONCE_BROKEN))
def test_graph(seed: int, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes_the_same(*random_model(seed), tmp_path, "opencl-cpu", opencl_driver)


@pytest.mark.parametrize("seed", seeds(NETWORKS, USUAL))
def test_network(seed: int, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes_the_same(*random_network(seed), tmp_path, "opencl-cpu", opencl_driver)


@pytest.mark.parametrize("seed", seeds(AS_FOR_GPUS, range(1)))
def test_network_as_for_gpus(seed: int, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes_the_same(*random_network(seed), tmp_path, "opencl-intel", f"any:{opencl_driver}")
