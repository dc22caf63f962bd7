"""A drawing of a directed graph in layers: each edge leads downwards, few cross, most are nearly straight.

Longest-path layers, orders by barycentres, positions by weighted least squares layer by layer: the method of
Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system structures", 1981) with
isotonic regression for the last step, where vertices keep their order and their distance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LONGEST_EDGE = 24
"""Layers; an edge over more of them is not routed, as one that passes a hundred kernels tells nothing."""

_ORDER_SWEEPS = 8
_PLACE_SWEEPS = 12
_GAP = 24.0
_BEND_WIDTH = 12.0
_BEND_WEIGHT = 0.1
"""How much less than a vertex a bend insists on its place, and draws others: blocks lie below each other."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where vertices and edges lie: layers downwards from 0, x of centres, `bends` of each edge on its way.

    An edge that is too long has None in place of its bends: (layer, x), layer by layer.
    """

    layers: tuple[int, ...]
    x: tuple[float, ...]
    bends: tuple[tuple[tuple[int, float], ...] | None, ...]
    width: float


@dataclass(slots=True)
class _Net:
    """Vertices and the bends between them, each in its layer, with its neighbours above and below."""

    widths: list[float]
    layers: list[int]
    above: list[list[int]] = field(default_factory=list)
    below: list[list[int]] = field(default_factory=list)

    def add_bend(self, layer: int) -> int:
        self.widths.append(_BEND_WIDTH)
        self.layers.append(layer)
        self.above.append([])
        self.below.append([])
        return len(self.layers) - 1

    def connect(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def draw(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Drawing:
    """Draw vertices of these widths with edges between them, which must not lead in circles."""
    layers = layered(len(widths), edges)
    net = _Net(list(widths), list(layers), [[] for _ in widths], [[] for _ in widths])
    chains = [_routed(net, edge) for edge in edges]
    order = _ordered(net)
    x = _placed(net, order, len(widths))
    left = min((x[n] - net.widths[n] / 2 for n in range(len(x))), default=0.0)
    right = max((x[n] + net.widths[n] / 2 for n in range(len(x))), default=0.0)
    bends = tuple(
        None if chain is None else tuple((net.layers[n], round(x[n] - left, 1)) for n in chain)
        for chain in chains
    )
    placed = tuple(round(one - left, 1) for one in x[: len(widths)])
    return Drawing(tuple(layers), placed, bends, round(right - left, 1))


def layered(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The layer of each vertex: below all that it depends on, and no higher than its first reader needs."""
    below: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for upper, lower in edges:
        below[upper].append(lower)
        waiting[lower] += 1
    layers = [0] * count
    sources = [vertex for vertex in range(count) if not waiting[vertex]]
    ready = list(sources)
    for vertex in ready:  # grows meanwhile
        for lower in below[vertex]:
            layers[lower] = max(layers[lower], layers[vertex] + 1)
            waiting[lower] -= 1
            if not waiting[lower]:
                ready.append(lower)
    for vertex in sources:
        if below[vertex]:
            layers[vertex] = min(layers[lower] for lower in below[vertex]) - 1
    return layers


def _routed(net: _Net, edge: tuple[int, int]) -> list[int] | None:
    """The bends of an edge, one in each layer between its ends; None where it is too long."""
    upper, lower = edge
    if net.layers[lower] - net.layers[upper] > LONGEST_EDGE:
        return None
    chain: list[int] = []
    for layer in range(net.layers[upper] + 1, net.layers[lower]):
        chain.append(net.add_bend(layer))
        net.connect(chain[-2] if len(chain) > 1 else upper, chain[-1])
    net.connect(chain[-1] if chain else upper, lower)
    return chain


def _ordered(net: _Net) -> list[list[int]]:
    """The vertices of each layer from left to right, each near the middle of its neighbours."""
    rows: list[list[int]] = [[] for _ in range(max(net.layers, default=-1) + 1)]
    for vertex, layer in enumerate(net.layers):
        rows[layer].append(vertex)
    place = {vertex: float(n) for row in rows for n, vertex in enumerate(row)}
    for sweep in range(_ORDER_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = net.above if downwards else net.below
        for row in rows if downwards else reversed(rows):
            wanted = {one: _mean([place[n] for n in neighbours[one]], place[one]) for one in row}
            row.sort(key=wanted.__getitem__)
            place.update((vertex, n - (len(row) - 1) / 2) for n, vertex in enumerate(row))
    return rows


def _placed(net: _Net, rows: Sequence[Sequence[int]], vertices: int) -> list[float]:
    """The x of all vertices and bends: near their neighbours, in order, without overlaps."""
    x = [0.0] * len(net.layers)
    weights = [1.0 if n < vertices else _BEND_WEIGHT for n in range(len(x))]
    for sweep in range(_PLACE_SWEEPS):
        downwards = sweep % 2 == 0
        neighbours = net.above if downwards else net.below
        for row in rows if downwards else reversed(rows):
            wanted = {one: _pulled(one, neighbours[one], x, vertices) for one in row}
            _place_row(row, wanted, net.widths, weights, x)
    return x


def _place_row(
    row: Sequence[int],
    wanted: Mapping[int, float],
    widths: Sequence[float],
    weights: Sequence[float],
    x: list[float],
) -> None:
    """Set the x of one layer: least squares from what is wanted, by pooling neighbours that would overlap."""
    offsets: list[float] = []
    at = 0.0
    for n, vertex in enumerate(row):
        at += 0.0 if n == 0 else (widths[row[n - 1]] + widths[vertex]) / 2 + _GAP
        offsets.append(at)
    pools: list[tuple[float, float, int]] = []  # (weight, mean of what is wanted less the offset, vertices)
    for vertex, offset in zip(row, offsets, strict=True):
        weight, mean, count = weights[vertex], wanted[vertex] - offset, 1
        while pools and pools[-1][1] >= mean:
            other, its_mean, its_count = pools.pop()
            mean = (mean * weight + its_mean * other) / (weight + other)
            weight, count = weight + other, count + its_count
        pools.append((weight, mean, count))
    means = [mean for _, mean, count in pools for _ in range(count)]
    for vertex, offset, mean in zip(row, offsets, means, strict=True):
        x[vertex] = mean + offset


def _pulled(one: int, neighbours: Sequence[int], x: Sequence[float], vertices: int) -> float:
    """Where neighbours draw a vertex or a bend."""
    if one >= vertices or all(n >= vertices for n in neighbours):
        return _mean([x[n] for n in neighbours], x[one])
    pulls = [(1.0 if n < vertices else _BEND_WEIGHT, x[n]) for n in neighbours]
    return sum(pull * at for pull, at in pulls) / sum(pull for pull, _ in pulls)


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
