"""Calls that a run leaves out: which condition guards them, and which never may be left out."""

from __future__ import annotations

import pytest

from compiler.core.types import BOOL
from compiler.graph.convert import LaidOut
from compiler.graph.fuse import FusionOptions
from compiler.graph.ir import TensorType, Value
from compiler.stages.guards import Guard, guards_of
from tests.support.sketch import Sketch, layouts_of


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def condition(s: Sketch, *shape: int) -> Value:
    s.inputs.append(s.value(TensorType(BOOL, shape)))
    return s.inputs[-1]


def branch(s: Sketch, x: Value) -> tuple[Value, Value]:
    """What a kernel of its own makes, and what is made of it, which its readers are joined to."""
    inner = s.emit("Softmax", x, axis=1)
    return inner, s.emit("Softmax", inner, axis=1)


def guards(s: Sketch, *outputs: Value) -> dict[Value, Guard | None]:
    """By what a call makes."""
    fused = s.fused(*outputs)
    laid_out = LaidOut(fused, layouts_of(fused, 8))
    written = [group.outputs for group in laid_out.computed]
    found = guards_of(laid_out, written)
    return {value: guard for values, guard in zip(written, found, strict=True) for value in values}


def test_the_branch_that_is_not_taken_is_left_out(s: Sketch) -> None:
    x, c = s.input(4, 8), condition(s, 1)
    (one, first), (other, second) = branch(s, x), branch(s, s.emit("Neg", x))
    y = s.emit("Where", c, first, second)
    found = guards(s, y)
    assert (found[one], found[other]) == (Guard(c, expected=True), Guard(c, expected=False))
    assert found[y] is None


def test_what_others_read_is_always_computed(s: Sketch) -> None:
    x, c = s.input(4, 8), condition(s, 1)
    one, first = branch(s, x)
    y = s.emit("Where", c, first, x)
    assert guards(s, y)[one] == Guard(c, expected=True)
    assert guards(s, y, one)[one] is None, "it is an output"
    assert guards(s, y, s.emit("ReduceMax", one, axes=(0,), keepdims=0))[one] is None
    assert guards(s, s.emit("Where", c, first, first))[one] is None, "it is taken either way"


def test_rounds_after_the_end_are_left_out(s: Sketch) -> None:
    """A state that each round makes of the one before, as long as its condition holds."""
    state, conditions = s.input(4, 8), [condition(s, 1) for _ in range(3)]
    made = []
    for c in conditions:
        inner, outer = branch(s, state)
        made.append(inner)
        state = s.emit("Where", c, outer, state)
    found = guards(s, state)
    assert [found[value] for value in made] == [Guard(c, expected=True) for c in conditions]


def test_conditions_of_rows_guard_what_all_rows_leave(s: Sketch) -> None:
    x, few, wide, many = s.input(4, 8), condition(s, 4, 1), s.input(100, 8), condition(s, 100, 1)
    (one, first), (other, second) = branch(s, x), branch(s, wide)
    found = guards(s, s.emit("Where", few, first, x), s.emit("Where", many, second, wide))
    assert found[one] == Guard(few, expected=True)
    assert found[other] is None, "that would be long to read"


def test_a_condition_that_comes_later_guards_nothing(s: Sketch) -> None:
    x = s.input(4, 8)
    one, first = branch(s, x)
    late = s.emit("Greater", s.emit("ReduceMax", first, axes=(0, 1), keepdims=1), s.weights(1, 1))
    y = s.emit("Where", late, first, x)
    assert guards(s, y, s.emit("Cast", late, to=x.type.dtype))[one] is None


def test_one_shape_of_a_condition_is_as_good_as_another(s: Sketch) -> None:
    x, c = s.input(4, 8), condition(s, 1)
    one, first = branch(s, x)
    again = s.emit("Reshape", c, shape=(1, 1))
    y = s.emit("Add", s.emit("Where", c, first, x), s.emit("Where", again, first, x))
    assert guards(s, y)[one] == Guard(c, expected=True)


def test_a_product_at_the_end_of_a_branch_stays_a_kernel_of_its_own(s: Sketch) -> None:
    """One with the selection, it would run whichever branch is taken."""
    x, c = s.input(4, 8), condition(s, 1)
    product, other = s.emit("MatMul", x, s.weights(8, 8)), s.emit("MatMul", s.emit("Neg", x), s.weights(8, 8))
    y = s.emit("Where", c, s.emit("Add", product, s.weights(8)), other)
    fused = s.fused(y, options=FusionOptions(leaves_out=True))
    assert sorted(tuple(n.op.name for n in group.nodes) for group in fused.groups) == [
        ("MatMul",), ("MatMul", "Add"), ("Neg",), ("Where",),
    ]  # fmt: skip
    joined = s.fused(y)
    assert [n.op.name for n in joined.groups[-1].nodes][-1] == "Where"
    assert len(joined.groups) < len(fused.groups), "where all run, a kernel less"


def test_a_mask_of_elements_follows_its_product(s: Sketch) -> None:
    x, c = s.input(4, 8), condition(s, 1, 8)
    y = s.emit("Where", c, s.emit("MatMul", x, s.weights(8, 8)), x)
    assert len(s.fused(y, options=FusionOptions(leaves_out=True)).groups) == 1
