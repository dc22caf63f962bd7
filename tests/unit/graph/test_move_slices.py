"""Slices go before transposes and behind reshapes, and mean the same there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Value
from compiler.graph.rewrites import rewrite_graph
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.move_slices import move_slices
from tests.support.sketch import Sketch


def cut(s: Sketch, x: Value, axis: int, begin: int, size: int, step: int = 1) -> Value:
    shape = x.type.shape
    return s.emit(
        "Slice",
        x,
        begin=tuple(begin if n == axis else 0 for n in range(len(shape))),
        step=tuple(step if n == axis else 1 for n in range(len(shape))),
        size=tuple(size if n == axis else extent for n, extent in enumerate(shape)),
    )


def names(graph: Graph) -> list[str]:
    return [item.op.name for item in graph.nodes]


def same(before: Graph, after: Graph) -> bool:
    feeds = {
        name: np.arange(value.type.size, dtype=np.float32).reshape(value.type.shape)
        for name, value in zip(before.input_names, before.inputs, strict=True)
    }
    wanted, got = evaluate(before, feeds), evaluate(after, feeds)
    return all(np.array_equal(wanted[name], got[name]) for name in wanted)


def test_parts_of_a_transposed_tensor_are_taken_from_its_source() -> None:
    """As exporters unbind q, k and v: only index arithmetic is left, and views of the model's tensors."""
    s = Sketch()
    x = s.emit("Reshape", s.input(5, 24), shape=(1, 5, 1, 3, 8))
    x = s.emit("Reshape", s.emit("Transpose", x, perm=(3, 1, 2, 0, 4)), shape=(3, 5, 1, 8))
    parts = [s.emit("Reshape", cut(s, x, 0, n, 1), shape=(5, 2, 4)) for n in range(3)]
    graph = s.graph(*(s.emit("Transpose", part, perm=(1, 0, 2)) for part in parts))
    after = rewrite_graph(graph)
    assert same(graph, after)
    assert sorted(set(names(after))) == ["Reshape", "Slice", "Transpose"]
    wholes = [item for item in after.nodes if item.op.name == "Transpose" and item.output.type.size == 120]
    assert not wholes
    views = [item for item in after.nodes if item.op.name == "Reshape"]
    assert all(item.inputs[0] in after.inputs for item in views)


def test_a_range_that_the_view_has_not_stays() -> None:
    s = Sketch()
    graph = s.graph(s.emit("Reshape", cut(s, s.input(4, 6), 1, 1, 3), shape=(2, 6)))
    assert move_slices(graph) is graph


def test_every_other_element_is_no_range() -> None:
    s = Sketch()
    graph = s.graph(s.emit("Reshape", cut(s, s.input(4, 6), 1, 0, 3, step=2), shape=(4, 3, 1)))
    assert move_slices(graph) is graph


@st.composite
def chains(draw: st.DrawFn) -> Graph:
    """Slices, transposes and reshapes in any order."""
    s = Sketch()
    x = s.input(*draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4)))
    for _ in range(draw(st.integers(1, 5))):
        x = draw(st.sampled_from([_slice, _transpose, _reshape]))(s, x, draw)
    return s.graph(x)


def _slice(s: Sketch, x: Value, draw: st.DrawFn) -> Value:
    axis = draw(st.integers(0, x.type.rank - 1))
    begin = draw(st.integers(0, x.type.shape[axis] - 1))
    return cut(s, x, axis, begin, draw(st.integers(1, x.type.shape[axis] - begin)))


def _transpose(s: Sketch, x: Value, draw: st.DrawFn) -> Value:
    return s.emit("Transpose", x, perm=tuple(draw(st.permutations(range(x.type.rank)))))


def _reshape(s: Sketch, x: Value, draw: st.DrawFn) -> Value:
    return s.emit("Reshape", x, shape=draw(st.sampled_from(_shapes(x.type.shape))))


def _shapes(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Some shapes of as many elements."""
    size = math.prod(shape)
    split = [(n, size // n) for n in (1, 2, 3, 4, 6) if size % n == 0]
    merged = [(*shape[:n], shape[n] * shape[n + 1], *shape[n + 2 :]) for n in range(len(shape) - 1)]
    return [(size,), (*shape, 1), (1, *shape), *split, *merged]


@given(chains())
def test_any_chain_means_the_same(graph: Graph) -> None:
    assert same(graph, drop_dead(move_slices(graph)))
    assert same(graph, rewrite_graph(graph))
