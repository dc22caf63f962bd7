"""How the threads of a block bring a part of a factor into shared memory.

All threads fetch: neighbours take neighbours, in vectors where they can. With two stages a part takes two
steps, into registers and from there into shared memory, so that a part is under way while the one before is
multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from operator import add

from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import Binary, Buffer, Const, Expr, Load, Select, const
from compiler.loops.queries import extent_of
from compiler.schedule.rules.threads.common import BANKS, THREAD, divisors
from compiler.schedule.rules.threads.tile import BlockTile
from compiler.schedule.schedule import Schedule

_VECTOR = 4
"""Elements of four bytes that a thread reads of a row at once, at most."""

LEAST_BITS = 32
"""An asynchronous copy has 4 bytes at least, and elements may be copied one by one."""


def fetch_coalesced(schedule: Schedule, names: Sequence[str], tile: BlockTile, lanes: int) -> None:
    """Neighbouring threads take neighbouring rows or columns, `lanes` of them at a time."""
    for name in names:
        step, own = schedule.loops(name)[-2:]
        size = extent_of(schedule.loop(own).extent)
        wide = math.gcd(lanes, size)
        along = min(tile.threads, size // wide)
        deep = _deep(tile.threads // along, tile.depth)
        rounds, own_thread, vector = schedule.split(own, (None, along, wide))
        steps, step_thread = schedule.split(step, (-(-tile.depth // deep), deep))
        schedule.reorder(step_thread, own_thread, steps, rounds, vector)
        bind_threads(schedule, (step_thread, own_thread), tile)
        for loop in (steps, rounds):
            schedule.unroll(loop)
        if wide > 1:
            schedule.vectorize(vector)


def _deep(most: int, depth: int) -> int:
    """Rows that threads take side by side: all that they can, but of a window whole lines of equal length.

    A guard would leave it to the last threads to divide and find that there is no such row.
    """
    if depth & (depth - 1) == 0:
        return min(most, depth)
    return max(n for n in divisors(depth) if n <= most)


def fetch_transposed(
    schedule: Schedule, names: Sequence[str], tile: BlockTile, shared: Buffer, *, by_vectors: bool
) -> None:
    """The terms of the sum lie side by side: neighbours take neighbouring terms, and rows are padded.

    Without padding the threads would write to the same bank of shared memory. by_vectors: whether several
    elements of a row are read at a time, which have to lie at multiples of them; then as many terms as that
    leaves banks for are neighbours, a sector of memory.
    """
    for name in names:
        step, own = schedule.loops(name)[-2:]
        size = extent_of(schedule.loop(own).extent)
        along = min(tile.threads, tile.depth)
        if by_vectors:
            along = min(along, max(BANKS // _VECTOR, tile.threads // size))
        deep = min(tile.threads // along, size)
        steps, step_thread = schedule.split(step, (None, along))
        rounds, own_thread = schedule.split(own, (-(-size // deep), deep))
        schedule.reorder(own_thread, step_thread, rounds, steps)
        bind_threads(schedule, (own_thread, step_thread), tile)
        schedule.unroll(rounds)
        schedule.unroll(steps)
    schedule.storage_align(shared.name, len(shared.shape) - 2, BANKS, _VECTOR if by_vectors else 1)


def bind_threads(schedule: Schedule, loops: Sequence[str], tile: BlockTile) -> None:
    """A thread for each iteration; where there are fewer, the last threads have nothing to do."""
    thread = schedule.fuse(*loops)
    if extent_of(schedule.loop(thread).extent) < tile.threads:
        thread = schedule.split(thread, (None, tile.threads))[1]
    schedule.bind(thread, THREAD)


def is_plain(factor: Expr, least: int = LEAST_BITS) -> bool:
    """Whether a factor is what memory holds, or a constant where a condition does not hold.

    least: bits of an element.
    """
    if isinstance(factor, Select):
        return isinstance(factor.b, Const) and is_plain(factor.a, least)
    return isinstance(factor, Load) and factor.buffer.dtype.bits >= least


def by_k_iterations(
    schedule: Schedule, buffer: Buffer, batches: int, tile: BlockTile, *, terms_last: bool = False
) -> None:
    """Let the first dimension of a staged factor (behind batches) count the rounds; two take waves.

    terms_last: terms of the sum are its last dimension, not the one before.
    """
    shape = [extent_of(extent) for extent in buffer.shape]
    axes, at = AXES[: len(shape)], len(shape) - (1 if terms_last else 2)
    step, outer = -(-shape[at] // tile.depth), range(len(shape) - 3, batches - 1, -1)
    number = [axes[at] // tile.depth] if step > 1 or not outer else []
    for dim in outer:
        number.insert(0, Binary("mul", axes[dim], const(step)))
        step *= shape[dim]
    own = [axis % tile.depth if axis == axes[at] else axis for axis in axes[-2:]]
    schedule.transform_layout(
        buffer.name, IndexMap.of(len(axes), [*axes[:batches], reduce(add, number), *own])
    )
