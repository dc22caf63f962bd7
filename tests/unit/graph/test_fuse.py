"""What is computed together."""

from __future__ import annotations

import pytest

from compiler.graph.fuse import MOST_NODES, MOST_OPERATIONS, FusedGraph, Group
from compiler.graph.ir import Value
from compiler.graph.op import Kind
from tests.support.sketch import Sketch


def shapes_of(fused: FusedGraph) -> list[str]:
    return [" ".join(item.op.name for item in group.nodes) for group in fused.groups]


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def test_epilogue_and_padding_join_the_anchor(s: Sketch) -> None:
    y = s.emit("Relu", s.emit("Add", s.conv(s.input(1, 4, 6, 6)), s.weights(4, 1, 1)))
    fused = s.fused(s.conv(s.pad(y)))
    assert shapes_of(fused) == ["Conv Add Relu Pad", "Conv"]
    assert [group.kind for group in fused.groups] == [Kind.ANCHOR, Kind.ANCHOR]
    assert fused.groups[0].anchor is fused.groups[0].nodes[0]


def test_a_residual_joins_the_later_convolution(s: Sketch) -> None:
    x = s.input(1, 4, 6, 6)
    y = s.emit("Relu", s.emit("Add", s.conv(x), s.conv(s.emit("Relu", s.conv(x)))))
    assert shapes_of(s.fused(y)) == ["Conv", "Conv Relu", "Conv Add Relu"]


def test_a_result_that_others_read_ends_its_group(s: Sketch) -> None:
    y = s.conv(s.input(1, 4, 6, 6))
    assert shapes_of(s.fused(s.emit("Relu", y), s.conv(y))) == ["Conv", "Relu", "Conv"]


def test_an_output_ends_its_group(s: Sketch) -> None:
    y = s.conv(s.input(1, 4, 6, 6))
    assert shapes_of(s.fused(y, s.emit("Relu", y))) == ["Conv", "Relu"]


def test_a_diamond_of_elementwise_operators_joins_as_a_whole(s: Sketch) -> None:
    x = s.emit("MatMul", s.input(3, 4), s.weights(4, 5))
    gate = s.emit("Mul", s.emit("Add", s.emit("Erf", s.emit("Mul", x, s.weights(5))), s.weights(5)), x)
    assert shapes_of(s.fused(gate)) == ["MatMul Mul Erf Add Mul"]


def test_a_chain_of_elementwise_operators_is_one_group(s: Sketch) -> None:
    x, y = s.input(3, 4), s.input(3, 4)
    z = s.emit("Transpose", s.emit("Add", s.emit("Exp", x), s.emit("Relu", y)), perm=(1, 0))
    fused = s.fused(z)
    assert len(fused.groups) == 1
    assert fused.groups[0].kind is Kind.INJECTIVE
    assert fused.groups[0].anchor is None


def test_work_is_not_repeated_by_broadcasting(s: Sketch) -> None:
    gate = s.emit("Sigmoid", s.input(1, 4, 1, 1))
    assert shapes_of(s.fused(s.emit("Mul", s.input(1, 4, 6, 6), gate))) == ["Sigmoid", "Mul"]


def test_a_wider_result_does_not_follow_an_anchor(s: Sketch) -> None:
    y = s.emit("Add", s.conv(s.input(1, 4, 1, 1)), s.input(1, 4, 6, 6))
    assert shapes_of(s.fused(y)) == ["Conv", "Add"]


def test_slices_are_repeated_in_their_readers(s: Sketch) -> None:
    padded = s.pad(s.emit("Relu", s.input(1, 4, 6, 6)))
    bare = s.emit("Slice", padded, begin=(0, 0, 1, 1), step=(1, 1, 1, 1), size=(1, 4, 6, 6))
    y = s.emit("Add", s.conv(bare), bare)
    assert shapes_of(s.fused(y, s.emit("Exp", bare))) == ["Relu Pad", "Slice Conv Add", "Slice Exp"]


@pytest.mark.parametrize(
    ("perm", "side", "joins"),
    [((0, 2, 1), 1, True), ((1, 2, 0), 1, True), ((1, 0, 2), 0, True), ((0, 2, 1), 0, False)],
    ids=["right", "right, of heads", "left, rows stay rows", "left, columns become rows"],
)
def test_a_product_reads_its_factors_in_another_order(
    s: Sketch, perm: tuple[int, ...], side: int, *, joins: bool
) -> None:
    moved = s.emit("Transpose", s.input(2, 5, 7), perm=perm)
    heads, rows, columns = moved.type.shape
    other = s.input(heads, columns, 3) if side == 0 else s.input(heads, 3, rows)
    y = s.emit("MatMul", *((moved, other) if side == 0 else (other, moved)))
    assert shapes_of(s.fused(y)) == (["Transpose MatMul"] if joins else ["Transpose", "MatMul"])


