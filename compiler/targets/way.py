"""The way of one sub-group through a device function: how often it executes each block.

Loops and conditions of our kernels depend on constants and on a thread's position alone, so they can be
followed without any data: of the instructions those are carried out that a branch depends on. Where lanes
disagree, what comes next in the text is executed; where it is not known whether a loop goes on, it does not,
and the way is no longer certain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from compiler.targets.lanes import Get, Step, Value, Values, all_lanes, any_lane, wavefronts
from compiler.targets.machine_code import Flow, MachineFunction, MachineInstruction, Unit

_MOST_BLOCKS = 100_000
_WHOLE_VISITS = 2
"""How often all instructions of a block are carried out: places in shared memory are taken from them."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What the instructions of a set do to values.

    taken: of which lanes a branch is taken, or which leave. address: where a lane reads or writes. merges: as
    in `wavefronts`.
    """

    step: Callable[[MachineInstruction], Step]
    taken: Callable[[MachineInstruction], Get]
    address: Callable[[MachineInstruction], Get]
    merges: bool


@dataclass(frozen=True, slots=True)
class Way:
    """How often each block is executed, by number; certain: no condition on the way was unknown.

    passes: through shared memory, of instructions (their text) whose places are known, at their first visits.
    idle: how often an access of global memory (its identity) finds no lane for which its guard holds.
    """

    counts: Mapping[int, int]
    certain: bool
    passes: Mapping[str, int]
    idle: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A block: what it does as a whole, what of it branches depend on, what is unknown afterwards."""

    whole: tuple[tuple[MachineInstruction, Step], ...]
    needed: tuple[tuple[MachineInstruction, Step], ...]
    lost: tuple[str, ...]
    last: MachineInstruction
    taken: Get


def follow(
    function: MachineFunction,
    meaning: Meaning,
    start: Mapping[str, Value],
    expected: AbstractSet[int] = frozenset(),
) -> Way:
    """The way of a sub-group whose registers begin with `start`.

    expected: blocks in which what is next may depend on data: it is what comes next in the text.
    """
    plans = _plans(function, meaning)
    address = {
        one.text: meaning.address(one)
        for block in function.blocks
        for one in block.instructions
        if one.unit is Unit.SHARED
    }
    guards = {
        id(one): meaning.taken(one) for block in function.blocks for one in block.instructions if _guard(one)
    }
    values: Values = dict(start)
    counts: Counter[int] = Counter()
    idle: Counter[int] = Counter()
    passes: dict[str, int] = {}
    certain, number = True, 0
    back = {(number, loop.head) for loop in function.loops for number in loop.blocks}
    for _ in range(_MOST_BLOCKS):
        plan = plans[number]
        first = counts[number] < _WHOLE_VISITS
        for one, step in plan.whole if first else plan.needed:
            if first and one.unit is Unit.SHARED and one.text not in passes:
                found = _passes(one, address[one.text](values), meaning)
                passes |= {one.text: found} if found is not None else {}
            if id(one) in guards and any_lane(guards[id(one)](values)) is False:
                idle[id(one)] += 1
            values.update(step(values))
        if not first:
            values.update(dict.fromkeys(plan.lost))
        counts[number] += 1
        after, sure = _after(function, number, plan, values, back, counts[number])
        certain = certain and (sure or number in expected)
        if after is None:
            return Way(dict(counts), certain, passes, dict(idle))
        number = after
    return Way(dict(counts), certain=False, passes=passes, idle=dict(idle))


def _passes(one: MachineInstruction, addresses: Value, meaning: Meaning) -> int | None:
    found = wavefronts(addresses, one.lane_bytes // one.places, merges=meaning.merges)
    return None if found is None else found * one.places


def _after(
    function: MachineFunction,
    number: int,
    plan: _Plan,
    values: Values,
    back: AbstractSet[tuple[int, int]],
    visits: int,
) -> tuple[int | None, bool]:
    """The next block, None at the end; and whether that is certain."""
    goals = function.blocks[number].next
    if plan.last.flow is Flow.END or not goals:
        return None, True
    if plan.last.flow is not Flow.BRANCH:
        return goals[0], True
    taken = plan.taken(values)
    if not plan.last.goal:  # lanes leave
        return (None, True) if all_lanes(taken) else (goals[0], taken is not None)
    if len(goals) < 2:
        return goals[0], True
    again = (number, goals[1]) in back
    if taken is None:
        return _unknown(function, number, visits)
    return goals[1] if (any_lane(taken) if again else all_lanes(taken)) else goals[0], True


def _unknown(function: MachineFunction, number: int, visits: int) -> tuple[int, bool]:
    """The next block where a condition is not known: out of a loop, once its rest was executed."""
    on, other = function.blocks[number].next[:2]
    around = [loop for loop in function.loops if number in loop.blocks]
    loop = min(around, key=lambda one: len(one.blocks), default=None)
    if loop is None or (on in loop.blocks) == (other in loop.blocks):
        return on, loop is None or on in loop.blocks
    stay, leave = (on, other) if on in loop.blocks else (other, on)
    return leave if stay == loop.head or visits > 1 else stay, False


def _plans(function: MachineFunction, meaning: Meaning) -> list[_Plan]:
    needed = _needed(function)
    plans = []
    for block in function.blocks:
        steps = tuple((one, meaning.step(one)) for one in block.instructions)
        kept = tuple((one, step) for one, step in steps if needed.intersection(one.defines) or _guard(one))
        lost = {name for one in block.instructions for name in one.defines} - needed
        last = block.instructions[-1]
        plans.append(_Plan(steps, kept, tuple(sorted(lost)), last, meaning.taken(last)))
    return plans


def _needed(function: MachineFunction) -> frozenset[str]:
    """Registers that branches and guards of accesses depend on, whoever writes them."""
    every_one = [one for block in function.blocks for one in block.instructions]
    found = {name for one in every_one if one.flow is Flow.BRANCH for name in one.uses}
    found |= {guard for one in every_one if (guard := _guard(one))}
    while True:
        more = {
            name
            for one in every_one
            if one.unit not in _NO_INTEGERS and found.intersection(one.defines)
            for name in one.uses
        } - found
        if not more:
            return frozenset(found)
        found |= more


def _guard(one: MachineInstruction) -> str:
    """The predicate by which lanes take part in an access of global memory; empty where all of them do."""
    found = _GUARD.match(one.text) if one.unit is Unit.GLOBAL else None
    return found[1] if found else ""


_GUARD = re.compile(r"@!?(U?P\d+)\b")
_NO_INTEGERS = frozenset(
    {Unit.FMA, Unit.F64, Unit.MATRIX, Unit.GLOBAL, Unit.SHARED, Unit.SHUFFLE, Unit.CONSTANT}
)
"""Units whose results are not known, whatever they read."""
