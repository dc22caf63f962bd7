"""Where every tensor of a model lies: input, output, constants or arena.

Views share the memory of what they view, parts of a join lie inside its result. A view of a model output's
memory is that output, so the kernel that makes it writes to the caller's buffer directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from compiler.graph.alias import Alias
from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Value
from compiler.graph.memory import Lifetime, MemoryPlan, plan_memory
from compiler.loops.layout import Layout


class Place(IntEnum):
    """Kinds of memory; the numbers are those of `tk_plan.h`."""

    INPUT = 0
    OUTPUT = 1
    CONST = 2
    ARENA = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in memory: which input or output, or the byte offset in the constants or the arena."""

    place: Place
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Use:
    """One step of the program: the tensors it reads and writes, and bytes of workspace that it needs."""

    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    workspace: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Storage:
    """Slots of tensors, slots of each step's workspaces, and the memory plan that they come from."""

    slots: Mapping[Value, Slot]
    workspace: tuple[tuple[Slot, ...], ...]
    plan: MemoryPlan


@dataclass(frozen=True, slots=True)
class Root:
    """The tensor whose memory another one shares, and the byte offset in it."""

    value: Value
    offset: int


def roots_of(fused: FusedGraph, aliases: Mapping[Value, Alias]) -> dict[Value, Root]:
    """The memory of each tensor that has none of its own."""
    viewed = {view: Root(source, 0) for source, view in fused.views}
    parts = {
        part: Root(alias.parent, alias.offset * part.type.dtype.bits // 8) for part, alias in aliases.items()
    }
    inside = {**viewed, **parts}
    return {value: _outermost(value, inside) for value in inside}


def _outermost(value: Value, inside: Mapping[Value, Root]) -> Root:
    offset = 0
    while value in inside:
        value, offset = inside[value].value, offset + inside[value].offset
    return Root(value, offset)


def plan_storage(
    fused: FusedGraph, layouts: Mapping[Value, Layout], aliases: Mapping[Value, Alias], steps: Sequence[Use]
) -> Storage:
    """Give every tensor that a step touches its slot."""
    roots = roots_of(fused, aliases)
    graph = fused.graph
    fixed = {value: Slot(Place.INPUT, number, 0) for number, value in enumerate(graph.inputs)}
    for number, value in enumerate(graph.outputs):
        fixed.setdefault(roots[value].value if value in roots else value, Slot(Place.OUTPUT, number, 0))
    spans: dict[Value, list[int]] = {}
    for number, step in enumerate(steps):
        for value in (*step.reads, *step.writes):
            root = roots[value].value if value in roots else value
            if root not in fixed and root not in graph.constants:
                spans.setdefault(root, []).append(number)
    lifetimes = [
        Lifetime(root, _bytes(root, layouts), min(numbers), max(numbers)) for root, numbers in spans.items()
    ]
    for number, step in enumerate(steps):
        lifetimes += [Lifetime((number, n), size, number, number) for n, size in enumerate(step.workspace)]
    plan = plan_memory(lifetimes)
    slots = dict(fixed)
    slots.update({root: Slot(Place.ARENA, 0, plan.offsets[root]) for root in spans})
    for value, inside in roots.items():
        if inside.value in slots:
            base = slots[inside.value]
            slots[value] = Slot(base.place, base.index, base.offset + inside.offset)
    workspace = tuple(
        tuple(Slot(Place.ARENA, 0, plan.offsets[number, n]) for n in range(len(step.workspace)))
        for number, step in enumerate(steps)
    )
    return Storage(slots, workspace, plan)


def _bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    layout = layouts.get(value)
    size = layout.size if layout else value.type.size
    return (size * value.type.dtype.bits + 7) // 8
