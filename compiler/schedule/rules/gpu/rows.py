"""The rule for rows: a block of threads makes everything about one row, from its sums to its last element.

    blockIdx.x (rows)
      threadIdx.x: part[thread] = sum over every n-th element             shared, for each sum in order
      threadIdx.x: fewer[thread] = sum of part[...], where there are many
      total = sum of parts                                                by every thread for itself
      threadIdx.x: output[...] = f(total, ...)                            along the row

Softmax and normalisations are of this kind, and any long sum with what follows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

from compiler.core.target import TargetFacts
from compiler.loops.ir import CONSTANT, Load, Var
from compiler.loops.layout import NAMES
from compiler.loops.queries import extent_of, variables
from compiler.schedule.analysis import BlockFacts, block_facts
from compiler.schedule.primitives.base import ScheduleError
from compiler.schedule.rules.common import blocks_by_name, fuse_all, is_output, readers
from compiler.schedule.rules.gpu.common import BLOCK, REGISTER, SHARED, THREAD, most_threads, units
from compiler.schedule.schedule import Schedule

_FEW_PER_UNIT = 256
"""With fewer rows than so many per unit, threads share the work of one even where rows lie side by side."""

_LONG = 64
"""Shorter sums are done by one thread."""

_FEW = 16
"""Parts that every thread adds up by itself in the end."""


def rows(schedule: Schedule, facts: TargetFacts) -> bool:
    """Schedule a function of sums over rows and one block that reads them; False when it is none."""
    blocks = list(blocks_by_name(schedule.func).values())
    sums, last = [item.name for item in blocks if item.is_reduction], blocks[-1]
    if len(sums) < 2 or len(sums) != len(blocks) - 1 or last.is_reduction:
        return False
    if not all(is_long(schedule, name, facts) for name in sums):
        return False
    attempt = schedule.copy()
    with suppress(ScheduleError):
        for name in sums:
            total = facts_of(attempt, name).store.buffer.name
            if is_output(attempt.func, total):
                return False
            attempt.set_scope(total, REGISTER)
        together(attempt, sums, last.name, facts)
        schedule.become(attempt)
        return True
    return False


def is_long(schedule: Schedule, name: str, facts: TargetFacts) -> bool:
    """Whether a block of threads should share each of the sums of a block."""
    block = schedule.block(name)
    results = math.prod(extent_of(item.extent) for item in block.iters if item.kind == "spatial")
    steps = math.prod(extent_of(item.extent) for item in block.iters if item.kind == "reduce")
    if steps < _LONG:
        return False
    if results <= _FEW_PER_UNIT * units(facts):
        return True
    inner = {item.var for item in block.iters if item.kind == "reduce"}
    return any(isinstance(n, Load) and n.indices and n.indices[-1] in inner for n in block.body.walk())


def facts_of(schedule: Schedule, name: str) -> BlockFacts:
    """A block taken apart; ScheduleError when its body is more than one store."""
    found = block_facts(schedule.block(name))
    if found is None:
        raise ScheduleError(f"block {name} does more than one store", why="a rule looks for one result")
    return found


def take_result(schedule: Schedule, name: str, *, follow: bool) -> str:
    """Let a sum grow in a register; gives the block that reads it: its only consumer, or a copy."""
    total = facts_of(schedule, name).store.buffer.name
    after = readers(schedule.func, total)
    if follow and len(after) == 1 and not is_output(schedule.func, total):
        schedule.set_scope(total, REGISTER)
        return after[0]
    return schedule.cache_write(name, total, REGISTER)


def parts_of(schedule: Schedule, name: str) -> tuple[list[str], list[str]]:
    """The spatial loops of a reduction that no rule has touched, and its reduce loops."""
    loops = list(schedule.loops(name))
    count = sum(item.kind == "spatial" for item in schedule.block(name).iters)
    return loops[:count], loops[count:]


# ---------------------------------------------------------------- the rule


def together(schedule: Schedule, sums: Sequence[str], last: str, facts: TargetFacts) -> None:
    """Put sums, each read by later ones or by `last` alone, under the rows of `last`."""
    row, rest = _split_rows(schedule, sums, last)
    longest = extent_of(schedule.loop(rest).extent)
    for name in sums:
        own = [item for item in schedule.block(name).iters if item.kind == "reduce"]
        longest = max(longest, math.prod(extent_of(item.extent) for item in own))
        _repack(schedule, name)
    threads = _threads_along(longest, facts)
    made = {name: _add_up(schedule, name, threads) for name in sums}
    for name in reversed(sums):
        schedule.compute_at(name, row)
        for part in reversed(made[name]):
            _place_part(schedule, part, row, threads)
        schedule.decompose_reduction(name, schedule.loops(name)[-1])
    if extent_of(schedule.loop(rest).extent) > 1:
        schedule.bind(schedule.split(rest, (None, threads))[1], THREAD)
    schedule.bind(row, BLOCK)


def _split_rows(schedule: Schedule, sums: Sequence[str], last: str) -> tuple[str, str]:
    """Let the last block run over rows, and along them; gives the two loops."""
    block = facts_of(schedule, last)
    totals = {facts_of(schedule, name).store.buffer.name for name in sums}
    used = {index for load in block.loads if load.buffer.name in totals for index in load.indices}
    names = NAMES[: len(block.spatial)]
    if not names or block.reduce:
        raise ScheduleError(f"block {last} has no rows")
    pairs = list(zip(names, block.spatial, strict=True))
    texts = []
    for wanted in (True, False):
        own = [(name, extent_of(i.extent)) for name, i in pairs if (i.var in used) == wanted]
        texts.append(_fused([(name, extent) for name, extent in own if extent > 1]))
    row, rest = schedule.transform_block_layout(last, f"{', '.join(names)} -> {', '.join(texts)}")
    return row, rest


def _fused(parts: Sequence[tuple[str, int]]) -> str:
    terms, step = [], 1
    for name, extent in reversed(parts):
        terms.append(f"{name} * {step}" if step > 1 else name)
        step *= extent
    return " + ".join(reversed(terms)) or "0"


def _repack(schedule: Schedule, name: str) -> None:
    """Constants that a sum reads lie with its terms side by side."""
    block = facts_of(schedule, name)
    inner = {item.var for item in block.reduce}
    for load in block.loads:
        plain = [index for index in load.indices if isinstance(index, Var)]
        if load.buffer.scope != CONSTANT or len(plain) != len(load.indices) or load.indices[-1] in inner:
            continue
        names = NAMES[: len(plain)]
        order = sorted(range(len(plain)), key=lambda dim, plain=plain: plain[dim] in inner)  # type: ignore[misc]
        schedule.transform_layout(
            load.buffer.name, f"{', '.join(names)} -> {', '.join(names[dim] for dim in order)}"
        )


def _threads_along(length: int, facts: TargetFacts) -> int:
    """Threads that share a row of a length: a power of two."""
    threads = most_threads(facts)
    while threads > max(length, 1):
        threads //= 2
    return threads


def _add_up(schedule: Schedule, name: str, threads: int) -> list[str]:
    """Make a sum one over parts in shared memory; gives the blocks that make the parts, in order."""
    made: list[str] = []
    loop = fuse_all(schedule, parts_of(schedule, name)[1])
    for size in (threads, _FEW):
        length = extent_of(schedule.loop(loop).extent)
        if (made and length <= 2 * _FEW) or length < 2:
            break
        part = schedule.split(loop, (None, min(size, length)))[1]
        block, buffer = schedule.rfactor(name, part)
        schedule.set_scope(buffer, SHARED)
        made.append(block)
        loop = schedule.loops(name)[-1]
    return made


def _place_part(schedule: Schedule, block: str, row: str, threads: int) -> None:
    """Compute parts of a sum inside `row`, a thread for each."""
    schedule.compute_at(block, row)
    factor = [item for item in schedule.block(block).iters if item.kind == "spatial"][-1]
    inside = schedule.loops(block)[schedule.loops(block).index(row) + 1 :]
    part = next(loop for loop in inside if loop in variables(factor.binding))
    others = [loop for loop in inside if loop != part]
    schedule.reorder(part, *others)
    if extent_of(schedule.loop(part).extent) < threads:
        part = schedule.split(part, (None, threads))[1]
    schedule.bind(part, THREAD)
    if others:
        schedule.decompose_reduction(block, others[0])
