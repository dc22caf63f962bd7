"""What becomes one kernel with the convolution behind it: depthwise convolutions, and chains of operators."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.fuse_factors import fuse_factors
from compiler.graph.ir import Node, Value
from tests.support.sketch import Sketch

Make = Callable[[Sketch], Value | tuple[Value, Value]]


def depthwise(s: Sketch, channels: int = 8) -> Value:
    return s.conv(s.input(1, channels, 6, 6), channels, 3, groups=channels)


def clipped(s: Sketch) -> Value:
    return s.conv(s.emit("Relu", depthwise(s)), 5)


def residual(s: Sketch) -> Value:
    return s.emit("Add", s.conv(depthwise(s), 5), s.input(1, 5, 4, 4))


def in_groups(s: Sketch) -> Value:
    return s.conv(depthwise(s), 6, groups=2)


def shuffled(s: Sketch) -> Value:
    return s.conv(s.emit("ChannelShuffle", depthwise(s), axis=1, groups=2), 6, groups=2)


def read_twice(s: Sketch) -> tuple[Value, Value]:
    x = depthwise(s)
    return s.conv(x, 5), s.emit("Exp", x)


def handed_out(s: Sketch) -> tuple[Value, Value]:
    x = depthwise(s)
    return s.conv(x, 5), x


def gated(s: Sketch) -> Value:
    x = depthwise(s)
    mean = s.emit("ReduceMean", x, axes=(2, 3), keepdims=True)
    return s.conv(s.emit("Mul", x, s.emit("Sigmoid", mean)), 5)


def added(s: Sketch) -> Value:
    """A second image is read with the first one."""
    return s.conv(s.emit("Add", depthwise(s), s.input(1, 8, 4, 4)), 5)


def larger(s: Sketch) -> Value:
    return s.conv(depthwise(s), 5, 3)


def strided(s: Sketch) -> Value:
    return s.conv(depthwise(s), 5, 1, stride=2)


def plain(s: Sketch) -> Value:
    return s.conv(s.conv(s.input(1, 8, 6, 6), 8, 3), 5)


def twice_depthwise(s: Sketch) -> Value:
    return s.conv(depthwise(s), 8, 1, groups=8)


def fused(make: Make, *, pays: bool = True) -> FusedGraph:
    sketch = Sketch()
    results = make(sketch)
    found = sketch.fused(*(results if isinstance(results, tuple) else (results,)))
    return fuse_factors(found, lambda _first, _product: pays)


def anchors(found: FusedGraph) -> list[int]:
    """Convolutions of each group that has any."""
    counts = [sum(node.op.name == "Conv" for node in group.nodes) for group in found.groups]
    return [count for count in counts if count]


@pytest.mark.parametrize("make", [clipped, residual, in_groups, shuffled])
def test_both_are_one_kernel(make: Make) -> None:
    found = fused(make)
    assert anchors(found) == [2]
    (group,) = found.groups
    assert group.anchor is not None
    assert group.anchor.inputs[1].type.shape[2:] == (1, 1)
    assert anchors(fused(make, pays=False)) == [1, 1]


@pytest.mark.parametrize(
    "make", [read_twice, handed_out, gated, added, larger, strided, plain, twice_depthwise]
)
def test_they_are_two(make: Make) -> None:
    assert anchors(fused(make)) == [1, 1]


def test_it_is_asked_for_each_pair() -> None:
    asked: list[tuple[Group, Node]] = []
    s = Sketch()
    x = s.conv(depthwise(s), 8)
    y = s.conv(s.conv(x, 8, 3, groups=8), 4)

    def pays(first: Group, product: Node) -> bool:
        asked.append((first, product))
        return product.output.type.shape[1] == 4

    assert anchors(fuse_factors(s.fused(y), pays)) == [1, 1, 2]
    anchored = [first.anchor for first, _ in asked if first.anchor is not None]
    assert [node.attrs.integer("group") for node in anchored] == [8, 8]


def gate(s: Sketch) -> Value:
    """A gate of each channel."""
    return s.emit("Mul", s.input(1, 8, 6, 6), s.input(1, 8, 1, 1))


def norm(s: Sketch) -> Value:
    """A normalisation of what has another reader."""
    x = s.input(1, 8, 6, 6)
    return s.emit("Relu", s.emit("Add", s.emit("Mul", x, s.weights(8, 1, 1)), s.weights(8, 1, 1)))


def gates_of_sums(s: Sketch) -> Value:
    x = s.conv(s.input(1, 8, 8, 8), 8, 3)
    mean = s.emit("ReduceMean", x, axes=(2, 3), keepdims=True)
    return s.emit("Mul", x, s.emit("Sigmoid", mean))


CHAINS: dict[str, tuple[Make, int]] = {
    "a gate": (lambda s: s.conv(gate(s), 5), 1),
    "a normalisation": (lambda s: s.conv(norm(s), 5), 1),
    "a normalisation, 3 x 3": (lambda s: s.conv(norm(s), 5, 3), 1),
    "a gate of what it gates": (lambda s: s.conv(gates_of_sums(s), 5), 3),
    "5 x 5": (lambda s: s.conv(norm(s), 5, 5), 2),
    "every second place": (lambda s: s.conv(norm(s), 5, 3, stride=2), 2),
    "windows of each channel": (lambda s: s.conv(norm(s), 8, 3, groups=8), 2),
    "no image": (lambda s: s.emit("MatMul", norm(s), s.weights(6, 4)), 2),
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_operators(name: str) -> None:
    make, count = CHAINS[name]
    assert len(fused(make).groups) == count
    assert all(group.anchor is not None for group in fused(make).groups) == (count != 2)


def test_a_chain_that_two_read_stays() -> None:
    def twice(s: Sketch) -> tuple[Value, Value]:
        x = norm(s)
        return s.conv(x, 5), s.conv(x, 6)

    assert len(fused(twice).groups) == 3
