"""Which small layers that read each other become one kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from compiler.graph.fuse import Group
from compiler.graph.fuse_chains import fuse_chains
from compiler.graph.ir import Value
from compiler.graph.op import Kind
from tests.support.sketch import Sketch

Make = Callable[[Sketch], Value | tuple[Value, Value]]


def mean(s: Sketch, channels: int = 12) -> Value:
    x = s.emit("ReduceSum", s.input(1, channels, 6, 6), axes=(2, 3), keepdims=True)
    return s.emit("Mul", x, s.constant(np.float32(1 / 36)))


def gate(s: Sketch) -> Value:
    return s.emit("Sigmoid", s.conv(s.emit("Relu", s.conv(mean(s), 5)), 12))


def behind_a_view(s: Sketch) -> Value:
    return s.emit("MatMul", s.emit("Reshape", mean(s), shape=(1, 12)), s.weights(12, 7))


def dense(s: Sketch) -> Value:
    return s.emit("MatMul", s.emit("MatMul", s.input(1, 9), s.weights(9, 6)), s.weights(6, 4))


def read_twice(s: Sketch) -> tuple[Value, Value]:
    x = mean(s)
    return s.conv(x, 5), s.emit("Exp", x)


def handed_out(s: Sketch) -> tuple[Value, Value]:
    x = mean(s)
    return s.conv(x, 5), x


def of_two(s: Sketch) -> Value:
    return s.emit("MatMul", s.emit("Reshape", mean(s), shape=(1, 12)), s.input(12, 7))


def large(s: Sketch) -> Value:
    return s.conv(s.conv(s.input(1, 3, 80, 80), 12), 5)


def sizes(make: Make, saves: Callable[[Sequence[Group]], float]) -> list[int]:
    """Heavy operators and sums of each group that has any."""
    sketch = Sketch()
    results = make(sketch)
    found = fuse_chains(sketch.fused(*(results if isinstance(results, tuple) else (results,))), saves)
    heavy = {Kind.ANCHOR, Kind.REDUCTION}
    counts = [sum(node.op.kind in heavy for node in group.nodes) for group in found.groups]
    return [count for count in counts if count]


@pytest.mark.parametrize(("make", "count"), [(gate, 3), (behind_a_view, 2), (dense, 2)])
def test_they_are_one_kernel(make: Make, count: int) -> None:
    assert sizes(make, lambda parts: float(len(parts))) == [count]
    assert sizes(make, lambda _parts: 0.0) == [1] * count


@pytest.mark.parametrize("make", [read_twice, handed_out, of_two, large])
def test_they_are_two(make: Make) -> None:
    assert sizes(make, lambda _parts: 1.0) == [1, 1]


@pytest.mark.parametrize(
    ("saved", "wanted"),
    [
        ({(1, 5): 2.0, (5, 12): 1.0, (1, 12): 2.5}, [3]),
        ({(1, 5): 2.0, (5, 12): 1.0, (1, 12): 1.5}, [2, 1]),
        ({(1, 5): 1.0, (5, 12): 2.0, (1, 12): -1.0}, [1, 2]),
        ({(1, 5): -1.0, (5, 12): -1.0, (1, 12): -1.0}, [1, 1, 1]),
    ],
)
def test_the_parts_that_save_most_together(saved: dict[tuple[int, int], float], wanted: list[int]) -> None:
    """A gate of 12 channels, in parts known by what they end with, and whether the pool is in them."""

    def saves(parts: Sequence[Group]) -> float:
        first, last = parts[0], parts[-1].outputs[0].type.shape[1]
        begins = 1 if first.kind is Kind.REDUCTION else first.outputs[0].type.shape[1]
        return saved[begins, last]

    assert sizes(gate, saves) == wanted


def test_the_group_is_that_of_its_first_layer() -> None:
    """Images are laid out for what reads them."""
    s = Sketch()
    (group,) = fuse_chains(s.fused(gate(s)), lambda parts: float(len(parts))).groups
    assert group.kind is Kind.REDUCTION
