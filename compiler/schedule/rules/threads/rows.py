"""The rule for rows: a block of threads makes everything about one row, from its sums to its last element.

    blockIdx.x (rows)
      threadIdx.x: part[thread] = sum over every n-th element             for each sum in order
      fewer[sub-group] = sum of part[...], by shuffles                    where one sub-group is not enough
      total = sum of fewer[...]                                           by every thread for itself
      threadIdx.x: output[...] = f(total, ...)                            along the row

Softmax and normalisations are of this kind, and any long sum with what follows it. Where one sub-group is
enough for a row, a block has several rows, and nothing passes through shared memory. Without shuffles `part`
lies there, and a few threads make `fewer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.annotations import LANES
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import CONSTANT, REGISTER, SHARED, Binary, Const, Load, Var
from compiler.loops.queries import extent_of, iterations, variables
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.errors import ScheduleError
from compiler.schedule.rules.common import fuse_all
from compiler.schedule.rules.threads.common import (
    BLOCK,
    THREAD,
    most_threads,
    shuffled,
    units,
)
from compiler.schedule.schedule import Schedule

_FEW_PER_UNIT = 256
"""With fewer rows than so many per unit, threads share the work of one even where rows lie side by side."""

_LONG = 64
"""Shorter sums are done by one thread."""

_FEW = 16
"""Parts that every thread adds up by itself in the end."""

_BUSY_THREADS = 512
"""Threads of a unit that keep enough loads in flight."""

_TERMS = 64
"""Elements of a row that a thread takes before more threads share it."""


def block_reduction(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a function of sums over rows and one block that reads them; False when it is none."""
    blocks = list(schedule.program.blocks.values())
    sums, last = [item.name for item in blocks if item.is_reduction], blocks[-1]
    if len(sums) < 2 or len(sums) != len(blocks) - 1 or last.is_reduction:
        return False
    if not all(is_long(schedule, name, facts) for name in sums):
        return False
    return schedule.attempt(_in_registers, sums, last.name, facts, chooser)


def _in_registers(
    schedule: Schedule, sums: Sequence[str], last: str, facts: TargetFacts, chooser: Chooser
) -> None:
    for name in sums:
        schedule.set_scope(schedule.site(name).target, REGISTER)
    fuse_reductions(schedule, sums, last, facts, chooser)


def is_long(schedule: Schedule, name: str, facts: TargetFacts) -> bool:
    """Whether a block of threads should share each of the sums of a block."""
    site = schedule.site(name)
    if iterations(site.reduce) < (shuffled(facts) or _LONG):
        return False
    if iterations(site.spatial) <= _FEW_PER_UNIT * units(facts):
        return True
    inner = {item.var for item in site.reduce}
    return any(isinstance(n, Load) and n.indices and n.indices[-1] in inner for n in site.block.body.walk())


def take_result(schedule: Schedule, name: str, *, follow: bool) -> str:
    """Let a sum grow in a register; gives the block that reads it: its only consumer, or a copy."""
    total = schedule.site(name).target
    after = schedule.program.readers(total)
    alone = len(after) == 1 and not after[0].block.is_reduction
    if follow and alone and total not in schedule.program.outputs:
        schedule.set_scope(total, REGISTER)
        return after[0].name
    return schedule.cache_write(name, total, REGISTER)


def parts_of(schedule: Schedule, name: str) -> tuple[list[str], list[str]]:
    """The spatial loops of a reduction that no rule has touched, and its reduce loops."""
    loops = list(schedule.loops(name))
    count = len(schedule.site(name).spatial)
    return loops[:count], loops[count:]


# ---------------------------------------------------------------- the rule


@dataclass(frozen=True, slots=True)
class _Team:
    """Threads that share a row, rows of a block, and lanes that combine by shuffles: 0 where none do."""

    threads: int
    rows: int
    lanes: int

    @property
    def value(self) -> tuple[int, ...]:
        """The team as a decision."""
        return (self.threads, self.rows)


