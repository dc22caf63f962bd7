"""The graph of a compile as it is drawn: calls of kernels, views, inputs, outputs, tensors between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from compiler import ViewReport
from toolchain.view.layering import Drawing, draw

VertexKind = Literal["input", "step", "view", "output"]
WIDTHS: dict[VertexKind, float] = {"step": 200.0, "view": 120.0, "input": 160.0, "output": 160.0}
"""Of the boxes, in the units of the drawing."""


@dataclass(frozen=True, slots=True)
class Vertex:
    """A box: `ref` is the number of the step or of the operator, or the place among inputs or outputs."""

    kind: VertexKind
    ref: int
    layer: int
    x: float


@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor on its way between two vertices; None is what a library does not tell: the order of calls.

    bends: (layer, x) in the layers between; None where an edge is too long to be drawn whole.
    """

    upper: int
    lower: int
    tensor: int | None
    bends: tuple[tuple[int, float], ...] | None


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """Vertices and edges with their places; how high a layer is the page decides."""

    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    width: float


_Place = tuple[VertexKind, int]


def draw_graph(report: ViewReport) -> GraphDrawing:
    """Draw the graph of a compile; of a library alone its calls one below the other."""
    places = list(_places(report))
    links = list(_links(report, {place: n for n, place in enumerate(places)}))
    drawn = draw([WIDTHS[kind] for kind, _ in places], [(upper, lower) for upper, lower, _ in links])
    return _joined(places, links, drawn)


def _places(report: ViewReport) -> Iterator[_Place]:
    yield from (("input", n) for n, _ in enumerate(report.input_tensors))
    yield from (("step", step.number) for step in report.steps)
    yield from (("view", node.number) for node in report.nodes if not node.steps)
    yield from (("output", n) for n, _ in enumerate(report.output_tensors))


def _links(report: ViewReport, numbers: dict[_Place, int]) -> Iterator[tuple[int, int, int | None]]:
    """From where a tensor comes about to each of its readers; without tensors the order of the calls."""
    if not report.tensors:
        yield from ((n, n + 1, None) for n in range(len(report.steps) - 1))
        return
    makers: dict[int, int] = {}
    for n, tensor in enumerate(report.input_tensors):
        makers[tensor] = numbers["input", n]
    views = [node for node in report.nodes if not node.steps]
    for step in report.steps:
        makers |= dict.fromkeys(step.writes, numbers["step", step.number])
    for node in views:
        makers |= dict.fromkeys(node.writes, numbers["view", node.number])
    readers = [(numbers["step", step.number], step.reads) for step in report.steps]
    readers += [(numbers["view", node.number], node.reads) for node in views]
    readers += [(numbers["output", n], (tensor,)) for n, tensor in enumerate(report.output_tensors)]
    for lower, tensors in readers:
        yield from ((makers[one], lower, one) for one in dict.fromkeys(tensors) if one in makers)


def _joined(places: list[_Place], links: list[tuple[int, int, int | None]], drawn: Drawing) -> GraphDrawing:
    vertices = tuple(
        Vertex(kind, ref, layer, x)
        for (kind, ref), layer, x in zip(places, drawn.layers, drawn.x, strict=True)
    )
    edges = tuple(Edge(*link, bends) for link, bends in zip(links, drawn.bends, strict=True))
    return GraphDrawing(vertices, edges, drawn.width)
