"""Conversions: copies of tensors whose layout is decided elsewhere, so that kernels may work on another one.

Inputs and outputs of the model, and tensors that are viewed in another shape, are row-major. An operator on
channels that reads or writes such a tensor directly has to gather or scatter lanes, and Winograd's
algorithm does not do that at all. With a copy in between it works on blocks; the copy is a kernel that does
nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from compiler.graph.alias import Alias, find_aliases, is_in_place
from compiler.graph.attrs import Attrs
from compiler.graph.choose_layouts import LayoutCosts, choose_layouts, layout_choices
from compiler.graph.fuse import FusedGraph, Group, fuse
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import Kind
from compiler.graph.ops.movement import COPY
from compiler.loops.layout import Layout

Copies = Mapping[Value, Value]
"""For a tensor whose layout is fixed, the tensor that kernels read or write in its place."""


@dataclass(frozen=True)
class LaidOut:
    """Groups of operators, and how each tensor lies in memory.

    in_place: whether parts of concatenations are written to their place.
    """

    fused: FusedGraph
    layouts: Mapping[Value, Layout]
    in_place: bool = True

    @cached_property
    def aliases(self) -> dict[Value, Alias]:
        """The tensors that lie inside others."""
        return find_aliases(self.fused, self.layouts) if self.in_place else {}

    @cached_property
    def roots(self) -> dict[Value, Alias]:
        """The memory of each tensor without its own: views and parts of concatenations, seen through."""
        producers = self.fused.graph.producers
        inside = {view: Alias(source, _begin(producers[view])) for source, view in self.fused.views}
        inside |= self.aliases
        return {value: _outermost(value, inside) for value in inside}

    def elements(self, value: Value) -> int:
        """How many a tensor holds as it lies in memory."""
        layout = self.layouts.get(value)
        return layout.size if layout else value.type.size

    def elements_apart(self, value: Value, alignment: int) -> int:
        """From the begin of one sample of a free batch to that of the next, in multiples of so many bytes."""
        whole = max(8 * alignment // value.type.dtype.bits, 1)
        return -(-self.elements(value) // whole) * whole

    @property
    def computed(self) -> list[Group]:
        """The groups that are kernels, in order: all but concatenations whose parts are in place already."""
        return [group for group in self.fused.groups if not is_in_place(group, self.aliases)]


def _begin(view: Node) -> int:
    """Bytes of its operand's memory before a view."""
    return view.op.begin(view.info) * view.output.type.dtype.bits // 8


def _outermost(value: Value, inside: Mapping[Value, Alias]) -> Alias:
    offset = 0
    while value in inside:
        value, offset = inside[value].parent, offset + inside[value].offset
    return Alias(value, offset)


def lay_out(
    fused: FusedGraph, costs: LayoutCosts, *, blocks: bool = True, conversions: bool = True
) -> LaidOut:
    """The graph with the conversions that pay, and the cheapest layout of every tensor.

    Every conversion that might pay is tried; those whose two sides get the same layout are left out again, as
    are copies without memory, which readers compute by index arithmetic. Without `blocks` everything is
    row-major; without `conversions` there are no copies.
    """
    if not blocks or (costs.lanes < 2 and not costs.channels_last):  # channels are not side by side anywhere
        choices = layout_choices(fused, costs)
        return LaidOut(fused, {value: found[0] for value, found in choices.items()})
    copies = possible_copies(fused) if conversions else {}
    tried = _with_copies(fused, copies)
    layouts = choose_layouts(tried, costs, copies.items())
    real = ((value, copy) for value, copy in copies.items() if copy in layouts)
    wanted = {value: copy for value, copy in real if layouts[value] != layouts[copy]}
    dropped = {copies[value] for value in copies.keys() - wanted.keys()}
    if not dropped:
        return LaidOut(tried, layouts)
    kept = {value: layout for value, layout in layouts.items() if value not in dropped}
    return LaidOut(_with_copies(fused, wanted), kept)


def possible_copies(fused: FusedGraph) -> dict[Value, Value]:
    """A copy of each fixed image that an operator on channels reads or writes."""
    first = fused.graph.next_id
    anchored = [group for group in fused.groups if group.anchor is not None and group.anchor.op.channels]
    touched = {value for group in anchored for value in (*group.inputs, *group.outputs)}
    images = [v for v in fused.fixed if v in touched and v.type.rank >= 3 and math.prod(v.type.shape[2:]) > 1]
    return {value: Value(first + n, value.type, value.name) for n, value in enumerate(images)}


def insert_copies(graph: Graph, copies: Copies) -> Graph:
    """The graph with copies: operators compute with them, views and the caller see the tensors themselves."""
    nodes: list[Node] = []
    made: set[Value] = set()
    for item in graph.nodes:
        if item.op.kind is Kind.VIEW:
            nodes.append(item)
            continue
        for value in dict.fromkeys(item.inputs):
            if value in copies and value not in made:  # an input of the model, or a view
                made.add(value)
                nodes.append(_copy(value, copies[value]))
        nodes.append(_moved(item, copies))
        for value in item.outputs:
            if value in copies:
                made.add(value)
                nodes.append(_copy(copies[value], value))
    return graph.replace(nodes=nodes)


def _with_copies(fused: FusedGraph, copies: Copies) -> FusedGraph:
    return fuse(insert_copies(fused.graph, copies), fused.options) if copies else fused


def _copy(source: Value, target: Value) -> Node:
    return Node(COPY, (source,), (target,), Attrs())


def _moved(item: Node, copies: Copies) -> Node:
    if copies.keys().isdisjoint((*item.inputs, *item.outputs)):
        return item
    inputs, outputs = (tuple(copies.get(v, v) for v in values) for values in (item.inputs, item.outputs))
    return Node(item.op, inputs, outputs, item.attrs, item.origin)