def test_a_slice_that_leaves_the_graph_is_computed(s: Sketch) -> None:
    y = s.emit("Slice", s.input(4, 4), begin=(1, 0), step=(1, 1), size=(2, 4))
    assert shapes_of(s.fused(y)) == ["Slice"]


def test_views_are_no_groups(s: Sketch) -> None:
    x = s.emit("Relu", s.input(4, 6))
    y = s.emit("Reshape", x, shape=(24,))
    fused = s.fused(s.emit("Exp", y))
    assert fused.views == ((x, y),)
    assert shapes_of(fused) == ["Relu", "Exp"]


def test_reductions_take_their_producers_in(s: Sketch) -> None:
    x = s.input(3, 8)
    y = s.emit("ReduceSum", s.emit("Mul", x, x), axes=(1,), keepdims=True)
    assert shapes_of(s.fused(s.emit("Sqrt", y))) == ["Mul ReduceSum Sqrt"]


def test_overlapping_windows_do_not(s: Sketch) -> None:
    x = s.emit("Exp", s.input(1, 2, 8, 8))
    y = s.emit("Exp", s.input(1, 2, 8, 8))
    assert shapes_of(s.fused(s.pool(x, 3, 2), s.pool(y, 2, 2))) == ["Exp", "SumPool", "Exp SumPool"]


def test_a_join_takes_elementwise_parts_in_but_ends_its_group(s: Sketch) -> None:
    x = s.input(1, 4, 6, 6)
    y = s.emit("Relu", s.emit("Concat", s.emit("Exp", x), s.conv(x), axis=1))
    assert shapes_of(s.fused(y)) == ["Conv", "Exp Concat", "Relu"]


def test_names_of_a_group_are_those_of_its_nodes(s: Sketch) -> None:
    s.origin = ("conv1",)
    y = s.conv(s.input(1, 4, 6, 6))
    s.origin = ("conv1", "relu1")
    assert s.fused(s.emit("Relu", y)).groups[0].origin == ("conv1", "relu1")


def test_the_text_shows_groups_and_views(s: Sketch) -> None:
    y = s.emit("Reshape", s.emit("Relu", s.input(2, 3)), shape=(6,))
    assert str(s.fused(s.emit("Exp", y))).splitlines() == [
        "fused",
        "  view %2: f32[6] of %1: f32[2,3]",
        "  %1 = injective[Relu](%0)",
        "  %3 = injective[Exp](%2)",
    ]


def test_a_group_has_an_end(s: Sketch) -> None:
    y = s.conv(s.input(1, 4, 6, 6))
    for number in range(100):
        y = s.emit("Relu" if number % 2 else "Neg", y)
    sizes = [len(group.nodes) for group in s.fused(y).groups]
    assert sum(sizes) == 101
    assert len(sizes) == -(-101 // MOST_NODES)
    assert max(sizes) == MOST_NODES


@pytest.mark.parametrize("end", ["sum", "pad", "conv"])
def test_values_that_double_what_they_read_end_groups(s: Sketch, end: str) -> None:
    """v * sigmoid(v), again and again, is written out beside a sum, and where a result has several pieces."""
    x = s.input(1, 8, 5, 5)
    v = s.conv(x, 8) if end == "conv" else x
    for _ in range(20):
        v = s.emit("Mul", v, s.emit("Sigmoid", v))
    if end == "sum":
        v = s.emit("ReduceSum", v, axes=(1,), keepdims=False)
    last = s.pad(v) if end == "pad" else v
    groups = s.fused(last).groups
    looked_at = groups[0] if end == "conv" else groups[-1]
    assert 8 < written_out(looked_at) <= MOST_OPERATIONS


@pytest.mark.parametrize(("op", "fitting"), [("HardSwish", 5), ("Elu", 3), ("Relu", 30)])
def test_a_formula_that_has_its_operand_several_times_counts(s: Sketch, op: str, fitting: int) -> None:
    """Behind a convolution each is written out within the next one: as often as that reads it."""
    y = s.conv(s.input(1, 8, 5, 5), 8)
    for _ in range(30):
        y = s.emit(op, y, **ATTRS.get(op, {}))
    assert len(s.fused(y).groups[0].nodes) == 1 + fitting


ATTRS: dict[str, dict[str, float]] = {"Elu": {"alpha": 1.0}}


def test_elementwise_groups_bind_what_doubles_and_go_on(s: Sketch) -> None:
    """Sixty times: written out as one expression it would have 2 ** 60 operations."""
    v = s.input(100)
    for _ in range(60):
        v = s.emit("Mul", v, s.emit("Sigmoid", v))
    assert [len(group.nodes) for group in s.fused(v).groups] == [MOST_NODES, MOST_NODES, MOST_NODES, 24]


def written_out(group: Group) -> int:
    """Operations of a group's last expression."""
    count: dict[Value, int] = {}
    for item in group.nodes:
        count[item.output] = 1 + sum(count.get(value, 0) for value in item.inputs)
    return count[group.nodes[-1].output]
