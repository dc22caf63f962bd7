"""Where what makes an image and the convolution behind it are one kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.types import F16, F32, DType
from compiler.graph.fuse import Group, fuse
from compiler.graph.ir import Graph, Node, TensorType
from compiler.reports import CompileOptions
from compiler.schedule.chooser import ReplayChooser
from compiler.stages.graph_decisions import DEPTHWISE, ELEMENTWISE, choose_graph
from compiler.stages.groups import fused_groups
from compiler.stages.job import CompileJob
from compiler.stages.made_factors import pays
from compiler.targets import get_target
from tests.support.sketch import Sketch


def separable(channels: int = 96, rows: int = 24, image: int = 16, size: int = 3) -> Graph:
    s = Sketch()
    x = s.conv(s.input(1, channels, image, image), channels, size, groups=channels)
    return s.graph(s.conv(s.emit("Relu", x), rows))


def normalised(size: int = 1) -> Graph:
    s = Sketch()
    scaled = s.emit("Mul", s.input(1, 96, 16, 16), s.weights(96, 1, 1))
    return s.graph(s.conv(s.emit("Relu", scaled), 24, size))


def kernels(graph: Graph, path: Path, target: str, decision: int = 1, without: tuple[str, ...] = ()) -> int:
    job = CompileJob.of(path / "m.onnx", CompileOptions(path / "m.so", target, without=without))
    chosen = {DEPTHWISE: (decision,), ELEMENTWISE: (decision,)}
    job = replace(job, chooser=ReplayChooser(chosen, job.chooser))
    return len(fused_groups(graph, replace(job, graph=choose_graph(graph, job))).groups)


@pytest.mark.parametrize(
    ("target", "count"),
    [
        ("cuda:sm_90", 1),
        ("cuda:sm_70", 2),
        ("rocm:gfx90a", 1),
        ("rocm:gfx1030", 2),
        ("opencl-amd:gfx906", 2),
        ("cpu:x86-64-v3", 2),
    ],
)
def test_where_copies_bring_the_weights_or_zeros_need_no_branch(
    target: str, count: int, tmp_path: Path
) -> None:
    assert kernels(separable(), tmp_path, target) == count


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("target", "count"), [("cuda:sm_90", 1), ("cuda:sm_70", 1), ("rocm:gfx90a", 1), ("cpu:x86-64-v3", 2)]
)
def test_chains_on_all_that_bind_threads(target: str, count: int, size: int, tmp_path: Path) -> None:
    assert kernels(normalised(size), tmp_path, target) == count


def test_tuning_and_whoever_leaves_passes_out_may_say_no(tmp_path: Path) -> None:
    for graph, name in ((separable(), "fuse-depthwise"), (normalised(), "fuse-elementwise")):
        assert kernels(graph, tmp_path, "cuda:sm_90", decision=0) == 2
        assert kernels(graph, tmp_path, "cuda:sm_90", without=(name,)) == 2
        assert kernels(graph, tmp_path, "cuda:sm_90") == 1


def test_the_decision_is_asked_where_there_may_be_a_pair(tmp_path: Path) -> None:
    s = Sketch()
    alone = s.graph(s.conv(s.input(1, 3, 8, 8), 8, 3))
    job = CompileJob.of(tmp_path / "m.onnx", CompileOptions(tmp_path / "m.so", "cuda:sm_90"))
    asked = [choose_graph(graph, job).decisions.keys() for graph in (separable(), normalised(), alone)]
    assert [[name in found for name in (DEPTHWISE, ELEMENTWISE)] for found in asked] == [
        [True, True],
        [False, True],
        [False, False],
    ]


def pair_of(graph: Graph) -> tuple[Group, Node]:
    """What makes the image, and the convolution of it."""
    first, last = fuse(graph).groups
    assert last.anchor is not None
    return first, last.anchor


def test_not_where_windows_are_made_again_too_often() -> None:
    """1,632 channels of 5 x 5 windows for 272 rows, a part of which each block has."""
    facts = get_target("cuda:sm_90").facts
    for sizes, wanted in (((96, 24, 16, 3), True), ((1632, 272, 11, 5), False)):
        first, product = pair_of(separable(*sizes))
        assert pays(first, product, facts) == wanted


@pytest.mark.parametrize("kind", [F32, F16])
def test_factors_of_f32(kind: DType) -> None:
    facts = get_target("cuda:sm_90").facts
    for graph in (separable(), normalised()):
        first, product = pair_of(graph)
        node, *others = first.nodes
        image, *known = node.inputs
        narrow = replace(image, type=TensorType(kind, image.type.shape))
        given = replace(first, nodes=(replace(node, inputs=(narrow, *known)), *others))
        assert pays(given, product, facts) == (kind == F32)