def fuse_reductions(
    schedule: Schedule, sums: Sequence[str], last: str, facts: TargetFacts, chooser: Chooser
) -> None:
    """Put sums, each read by later ones or by `last` alone, under the rows of `last`."""
    numbered = _are_numbered(schedule, sums, last)
    row, rest = _split_rows(schedule, sums, last)
    along = extent_of(schedule.loop(rest).extent)
    lengths = [iterations(schedule.site(name).reduce) for name in sums]
    count = extent_of(schedule.loop(row).extent)
    numbered = numbered and all(iterations(schedule.site(name).spatial) == count for name in sums)
    guess = _team(count, along, lengths, facts, numbered=numbered)
    others = _other_teams(guess, count, along, lengths, facts, numbered=numbered)
    options = [Option(guess.value, 0.0), *(Option(team.value, 1.0) for team in others)]
    threads, each = chooser.choose(f"{sums[0]}.team", options) if others else guess.value
    team = _Team(threads, each, guess.lanes)
    for name in sums:
        _repack(schedule, name)
        if team.rows > 1:
            _number_rows(schedule, name)
    made = {name: _rfactor(schedule, name, team) for name in sums}
    inside = ""
    if team.rows > 1:
        row, inside = schedule.split(row, (None, team.rows))
    for name in reversed(sums):
        schedule.compute_at(name, row)
        for part in reversed(made[name]):
            _place_part(schedule, part, row, team)
        if team.lanes == team.threads:
            _combine(schedule, name, row, team)
        else:
            schedule.decompose_reduction(name, schedule.loops(name)[-1])
    _spread(schedule, inside, rest, team)
    schedule.bind(row, BLOCK)


def _team(rows: int, along: int, lengths: Sequence[int], facts: TargetFacts, *, numbered: bool) -> _Team:
    """How threads share rows of a last block with `along` elements in each, and sums of `lengths`."""
    lanes, most, longest = shuffled(facts), most_threads(facts), max(along, *lengths)
    if not lanes or max(lanes, 2) > min(most, *lengths):
        return _Team(_threads_along(longest, facts), 1, 0)
    threads = lanes
    while 2 * threads <= min(most, *lengths):
        if rows * threads >= _BUSY_THREADS * units(facts) and longest <= _TERMS * threads:
            break
        threads *= 2
    each = 1
    while numbered and threads == lanes and 2 * each * threads <= most and rows % (2 * each) == 0:
        if rows // (2 * each) < 2 * units(facts):
            break
        each *= 2
    return _Team(threads, each, lanes)


def _other_teams(
    guess: _Team, rows: int, along: int, lengths: Sequence[int], facts: TargetFacts, *, numbered: bool
) -> list[_Team]:
    """Other numbers of threads for a row, and of rows for a sub-group, that the rule can write."""
    most, longest = most_threads(facts), max(along, *lengths)
    sizes = [2**n for n in range(1, most.bit_length()) if 2**n <= min(most, longest)]
    if not guess.lanes:
        return [_Team(size, 1, 0) for size in sizes if size != guess.threads]
    sizes = [size for size in sizes if guess.lanes <= size <= min(lengths)]
    teams = [_Team(size, 1, guess.lanes) for size in sizes]
    several = [n for n in (2, 4, 8, 16) if n * guess.lanes <= most and rows % n == 0]
    teams += [_Team(guess.lanes, each, guess.lanes) for each in several if numbered]
    return [team for team in teams if team != guess]


def _are_numbered(schedule: Schedule, sums: Sequence[str], last: str) -> bool:
    """Whether all blocks go through the rows in the same order, so that one number says which row it is.

    A row whose place in the result is quotient and remainder (pixels by im2col) is not told by its number.
    """
    totals = {schedule.site(name).target for name in sums}
    written = (part for index in schedule.site(last).store.indices for part in index.walk())
    if any(isinstance(part, Binary) and part.op in {"floordiv", "floormod"} for part in written):
        return False
    for name in (*sums, last):
        block = schedule.site(name)
        order = [item.var for item in block.spatial]
        used = [load.indices for load in block.loads if load.buffer.name in totals]
        if name != last:
            used.append(block.store.indices)
        for indices in used:
            places = [order.index(index) for index in indices if isinstance(index, Var) and index in order]
            plain = all(isinstance(index, Var | Const) for index in indices)
            if not plain or places != sorted(set(places)):
                return False
    return True


def _number_rows(schedule: Schedule, name: str) -> None:
    """Let a sum, and its result, run over the number of the row."""
    block = schedule.site(name)
    rank, spatial = len(block.block.iters), len(block.spatial)
    extents = [extent_of(item.extent) for item in block.spatial]
    schedule.transform_block_layout(name, IndexMap.identity(rank).fuse(0, extents))
    schedule.transform_layout(block.target, IndexMap.identity(spatial).fuse(0, extents))


def _split_rows(schedule: Schedule, sums: Sequence[str], last: str) -> tuple[str, str]:
    """Let the last block run over rows, and along them; gives the two loops."""
    block = schedule.site(last)
    totals = {schedule.site(name).target for name in sums}
    used = {index for load in block.loads if load.buffer.name in totals for index in load.indices}
    if not block.spatial or block.reduce:
        raise ScheduleError(f"block {last} has no rows")
    row = [number for number, item in enumerate(block.spatial) if item.var in used]
    rest = [number for number, item in enumerate(block.spatial) if item.var not in used]
    extents = [extent_of(block.spatial[number].extent) for number in (*row, *rest)]
    index_map = IndexMap.identity(len(extents)).reordered([*row, *rest])
    index_map = index_map.fuse(len(row), extents[len(row) :]).fuse(0, extents[: len(row)])
    first, second = schedule.transform_block_layout(last, index_map)
    return first, second


