"""Branches of steps: conflicts keep their order, waits say no more than they have to, memory is apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.graph.branches import (
    Branches,
    Touch,
    dependencies,
    latest,
    longest_chain,
    members,
    one_branch,
)
from compiler.graph.memory import Lifetime, align, alive_together, plan_memory
from tests.support.branching import any_branches

STEPS = st.lists(
    st.lists(
        st.builds(
            lambda memory, begin, size, writes: Touch(memory, begin, begin + size, writes),
            st.sampled_from("ab"),
            st.integers(0, 6),
            st.integers(1, 3),
            st.booleans(),
        ),
        max_size=3,
    ),
    max_size=7,
)
NEEDS = st.lists(st.integers(0, 2**9 - 1), max_size=8).map(
    lambda found: [bits & ((1 << number) - 1) for number, bits in enumerate(found)]
)


def touched(step: list[Touch], *, writes: bool) -> set[tuple[object, int]]:
    return {(one.memory, at) for one in step if one.writes >= writes for at in range(one.begin, one.end)}


def extensions(branches: Branches) -> Iterator[list[int]]:
    """All orders that branches and waits allow, by their definition."""
    steps = range(len(branches.of))

    def grown(order: list[int]) -> Iterator[list[int]]:
        if len(order) == len(steps):
            yield order
        for step in steps:
            own = [one for one in range(step) if branches.of[one] == branches.of[step]]
            if step not in order and all(one in order for one in (*own, *branches.waits[step])):
                yield from grown([*order, step])

    return grown([])


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_steps_that_touch_the_same_bytes_are_in_order(steps: list[list[Touch]]) -> None:
    """Byte by byte: two steps, one of which writes what the other reads or writes."""
    needs = dependencies(steps)
    for one, other in combinations(range(len(steps)), 2):
        conflict = touched(steps[one], writes=True) & touched(steps[other], writes=False)
        conflict |= touched(steps[one], writes=False) & touched(steps[other], writes=True)
        assert bool(needs[other] >> one & 1) == bool(conflict)
    assert all(need < 1 << number for number, need in enumerate(needs))


@settings(max_examples=100, deadline=None)
@given(NEEDS, st.integers(1, 3), st.integers())
def test_every_order_of_branches_keeps_what_steps_need(needs: list[int], count: int, seed: int) -> None:
    branches = any_branches(needs[:6], count, random.Random(seed))
    assert branches.keep(needs[:6])
    before = branches.before()
    together = [set(range(len(before))) for _ in before]
    for order in extensions(branches):
        for number, step in enumerate(order):
            assert all(one in order[:number] for one in members(needs[step]))
            together[step] &= {*order[:number]}
    assert together == [{*members(bits)} for bits in before]  # exactly what comes before in all orders


def test_an_order_that_loses_a_wait_is_found_out() -> None:
    needs = [0, 1, 1, 0b110]
    whole = Branches((0, 1, 0, 0), ((), (0,), (), (1,)))
    assert whole.keep(needs)
    assert not Branches(whole.of, ((), (0,), (), ())).keep(needs)
    assert not Branches(whole.of, ((), (), (), (1,))).keep(needs)


@settings(max_examples=200, deadline=None)
@given(NEEDS, st.integers(0, 2**8 - 1))
def test_waits_are_reduced(needs: list[int], wanted: int) -> None:
    branches = any_branches(needs, 3, random.Random(0))
    before = branches.before()
    wanted &= (1 << len(needs)) - 1
    kept = latest(wanted, before)
    reached = [before[one] | 1 << one for one in kept]
    assert all(any(bits >> step & 1 for bits in reached) for step in members(wanted))
    assert all(not before[one] >> other & 1 for one in kept for other in kept)


@settings(max_examples=60, deadline=None)
@given(NEEDS, st.integers(1, 3), st.lists(st.integers(1, 2**6 - 1), max_size=8), st.integers())
def test_no_order_has_tensors_of_one_place_alive_at_once(
    needs: list[int], count: int, uses: list[int], seed: int
) -> None:
    branches = any_branches(needs[:6], count, random.Random(seed))
    all_steps = (1 << len(branches.of)) - 1
    uses = [one & all_steps for one in uses if one & all_steps]
    steps = [[*members(one)] for one in uses]
    lives = [Lifetime(number, 64 * (number % 3 + 1), min(one), max(one)) for number, one in enumerate(steps)]
    plan = plan_memory(lives, alive_together(uses, branches))
    for order in extensions(branches):
        turn = {step: number for number, step in enumerate(order)}
        for one, other in combinations(lives, 2):
            times = [[turn[step] for step in steps[int(str(item.key))]] for item in (one, other)]
            apart = max(times[0]) < min(times[1]) or max(times[1]) < min(times[0])
            begin, end = plan.offsets[one.key], plan.offsets[other.key]
            assert apart or begin + align(one.bytes) <= end or end + align(other.bytes) <= begin


@given(st.lists(st.integers(1, 2**8 - 1), min_size=1, max_size=8))
def test_one_branch_is_the_order_of_the_program(uses: list[int]) -> None:
    steps = [[*members(one)] for one in uses]
    lives = [Lifetime(number, 64, min(one), max(one)) for number, one in enumerate(steps)]
    together = alive_together(uses, one_branch(8))
    wanted = [[a.first <= b.last and b.first <= a.last for b in lives] for a in lives]
    np.testing.assert_array_equal(together, wanted)
    assert plan_memory(lives, together) == plan_memory(lives)


def test_tensors_of_two_branches_do_not_share() -> None:
    """Steps 1 and 2 are side by side: by their numbers their workspaces could be one place."""
    fork = Branches((0, 0, 1, 0), ((), (), (0,), (2,)))
    lives = [Lifetime("a", 640, 1, 1), Lifetime("b", 640, 2, 2)]
    assert plan_memory(lives, alive_together([0b10, 0b100], fork)).bytes == 1280
    assert plan_memory(lives).bytes == 640


@pytest.mark.parametrize(
    ("branches", "chain"),
    [
        (one_branch(4), 10),
        (Branches((0, 1, 0, 0), ((), (0,), (), (1,))), 8),
        (Branches((0, 1, 2, 3), ((), (), (), ())), 4),
        (one_branch(0), 0),
    ],
)
def test_the_critical_path(branches: Branches, chain: int) -> None:
    assert longest_chain(branches, [1, 2, 3, 4]) == chain
