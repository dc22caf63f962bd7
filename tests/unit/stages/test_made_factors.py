"""Where a depthwise convolution and the 1 x 1 convolution behind it are one kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.types import F16, F32, DType
from compiler.graph.ir import Graph, TensorType
from compiler.reports import CompileOptions
from compiler.schedule.chooser import ReplayChooser
from compiler.stages.depthwise_pairs import pays
from compiler.stages.graph_decisions import DEPTHWISE, choose_graph
from compiler.stages.groups import fused_groups
from compiler.stages.job import CompileJob
from compiler.targets import get_target
from tests.support.sketch import Sketch


def separable(channels: int = 96, rows: int = 24, image: int = 16, size: int = 3) -> Graph:
    s = Sketch()
    x = s.conv(s.input(1, channels, image, image), channels, size, groups=channels)
    return s.graph(s.conv(s.emit("Relu", x), rows))


def kernels(graph: Graph, path: Path, target: str, decision: int = 1, without: tuple[str, ...] = ()) -> int:
    job = CompileJob.of(path / "m.onnx", CompileOptions(path / "m.so", target, without=without))
    job = replace(job, chooser=ReplayChooser({DEPTHWISE: (decision,)}, job.chooser))
    return len(fused_groups(graph, replace(job, graph=choose_graph(graph, job))).groups)


@pytest.mark.parametrize(
    ("target", "count"), [("cuda:sm_90", 1), ("cuda:sm_70", 2), ("rocm:gfx90a", 2), ("cpu:x86-64-v3", 2)]
)
def test_where_copies_bring_the_weights(target: str, count: int, tmp_path: Path) -> None:
    assert kernels(separable(), tmp_path, target) == count


def test_tuning_and_whoever_leaves_passes_out_may_say_no(tmp_path: Path) -> None:
    assert kernels(separable(), tmp_path, "cuda:sm_90", decision=0) == 2
    assert kernels(separable(), tmp_path, "cuda:sm_90", without=("fuse-depthwise",)) == 2


def test_the_decision_is_asked_where_there_may_be_a_pair(tmp_path: Path) -> None:
    s = Sketch()
    alone = s.graph(s.conv(s.input(1, 3, 8, 8), 8, 3))
    job = CompileJob.of(tmp_path / "m.onnx", CompileOptions(tmp_path / "m.so", "cuda:sm_90"))
    assert DEPTHWISE in choose_graph(separable(), job).decisions
    assert DEPTHWISE not in choose_graph(alone, job).decisions


def test_not_where_windows_are_made_again_too_often() -> None:
    """1,632 channels of 5 x 5 windows for 272 rows, a part of which each block has."""
    facts = get_target("cuda:sm_90").facts
    for sizes, wanted in (((96, 24, 16, 3), True), ((1632, 272, 11, 5), False)):
        first, _, product = separable(*sizes).nodes
        assert pays(first, product, facts) == wanted


@pytest.mark.parametrize("kind", [F32, F16])
def test_factors_of_f32(kind: DType) -> None:
    first, _, product = separable().nodes
    image, *known = first.inputs
    narrow = replace(image, type=TensorType(kind, image.type.shape))
    facts = get_target("cuda:sm_90").facts
    assert pays(replace(first, inputs=(narrow, *known)), product, facts) == (kind == F32)
