"""Random graphs and networks: compiled, they compute what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from tests.support.model_library import COMPILERS
from tests.support.onnx_models import assert_close, run_onnxruntime
from tests.support.random_graphs import random_model
from tests.support.random_networks import random_network

GRAPHS, NETWORKS = range(200), range(150)
ONCE_BROKEN = (32, 543, 555)
"""Graphs that run always."""
ARCHS = ("x86-64", "x86-64-v2", "x86-64-v3", "host")


def assert_computes_the_same(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray], directory: Path, arch: str = "host"
) -> None:
    want = run_onnxruntime(proto, feeds, optimise=False)
    onnx.save(proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", arch=arch)
    compiler.compile_model(directory / "m.onnx", options)
    for threads in (1, 3):
        with compiler.load(directory / "m.so", threads=threads) as model:
            got = model.run(feeds)
        assert got.keys() == want.keys()
        for name, array in want.items():
            assert_close(got[name], array, 1e-4, f"{threads} threads, output {name}")
    report = compiler.inspect_library(directory / "m.so", check=True)
    assert [one.index for one in report.kernels if not one.replays] == []


@pytest.mark.sample(80)
@pytest.mark.parametrize("seed", sorted({*GRAPHS} - {*ONCE_BROKEN}))
def test_graph(seed: int, tmp_path: Path) -> None:
    assert_computes_the_same(*random_model(seed), tmp_path)


@pytest.mark.parametrize("seed", ONCE_BROKEN)
def test_graph_that_was_broken(seed: int, tmp_path: Path) -> None:
    assert_computes_the_same(*random_model(seed), tmp_path)


@pytest.mark.sample(80)
@pytest.mark.parametrize("seed", NETWORKS)
def test_network(seed: int, tmp_path: Path) -> None:
    assert_computes_the_same(*random_network(seed), tmp_path)


@pytest.mark.sample(16)
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("cxx", COMPILERS)
@pytest.mark.parametrize("seed", range(1000, 1008))
def test_network_for_other_processors(
    seed: int, cxx: str, arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TK_CXX", cxx)
    assert_computes_the_same(*random_network(seed), tmp_path, arch)


def test_a_seed_gives_one_network() -> None:
    assert random_network(5)[0].SerializeToString() == random_network(5)[0].SerializeToString()


def test_networks_are_varied() -> None:
    seen = {item.op_type for seed in NETWORKS for item in random_network(seed)[0].graph.node}
    assert len(seen) >= 24
