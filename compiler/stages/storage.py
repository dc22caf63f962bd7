"""Where every tensor of a model lies: input, output, constants or arena.

Views share the memory of what they view. A view of a model output's memory is that output, so the kernel
that makes it writes to the caller's buffer directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

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


def roots_of(fused: FusedGraph) -> dict[Value, Value]:
    """The tensor whose memory each tensor shares (itself, when it has its own)."""
    roots: dict[Value, Value] = {}
    for source, view in fused.views:
        roots[view] = roots.get(source, source)
    return roots


def plan_storage(fused: FusedGraph, layouts: Mapping[Value, Layout], steps: Sequence[Use]) -> Storage:
    """Give every tensor that a step touches its slot."""
    roots = roots_of(fused)
    graph = fused.graph
    fixed = {value: Slot(Place.INPUT, number, 0) for number, value in enumerate(graph.inputs)}
    for number, value in enumerate(graph.outputs):
        fixed.setdefault(roots.get(value, value), Slot(Place.OUTPUT, number, 0))
    spans: dict[Value, list[int]] = {}
    for number, step in enumerate(steps):
        for value in (*step.reads, *step.writes):
            root = roots.get(value, value)
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
    slots.update({view: slots[root] for view, root in roots.items() if root in slots})
    workspace = tuple(
        tuple(Slot(Place.ARENA, 0, plan.offsets[number, n]) for n in range(len(step.workspace)))
        for number, step in enumerate(steps)
    )
    return Storage(slots, workspace, plan)


def _bytes(value: Value, layouts: Mapping[Value, Layout]) -> int:
    layout = layouts.get(value)
    size = layout.size if layout else value.type.size
    return (size * value.type.dtype.bits + 7) // 8
