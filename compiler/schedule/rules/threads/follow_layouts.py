"""Threads follow each other as results lie in memory: blocks iterate in the order of what they write.

A result that is stored channels-last is written by a block that still goes through channels first. Rules take
the last iteration of a block for that whose neighbours lie side by side, so iterations, and the buffers
between blocks, take the order of the result first.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.loops.index_map import IndexMap
from compiler.loops.ir import CONSTANT, Var
from compiler.loops.queries import extent_of
from compiler.schedule.layout_changes import layouts_of
from compiler.schedule.program import Access, Site
from compiler.schedule.rules.common import lone_dim, plainly_indexed
from compiler.schedule.schedule import Schedule


def follow_layouts(schedule: Schedule) -> None:
    """Let blocks iterate in the order of the results that are stored in another order than theirs."""
    params = {buffer.name for buffer in schedule.func.params}
    for name in reversed(schedule.blocks()):
        site = schedule.site(name)
        if site.is_store and site.target in params and layouts_of(schedule.func, site.target):
            _follow(schedule, name)


def _follow(schedule: Schedule, name: str) -> None:
    """Reorder a block by what it writes, then what it reads element by element by the block."""
    site = schedule.site(name)
    order = _order(site, site.store)
    if order is None:
        return
    if order != sorted(order):
        rank = len(site.spatial)
        rest = range(rank, len(site.block.iters))
        schedule.attempt(_iterate, name, (*order, *rest))
    _repack(schedule, name)
    site = schedule.site(name)
    for load in dict.fromkeys(access.buffer.name for access in site.loads):
        writers = schedule.program.writers(load)
        if len(writers) != 1 or not writers[0].is_store:  # a parameter, or made in parts
            continue
        reads = [access for access in site.loads if access.buffer.name == load]
        _reorder_buffer(schedule, site, reads)
        _follow(schedule, writers[0].name)


def _iterate(schedule: Schedule, name: str, order: Sequence[int]) -> None:
    schedule.transform_block_layout(name, IndexMap.identity(len(order)).reordered(order))


def _repack(schedule: Schedule, name: str) -> None:
    """Weights of single channels (depthwise) lie as the channels do that they are read for."""
    site = schedule.site(name)
    last = site.spatial[-1].var if site.spatial else None
    shared = [access for access in site.loads if access.buffer.scope != CONSTANT]
    if last is None or not site.reduce or not all(last.name in access.uses for access in shared):
        return
    for access in site.loads:
        dim = lone_dim(access, last)
        if access.buffer.scope == CONSTANT and plainly_indexed(access) and dim is not None:
            rank = len(access.indices)
            order = [*(n for n in range(rank) if n != dim), dim]
            if order != sorted(order):
                schedule.transform_layout(access.buffer.name, IndexMap.identity(rank).reordered(order))


def _reorder_buffer(schedule: Schedule, site: Site, reads: Sequence[Access]) -> None:
    """Store a buffer between blocks in the order in which its reader goes through it."""
    if len(reads) != 1:
        return
    places = {item.var: number for number, item in enumerate(site.spatial)}
    indices = reads[0].indices
    along = {
        dim: places[index] for dim, index in enumerate(indices) if isinstance(index, Var) and index in places
    }
    if len(set(along.values())) < len(along):
        return
    fixed = [dim for dim in range(len(indices)) if dim not in along]
    if any(extent_of(reads[0].buffer.shape[dim]) > 1 for dim in fixed):
        return
    order = _with_units(sorted(along, key=along.__getitem__), fixed)
    if order != sorted(order):
        schedule.transform_layout(reads[0].buffer.name, IndexMap.identity(len(indices)).reordered(order))


def _order(site: Site, access: Access) -> list[int] | None:
    """The numbers of the spatial iterations in the order of the dimensions that they index."""
    numbers = {item.var: number for number, item in enumerate(site.spatial)}
    found = [numbers.get(index) for index in access.indices if isinstance(index, Var)]
    used = [number for number in found if number is not None]
    left = [n for n, item in enumerate(site.spatial) if n not in used]
    if len(set(used)) < len(used) or any(extent_of(site.spatial[n].extent) > 1 for n in left):
        return None
    return _with_units(used, left)


def _with_units(used: list[int], left: list[int]) -> list[int]:
    """Iterations of extent 1 stay as near to their place as they can."""
    order = list(used)
    for number in left:
        order.insert(min(number, len(order)), number)
    return order
