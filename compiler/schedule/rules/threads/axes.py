"""What each iteration of a sum of products does: batches, rows or columns; of which a run has a part only."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from compiler.loops.index_map import AXES, fused
from compiler.loops.ir import OPERANDS, Expr, Func, Iter, Var
from compiler.loops.queries import extent_of, variables
from compiler.loops.simplify import substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Site
from compiler.schedule.rules.common import group_sizes

_SHARES = (4, 32)
"""Of what a run may have, the parts that a tile is chosen for beside the whole."""


@dataclass(frozen=True, slots=True)
class Part:
    """All of iteration `number` of the block, or its group or place in the group; as an index of `AXES`."""

    number: int
    extent: int
    index: Expr


@dataclass(frozen=True, slots=True)
class Axes:
    """The spatial iterations of a block by role, outermost first; `left`: the factor with the rows."""

    batch: tuple[Part, ...]
    rows: tuple[Part, ...]
    columns: tuple[Part, ...]
    left: int

    def extents(self) -> tuple[int, int, int]:
        """Independent sums of products, rows and columns of each."""
        batch, rows, columns = map(extent_of_parts, (self.batch, self.rows, self.columns))
        return batch, rows, columns

    def smaller(self, free: Collection[int]) -> tuple[tuple[int, int, int], ...]:
        """The same of runs that have a part of some iterations, by number."""

        def part(share: int, parts: tuple[Part, ...]) -> tuple[Part, ...]:
            return tuple(
                replace(one, extent=-(-one.extent // share)) if one.number in free else one for one in parts
            )

        if not free:
            return ()
        fewer = (
            replace(self, batch=part(n, self.batch), rows=part(n, self.rows), columns=part(n, self.columns))
            for n in _SHARES
        )
        return tuple(one.extents() for one in fewer)


def find_axes(block: Site) -> Axes | None:
    """What each spatial iteration does; None where the block is no sum of products with reuse."""
    found = factors(block.block)
    spatial = block.spatial
    if found is None or not _stores_each(block):
        return None
    sizes = [_group_of(found, item) for item in spatial]
    if any(size < 0 for size in sizes):
        return None
    roles: dict[frozenset[int], list[Part]] = {}
    last: frozenset[int] = frozenset()
    for number, (item, size) in enumerate(zip(spatial, sizes, strict=True)):
        for part, side in _parts(number, item, size, found):
            if part.extent > 1:
                roles.setdefault(side, []).append(part)
                last = side
    if len(last) != 1:
        return None
    (right,) = last
    batch, columns = roles.pop(frozenset({0, 1}), []), roles.pop(frozenset({right}))
    rows = roles.pop(frozenset({1 - right}), [])
    return None if roles else Axes(tuple(batch), tuple(rows), tuple(columns), 1 - right)


def _stores_each(block: Site) -> bool:
    """Whether the result has an axis for each spatial iteration; at one of extent 1 its index may be 0."""
    pairs = zip(block.store.indices, block.spatial, strict=False)
    same = all(index == item.var or extent_of(item.extent) == 1 for index, item in pairs)
    return same and len(block.store.indices) == len(block.spatial)


def _group_of(found: Sequence[Expr], item: Iter) -> int:
    """The size of the groups that one factor tells apart along an iteration; 0 for none, -1 for several."""
    sizes: set[int] = set()
    for side in found:
        groups = group_sizes(side, item.var)
        sizes |= set(groups)
        if groups and sum(node == item.var for node in side.walk()) > len(groups):
            return -1
    if len(sizes) > 1 or any(extent_of(item.extent) % size for size in sizes):
        return -1
    return sizes.pop() if sizes else 0


def _parts(number: int, item: Iter, size: int, found: Sequence[Expr]) -> list[tuple[Part, frozenset[int]]]:
    """An iteration, or its group and its place in the group, with the factors that use each."""
    axis, extent = AXES[number], extent_of(item.extent)
    users = frozenset(n for n, side in enumerate(found) if item.var.name in variables(side))
    if not size:
        return [(Part(number, extent, axis), users)]
    inside = frozenset(n for n in users if not group_sizes(found[n], item.var))
    return [
        (Part(number, extent // size, axis // size), users),
        (Part(number, size, axis % size), inside),
    ]


def read_by(reader: Site, buffer: str, roles: Sequence[Expr]) -> list[Expr]:
    """What each element of a buffer is for, in terms of the iterations of the block that reads it.

    roles: the same by the axes of the buffer. Raises ScheduleError unless the block reads each element once.
    """
    reads = [load for load in reader.loads if load.buffer.name == buffer]
    if len(reads) != 1:
        raise ScheduleError(f"block {reader.name} does not read the result element by element")
    numbers = {item.var: n for n, item in enumerate(reader.block.iters)}
    places: dict[int, int] = {}
    for dim, (index, extent) in enumerate(zip(reads[0].indices, reads[0].buffer.shape, strict=True)):
        if isinstance(index, Var) and index in numbers:
            places[dim] = numbers[index]
        elif extent_of(extent) != 1:
            raise ScheduleError(f"block {reader.name} reads the result in another order")
    kept = {number for number, item in enumerate(reader.block.iters) if extent_of(item.extent) > 1}
    found = set(places.values())
    if not kept <= found or len(found) < len(places):
        raise ScheduleError(f"block {reader.name} uses an element of the result more than once")
    values: dict[str, Expr] = {AXES[dim].name: AXES[number] for dim, number in places.items()}
    return [substitute(role, values) for role in roles]


def extent_of_parts(parts: Sequence[Part]) -> int:
    """Combinations of parts."""
    return math.prod(part.extent for part in parts)


def number_of(parts: Sequence[Part]) -> Expr:
    """The number of a combination of parts."""
    return fused([(part.index, part.extent) for part in parts])


def free_iterations(func: Func, block: Site) -> frozenset[int]:
    """The numbers of spatial iterations of which a run has a part only, as the function says of operands."""
    rows = {(number, axis) for number, axis, *_ in dict(func.attrs).get(OPERANDS, ())}
    tensors = [item.name for item in func.params if item not in func.workspace]
    ends = {
        load.indices[axis]
        for load in block.loads
        for number, axis in rows
        if load.buffer.name == tensors[number]
    }
    return frozenset(number for number, item in enumerate(block.spatial) if item.var in ends)
