"""Drawings in layers: every edge leads down, nothing overlaps, whatever the graph."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from toolchain.view.layering import LONGEST_EDGE, draw, layered

Edges = list[tuple[int, int]]


@st.composite
def graphs(draw_from: st.DrawFn) -> tuple[int, Edges]:
    count = draw_from(st.integers(1, 40))
    pair = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs = draw_from(st.lists(pair.filter(lambda one: one[0] != one[1]), max_size=80, unique=True))
    return count, sorted({(min(one), max(one)) for one in pairs})


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_edges_lead_down_and_nothing_overlaps(graph: tuple[int, Edges]) -> None:
    count, edges = graph
    drawn = draw([100.0] * count, edges)
    boxes: dict[int, list[tuple[float, float]]] = {}
    for layer, x in zip(drawn.layers, drawn.x, strict=True):
        boxes.setdefault(layer, []).append((x - 50, x + 50))
    for (upper, lower), bends in zip(edges, drawn.bends, strict=True):
        rows = range(drawn.layers[upper] + 1, drawn.layers[lower])
        assert drawn.layers[upper] < drawn.layers[lower]
        assert (bends is None) == (len(rows) + 1 > LONGEST_EDGE)
        if bends is not None:
            assert [layer for layer, _ in bends] == list(rows)
            for layer, x in bends:
                boxes.setdefault(layer, []).append((x, x))
    for row in boxes.values():
        assert all(right < left for (_, right), (left, _) in pairwise(sorted(row)))
        assert all(left >= -0.1 and right <= drawn.width + 0.1 for left, right in row)


def test_a_chain_is_a_straight_line() -> None:
    drawn = draw([100.0] * 9, list(pairwise(range(9))))
    assert drawn.layers == tuple(range(9))
    assert len(set(drawn.x)) == 1


def test_sources_are_near_their_readers() -> None:
    chain = [(0, 1), (1, 2), (2, 3), (4, 3)]
    assert layered(5, chain) == [0, 1, 2, 3, 2]


def test_shortcuts_go_around_what_they_pass() -> None:
    """Blocks with a shortcut each: the blocks stay one below the other."""
    edges = [*pairwise(range(61)), *((n, n + 3) for n in range(0, 58, 3))]
    drawn = draw([200.0] * 61, edges)
    assert max(drawn.x) - min(drawn.x) < 200


def test_a_long_edge_is_not_routed() -> None:
    last = LONGEST_EDGE + 1
    drawn = draw([100.0] * (last + 1), [*pairwise(range(last + 1)), (0, last)])
    assert drawn.bends[-1] is None
    assert set(drawn.bends[:-1]) == {()}


def test_nothing_is_drawn_of_nothing() -> None:
    assert draw([], []).width == 0
