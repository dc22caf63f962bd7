"""Whether each iteration of a loop makes all that it reads of a buffer of its own, step after step.

Pipelines fill a buffer in one step of a loop and read it in a later one, after a few steps in front of the
loop. No box of one block holds what another one reads, so the steps are gone through one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.loops.ir import Block, Buffer, Const, Expr, For, ForKind, Region, Var, all_of, const
from compiler.loops.linear import conjuncts
from compiler.loops.queries import int_of
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.program import Program, inner_loops, reads_itself
from compiler.schedule.regions import Inner, Span, box, covers, is_dense, limits_of

_MOST_STEPS = 1024
"""Steps of a loop beyond which nobody looks."""

Step = Mapping[str, Expr]


def finds_its_own(
    program: Program, loop: For, buffer: Buffer, below: Sequence[Block], known: Simplifier
) -> bool:
    """Whether blocks below a loop read of a buffer what the same iteration has written before, no more.

    It is enough where each iteration of all loops around them does, of which boxes are simpler: a swizzle
    leaves holes in what all blocks of threads write together.
    """
    name = buffer.name
    users = [item for item in below if _uses(item.reads, name) or _uses(item.writes, name)]
    if not users:
        return True
    nested = _around_all(program, loop, users)
    return any(_find_theirs(program, one, name, users, known) for one in (nested[0], *nested[1:][-1:]))


def _around_all(program: Program, loop: For, users: Sequence[Block]) -> list[For]:
    """The loops around all of some blocks, from a loop inwards."""
    first, *others = (program.loops_around(block.name) for block in users)
    return [item for item in first[first.index(loop) :] if all(item in one for one in others)]


def _find_theirs(program: Program, loop: For, name: str, users: Sequence[Block], known: Simplifier) -> bool:
    """Whether blocks read of a buffer what they have written before in the same iteration of a loop."""
    made: list[list[Span]] = []
    for block, step in _in_order(program, loop, users):
        if _never(block, step, known):
            continue
        for region in _read(block, name):
            used = _box(program, block, region, loop, step, known)
            if not any(covers(one, used, known) for one in made):
                return False
        for region in (item for item in block.writes if item.buffer.name == name):
            found = _whole(program, block, region, loop, step, known)
            made += [found] if found is not None and found not in made else []
    return True


def _read(block: Block, name: str) -> list[Region]:
    """What a block reads of a buffer; a sum that goes on reads what it writes."""
    again = block.writes if reads_itself(block, name) else ()
    return [item for item in (*block.reads, *again) if item.buffer.name == name]


def _uses(regions: Sequence[Region], name: str) -> bool:
    return any(item.buffer.name == name for item in regions)


def _in_order(program: Program, loop: For, users: Sequence[Block]) -> Iterator[tuple[Block, Step]]:
    """The blocks as they run in an iteration, once for each step of the loop that several of them share."""
    shared = _shared_loop(program, loop, users)
    inside = [block for block in users if shared is not None and shared in program.loops_around(block.name)]
    if shared is None or not inside:
        yield from ((block, {}) for block in users)
        return
    first, last = users.index(inside[0]), users.index(inside[-1])
    yield from ((block, {}) for block in users[:first])
    for number in range(int_of(shared.extent) or 0):
        yield from ((block, {shared.var.name: const(number)}) for block in inside)
    yield from ((block, {}) for block in users[last + 1 :])


def _shared_loop(program: Program, loop: For, users: Sequence[Block]) -> For | None:
    """The outermost serial loop below `loop` around several blocks, if there is one of few steps."""
    for item in inner_loops(loop):
        around = [block for block in users if item in program.loops_around(block.name)]
        if item.kind is ForKind.SERIAL and len(around) > 1:
            return item if 0 < (int_of(item.extent) or 0) <= _MOST_STEPS else None
    return None


def _never(block: Block, step: Step, known: Simplifier) -> bool:
    """Whether the condition of a block says that it does not run in a step."""
    if block.predicate is None:
        return False
    asked = known.simplify(substitute(block.predicate, step))
    return isinstance(asked, Const) and not asked.value


def _whole(
    program: Program, block: Block, region: Region, loop: For, step: Step, known: Simplifier
) -> list[Span] | None:
    """The box that a block surely fills in a step; None where it has holes, or may not be filled."""
    values = _values(block, step)
    inner = _limited(block, region, _inner(program, block, loop, step), step, known)
    if inner is None or not is_dense(region, values, inner, known):
        return None
    found = box(region, values, inner, known)
    spans = [span for span in found if span is not None]
    return spans if len(spans) == len(found) else None


def _limited(block: Block, region: Region, inner: Inner, step: Step, known: Simplifier) -> Inner | None:
    """The loops as far as the condition of a block lets them run; None where it says something else.

    That what it writes lies within the buffer says nothing: nobody reads beyond.
    """
    if block.predicate is None:
        return inner
    asked = known.simplify(substitute(block.predicate, step))
    if isinstance(asked, Const):
        return inner
    within = _within(block, region, step, known)
    parts = [part for part in conjuncts(asked) if part not in within]
    limited = limits_of(all_of(*parts), inner.extents, known)
    understood = all(limits_of(part, inner.extents, known) != inner for part in parts)
    return limited if understood else None


def _within(block: Block, region: Region, step: Step, known: Simplifier) -> list[Expr]:
    """That each index of a region, where it is an iteration, lies below the extent of the buffer."""
    values = _values(block, step)
    pairs = zip(region.begin, region.buffer.shape, strict=True)
    own = [values[index.name].lt(size) for index, size in pairs if isinstance(index, Var)]
    return [known.simplify(item) for item in own]


def _box(
    program: Program, block: Block, region: Region, loop: For, step: Step, known: Simplifier
) -> list[Span | None]:
    """What a block touches at most in a step, as far as its condition lets it run."""
    inner = _inner(program, block, loop, step)
    if block.predicate is not None:
        inner = limits_of(known.simplify(substitute(block.predicate, step)), inner.extents, known)
    return box(region, _values(block, step), inner, known)


def _values(block: Block, step: Step) -> dict[str, Expr]:
    return {item.var.name: substitute(item.binding, step) for item in block.iters}


def _inner(program: Program, block: Block, loop: For, step: Step) -> Inner:
    """The loops around a block inside of `loop`, but those whose step is given."""
    around = program.loops_around(block.name)
    first = [item.var.name for item in around].index(loop.var.name) + 1
    moving = [item for item in around[first:] if item.var.name not in step]
    return Inner({item.var.name: int_of(item.extent) or 1 << 30 for item in moving})