def _repack(schedule: Schedule, name: str) -> None:
    """Constants that a sum reads lie with its terms side by side."""
    block = schedule.site(name)
    inner = {item.var for item in block.reduce}
    for load in block.loads:
        plain = [index for index in load.indices if isinstance(index, Var)]
        if load.buffer.scope != CONSTANT or len(plain) != len(load.indices) or load.indices[-1] in inner:
            continue
        order = sorted(range(len(plain)), key=[index in inner for index in plain].__getitem__)
        schedule.transform_layout(load.buffer.name, IndexMap.identity(len(plain)).reordered(order))


def _threads_along(length: int, facts: TargetFacts) -> int:
    """Threads that share a row of a length: a power of two."""
    threads = most_threads(facts)
    while threads > max(length, 1):
        threads //= 2
    return threads


def _rfactor(schedule: Schedule, name: str, team: _Team) -> list[str]:
    """Make a sum one over parts; gives the blocks that make the parts, in order."""
    if team.lanes:
        return _rfactor_lanes(schedule, name, team)
    made: list[str] = []
    loop = fuse_all(schedule, parts_of(schedule, name)[1])
    for size in (team.threads, _FEW):
        length = extent_of(schedule.loop(loop).extent)
        if (made and length <= 2 * _FEW) or length < 2:
            break
        part = schedule.split(loop, (None, min(size, length)))[1]
        block, buffer = schedule.rfactor(name, part)
        schedule.set_scope(buffer, SHARED)
        made.append(block)
        loop = schedule.loops(name)[-1]
    return made


def _rfactor_lanes(schedule: Schedule, name: str, team: _Team) -> list[str]:
    """A part in the register of each thread; where several sub-groups share a row, one for each of them."""
    loop = fuse_all(schedule, parts_of(schedule, name)[1])
    part, buffer = schedule.rfactor(name, schedule.split(loop, (None, team.threads))[1])
    schedule.set_scope(buffer, REGISTER)
    if team.threads == team.lanes:
        return [part]
    group = schedule.split(schedule.loops(name)[-1], (None, team.lanes))[0]
    fewer, buffer = schedule.rfactor(name, group)
    schedule.set_scope(buffer, SHARED)
    return [part, fewer]


def _place_part(schedule: Schedule, block: str, row: str, team: _Team) -> None:
    """Compute parts of a sum inside `row`, a thread for each."""
    schedule.compute_at(block, row)
    spatial = schedule.site(block).spatial
    inside = schedule.loops(block)[schedule.loops(block).index(row) + 1 :]
    part = next(loop for loop in inside if loop in variables(spatial[-1].binding))
    own = [loop for loop in inside if team.rows > 1 and loop in variables(spatial[0].binding)]
    others = [loop for loop in inside if loop not in (part, *own)]
    schedule.reorder(*own, part, *others)
    count = extent_of(schedule.loop(part).extent)
    if team.lanes and count < team.threads:
        schedule.annotate(part, LANES, team.lanes)
        return
    if count < team.threads:
        part = schedule.split(part, (None, team.threads))[1]
    schedule.bind(fuse_all(schedule, [*own, part]), THREAD)
    if others:
        schedule.decompose_reduction(block, others[0])


def _combine(schedule: Schedule, name: str, row: str, team: _Team) -> None:
    """Let the lanes of a sub-group combine what they have of a row; ScheduleError with loops in the way."""
    inside = schedule.loops(name)[schedule.loops(name).index(row) + 1 :]
    sizes = [(loop, extent_of(schedule.loop(loop).extent)) for loop in inside]
    wide = [(loop, size) for loop, size in sizes if size > 1]
    if [size for _, size in wide] != [size for size in (team.rows, team.lanes) if size > 1]:
        raise ScheduleError(
            f"the rows of block {name} do not follow each other", why="a loop of others is around"
        )
    schedule.annotate(wide[0][0], LANES, team.lanes)


def _spread(schedule: Schedule, inside: str, rest: str, team: _Team) -> None:
    """Give the elements of the rows to the threads, neighbours to neighbours."""
    if not inside and extent_of(schedule.loop(rest).extent) == 1:
        return
    outer, along = schedule.split(rest, (None, team.threads))
    if inside:
        schedule.reorder(inside, along, outer)
        along = schedule.fuse(inside, along)
    schedule.bind(along, THREAD)
