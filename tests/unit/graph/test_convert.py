"""Conversions: a copy beside a tensor whose layout is fixed, where it pays, and the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.core.target import TargetFacts
from compiler.graph.convert import insert_copies, lay_out, possible_copies
from compiler.graph.fuse import FusedGraph, fuse
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Value, verify
from compiler.loops.layout import Layout
from compiler.stages.layout_costs import TargetLayoutCosts
from tests.support.sketch import Sketch

WIDE = TargetLayoutCosts(TargetFacts("test", "c++", "wide", vector_bits=512, vector_registers=32))


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def ops(fused: FusedGraph) -> list[str]:
    return [node.op.name for group in fused.groups for node in group.nodes]


def laid_out(s: Sketch, *outputs: Value) -> tuple[FusedGraph, dict[Value, Layout]]:
    """The graph with its conversions and layouts; checked to be whole, and to mean the same."""
    before = s.fused(*outputs)
    made = lay_out(before, WIDE)
    fused, layouts = made.fused, made.layouts
    verify(fused.graph)
    source = np.random.default_rng(0)
    shapes = {
        name: v.type.shape for name, v in zip(before.graph.input_names, before.graph.inputs, strict=True)
    }
    feeds = {name: source.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    wanted = evaluate(before.graph, feeds)
    for name, got in evaluate(fused.graph, feeds).items():
        np.testing.assert_array_equal(got, wanted[name])
    touched = {value for group in fused.groups for value in (*group.inputs, *group.outputs)}
    assert touched - fused.graph.constants.keys() <= layouts.keys()
    return fused, dict(layouts)


def test_winograd_between_the_models_own_tensors_gets_two_conversions(s: Sketch) -> None:
    x = s.input(1, 32, 18, 18)
    y = s.conv(x, 32, 3)
    fused, layouts = laid_out(s, y)
    assert ops(fused) == ["Copy", "Conv", "Copy"]
    first, conv, last = fused.groups
    assert (first.inputs, last.outputs) == ((x,), (y,))
    assert layouts[conv.inputs[0]].lanes == layouts[conv.outputs[0]].lanes == 16
    assert not layouts[x].maps
    assert not layouts[y].maps


def test_few_channels_are_read_as_they_are(s: Sketch) -> None:
    x = s.input(1, 3, 18, 18)
    fused, _ = laid_out(s, s.conv(s.conv(x, 32, 3), 1))
    assert "Copy" not in ops(fused)
    assert fused.groups[0].inputs[0] == x


def test_a_pointwise_convolution_writes_rows_itself(s: Sketch) -> None:
    """Scattering lanes costs less than another pass over the tensor."""
    y = s.conv(s.conv(s.input(1, 3, 18, 18), 32, 3), 32)
    fused, _ = laid_out(s, y)
    assert ops(fused) == ["Conv", "Conv"]


def test_readers_share_one_copy_of_an_input(s: Sketch) -> None:
    x = s.input(1, 32, 18, 18)
    branches = [s.conv(s.conv(x, 32, 3), 16) for _ in range(2)]
    fused, _ = laid_out(s, *branches)
    assert ops(fused).count("Copy") == 1
    assert sum(x in group.inputs for group in fused.groups) == 1


def test_other_readers_of_an_output_read_the_blocks(s: Sketch) -> None:
    x = s.conv(s.input(1, 3, 20, 20), 32, 3)
    y = s.conv(x, 32, 3)
    fused, layouts = laid_out(s, y, s.conv(s.conv(y, 32, 3), 1))
    copy = next(group for group in fused.groups if group.nodes[0].op.name == "Copy")
    readers = [group for group in fused.groups if copy.inputs[0] in group.inputs]
    assert len(readers) == 2
    assert layouts[copy.inputs[0]].lanes == 16
    assert copy.outputs == (y,)


def test_a_view_sees_the_tensor_itself(s: Sketch) -> None:
    y = s.conv(s.conv(s.input(1, 3, 18, 18), 32, 3), 32, 3)
    fused, layouts = laid_out(s, s.emit("Softmax", s.emit("Reshape", y, shape=(32, 196)), axis=1, flatten=0))
    ((source, _),) = fused.views
    assert source == y
    assert not layouts[y].maps
    assert ops(fused) == ["Conv", "Conv", "Copy", "Softmax"]


def test_the_result_of_a_view_is_converted_for_who_reads_it(s: Sketch) -> None:
    flat = s.emit("Exp", s.input(32 * 324))
    fused, _ = laid_out(s, s.conv(s.conv(s.emit("Reshape", flat, shape=(1, 32, 18, 18)), 32, 3), 1))
    assert ops(fused) == ["Exp", "Copy", "Conv", "Conv"]


def test_copies_are_kernels_of_their_own(s: Sketch) -> None:
    x = s.input(1, 32, 6, 6)
    y = s.emit("Relu", s.conv(s.emit("Relu", x), 32))
    before = s.fused(y)
    copies = possible_copies(before)
    assert copies.keys() == {x, y} or copies.keys() == {y}
    after = fuse(insert_copies(before.graph, copies))
    assert all(len(g.nodes) == 1 for g in after.groups if g.nodes[0].op.name == "Copy")
    assert len(after.groups) == len(before.groups) + len(copies)


def test_nothing_to_convert_is_the_same_graph(s: Sketch) -> None:
    fused = s.fused(s.emit("MatMul", s.input(4, 8), s.weights(8, 8)))
    after = lay_out(fused, WIDE)
    assert after.fused is fused
    assert not any(layout.maps for layout in after.layouts.values())
