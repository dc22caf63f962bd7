"""Where small layers that read each other are one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.graph.ir import Graph
from compiler.reports import CompileOptions
from compiler.schedule.chooser import ReplayChooser
from compiler.stages.graph_decisions import CHAINS, choose_graph
from compiler.stages.groups import fused_groups
from compiler.stages.job import CompileJob
from tests.support.sketch import Sketch


def gate(channels: int = 96, fewer: int = 24, image: int = 14) -> Graph:
    s = Sketch()
    x = s.emit("ReduceSum", s.input(1, channels, image, image), axes=(2, 3), keepdims=True)
    x = s.emit("Mul", x, s.constant(np.float32(1 / image**2)))
    return s.graph(s.conv(s.emit("Relu", s.conv(x, fewer)), channels))


def kernels(graph: Graph, path: Path, target: str, decision: int = 1, without: tuple[str, ...] = ()) -> int:
    job = CompileJob.of(path / "m.onnx", CompileOptions(path / "m.so", target, without=without))
    job = replace(job, chooser=ReplayChooser({CHAINS: (decision,)}, job.chooser))
    return len(fused_groups(graph, replace(job, graph=choose_graph(graph, job))).groups)


@pytest.mark.parametrize(
    ("target", "count"), [("cuda:sm_90", 1), ("cuda:sm_80", 3), ("rocm:gfx90a", 3), ("cpu:x86-64-v3", 3)]
)
def test_where_blocks_form_clusters(target: str, count: int, tmp_path: Path) -> None:
    assert kernels(gate(), tmp_path, target) == count


def test_tuning_and_whoever_leaves_passes_out_may_say_no(tmp_path: Path) -> None:
    assert kernels(gate(), tmp_path, "cuda:sm_90", decision=0) == 3
    assert kernels(gate(), tmp_path, "cuda:sm_90", without=("fuse-chains",)) == 3


def test_not_where_weights_take_a_cluster_too_long(tmp_path: Path) -> None:
    assert kernels(gate(2048, 1024, 7), tmp_path, "cuda:sm_90") == 3


def test_large_images_are_pooled_by_all_units(tmp_path: Path) -> None:
    assert kernels(gate(96, 24, 112), tmp_path, "cuda:sm_90") == 2


def lone_sum() -> Graph:
    s = Sketch()
    return s.graph(s.conv(s.input(1, 96, 1, 1), 24))


@pytest.mark.parametrize(
    ("make", "target", "asked"),
    [(gate, "cuda:sm_90", True), (gate, "cuda:sm_80", False), (lone_sum, "cuda:sm_90", False)],
)
def test_the_decision_is_asked_where_clusters_have_something_to_join(
    tmp_path: Path, make: Callable[[], Graph], target: str, *, asked: bool
) -> None:
    job = CompileJob.of(tmp_path / "m.onnx", CompileOptions(tmp_path / "m.so", target))
    assert (CHAINS in choose_graph(make(), job).decisions) == asked
