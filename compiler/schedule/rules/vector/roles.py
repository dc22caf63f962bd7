"""Which axis of a reduction block does what: lanes, rows, lines; and the sizes that its tile depends on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.loops.ir import CONSTANT, Binary, Iter, Var
from compiler.loops.queries import extent_of, iterations, static_shape, variables
from compiler.schedule.program import Access, Site
from compiler.schedule.rules.common import blocked_group, group_sizes, is_lane_of, plainly_indexed
from compiler.schedule.rules.vector.register_tile import ContractionProblem


@dataclass(frozen=True, slots=True)
class Roles:
    """Which spatial axis of a reduction block does what.

    lane: the spatial axis spread over vector lanes; row: the spatial axis tiled in registers beside it
    (None: none); line: the spatial axis whose steps are rows of the same kind, one after the other (None:
    none); packed: the constant operand that is repacked (None: none); group: size of the channel groups
    along the lane axis that read different inputs, 0 when there is one group.
    """

    lane: Iter
    row: Iter | None
    line: Iter | None
    packed: Access | None
    group: int = 0


def find_roles(facts: Site) -> Roles | None:
    """Recognise a contraction; None when no axis can be spread over lanes."""
    spatial = facts.spatial
    constants = [load for load in facts.loads if load.buffer.scope == CONSTANT and plainly_indexed(load)]
    others = [load for load in facts.loads if load not in constants]
    packed = constants[0] if len(constants) == 1 else None
    lane = _lane_axis(spatial, packed, others)
    if lane is None:
        return None
    shared = [load for load in others if not _varies(load, lane.var.name)]
    indices = [index for load in shared for index in load.indices]
    sizes = {size for index in indices for size in group_sizes(index, lane.var)}
    touched = [item for item in (*others, facts.store) if item.indices]
    sizes |= {size for item in touched if (size := blocked_group(item.indices[-1], lane.var.name))}
    if len(sizes) > 1:
        return None
    rows = [
        item
        for item in spatial
        if item is not lane and extent_of(item.extent) > 1 and _is_row(item, packed, facts.loads, lane)
    ]
    row = rows[-1] if rows else None
    line = rows[-2] if len(rows) > 1 and packed is not None else None
    return Roles(lane, row, line, packed, sizes.pop() if sizes else 0)


def _lane_axis(spatial: tuple[Iter, ...], packed: Access | None, others: list[Access]) -> Iter | None:
    if packed is not None:
        own = [item for item in spatial if item.var.name in packed.uses]
        free = [item for item in own if extent_of(item.extent) > 1]
        free = [item for item in free if not any(_varies(load, item.var.name) for load in others)]
        if free:
            return max(free, key=lambda item: extent_of(item.extent))
    for item in reversed(spatial):
        touching = [load for load in others if item.var.name in load.uses]
        beside = touching and all(_adjacent(load, item.var.name) for load in touching)
        if beside and extent_of(item.extent) > 1:
            return item
    return None


def _varies(load: Access, name: str) -> bool:
    """Whether neighbours along `name` read different elements (a whole group of channels reads the same)."""
    return any(_tells(index, Var(name)) for index in load.indices)


def _tells(index: IRNode, var: Var) -> bool:
    """Whether an index uses a variable otherwise than as `var // size`."""
    if isinstance(index, Binary) and index.op == "floordiv" and index.a == var:
        return False
    return index == var or any(_tells(child, var) for child in index.children())


def _adjacent(load: Access, name: str) -> bool:
    """Whether neighbours along `name` are neighbours in memory (lanes of a blocked layout, or stride 1)."""
    last = load.indices[-1]
    if any(name in variables(index) for index in load.indices[:-1]):
        return is_lane_of(last, name)
    return last == Var(name) or is_lane_of(last, name)


def _is_row(item: Iter, packed: Access | None, loads: tuple[Access, ...], lane: Iter) -> bool:
    """Rows share the operand that the lanes are read from."""
    if packed is not None:
        return item.var.name not in packed.uses
    shared = [load for load in loads if lane.var.name in load.uses]
    others = [load for load in loads if lane.var.name not in load.uses]
    if not others:  # pooling: any axis will do
        return True
    return all(item.var.name not in load.uses for load in shared)


def problem_of(block: Site, roles: Roles, facts: TargetFacts, stride: int = 0) -> ContractionProblem:
    """The sizes of a contraction; `stride` as the problem has it."""
    lanes = facts.lanes(block.store.buffer.dtype.bits)
    lane, row, line = roles.lane, roles.row, roles.line
    used = {item.var.name for item in (lane, row, line) if item is not None}
    packed = roles.packed
    return ContractionProblem(
        vectors=-(-extent_of(lane.extent) // lanes),
        rows=extent_of(row.extent) if row else 1,
        steps=iterations(block.reduce),
        outer=iterations(item for item in block.spatial if item.var.name not in used),
        broadcast=any(not _varies(load, lane.var.name) for load in block.loads),
        packed_bytes=math.prod(static_shape(packed.buffer)) * 4 if packed else 0,
        lines=extent_of(line.extent) if line else 1,
        stride=stride,
        row_stride=_row_stride(block, roles),
        row_bytes=_row_bytes(block, roles, facts.l1.line),
        remainder=True,
    )


def _row_stride(block: Site, roles: Roles) -> int:
    """Bytes from the operand of one row to that of the next one, where lanes share it."""
    row, lane = roles.row, roles.lane.var.name
    loads = [load for load in block.loads if row is not None and lane not in load.uses]
    steps = [(block.stride(load, row.var.name) or 0) * load.buffer.dtype.bytes for load in loads if row]
    return max(map(abs, steps), default=0)


def _row_bytes(block: Site, roles: Roles, line: int) -> int:
    """Bytes that are read of operands which lanes share, in whole lines of the cache.

    What lies along the last dimension is taken as neighbours; a dimension whose index takes few values, as
    that of every second pixel, is not read as a whole.
    """
    extents = {item.var.name: extent_of(item.extent) for item in block.block.iters}
    total = 0
    for load in block.loads:
        if load is roles.packed or roles.lane.var.name in load.uses:
            continue
        *dims, last = static_shape(load.buffer) or (1,)
        read = 1
        for index, extent in zip(load.indices, dims, strict=False):
            read *= min(extent, math.prod(extents[name] for name in variables(index) if name in extents))
        run = last * load.buffer.dtype.bytes
        total += min(read * -(-run // line) * line, math.prod(dims) * run)
    return total
