"""Which steps are side by side: where a fork pays by estimate, and never against what steps need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.core.target import TargetFacts
from compiler.graph.branches import Branches
from compiler.render.launch import Launch
from compiler.stages.branches import Work, possible_branches
from compiler.targets import get_target
from tests.unit.graph.test_branches import NEEDS

H100 = get_target("cuda:sm_90").facts
MICRO = 1e-6
DIAMOND = [0, 0b1, 0b1, 0b110]


def edge(nanoseconds: int) -> TargetFacts:
    return replace(H100, limits=(*H100.limits, ("edge_nanoseconds", nanoseconds)))


def works(*steps: tuple[float, float]) -> list[Work]:
    return [Work(seconds * MICRO, share) for seconds, share in steps]


def test_branches_of_small_launches_are_side_by_side() -> None:
    found = possible_branches(works((1, 0.1), (1, 0.1), (4, 0.2), (1, 0.1)), DIAMOND, H100)
    assert found[0].branches == Branches((0, 0, 1, 1), ((), (), (0,), (1,)))
    # Of 4 launches of 2.2 us and 7 us of work there are three and 6 us one behind the other, an edge between
    # branches to the third one, and what edges cost that are waited for as a whole.
    assert found[0].seconds == pytest.approx((3 * 2.2 + 6 + 1 + 0.25 + 0.25) * MICRO)


@pytest.mark.parametrize("share", [0.6, 1.0])
def test_launches_that_fill_the_device_are_not(share: float) -> None:
    steps = works((1, 0.1), (40, share), (40, share), (1, 0.1))
    assert possible_branches(steps, DIAMOND, H100) == []


def test_edges_that_cost_more_than_a_launch() -> None:
    steps = works((1, 0.1), (1, 0.1), (1, 0.1), (1, 0.1))
    assert possible_branches(steps, DIAMOND, edge(5000)) == []
    assert possible_branches(steps, DIAMOND, edge(200))[0].branches.count == 2


def test_where_edges_are_free_all_are_side_by_side() -> None:
    steps = works((1, 0.9), (3, 0.9), (3, 0.9), (1, 0.9))
    assert possible_branches(steps, DIAMOND, H100) == []
    assert possible_branches(steps, DIAMOND, H100, free=True)[0].branches.count == 2


def test_a_target_without_branches() -> None:
    facts = get_target("opencl-cpu").facts
    steps = works((1, 0.1), (4, 0.1), (4, 0.2), (1, 0.1))
    assert possible_branches(steps, DIAMOND, facts) == []


@settings(max_examples=200, deadline=None)
@given(NEEDS, st.lists(st.tuples(st.floats(0.1, 30), st.floats(0, 1)), min_size=8, max_size=8), st.booleans())
def test_any_steps(needs: list[int], drawn: list[tuple[float, float]], free: bool) -> None:
    """What steps need comes before them, waits are of other branches, and no time is won by losing work."""
    steps = works(*drawn[: len(needs)])
    found = possible_branches(steps, needs, H100, free=free)
    for one in found:
        assert one.branches.keep(needs)
        assert one.seconds >= max((step.seconds for step in steps), default=0)
        for number, waits in enumerate(one.branches.waits):
            assert all(one.branches.of[step] != one.branches.of[number] and step < number for step in waits)
    seconds = [one.seconds for one in found]
    assert seconds == sorted(seconds)


def test_the_work_of_a_launch() -> None:
    """66 blocks of what would take all units 10 us at their peak: half of them, at half of the peak."""
    few = Launch("k", (66, 1, 1), (128, 1, 1), 0, ())
    flops = round(10 * MICRO * H100.peak_flops * 132)
    work = Work.of([few], flops, 0, H100)
    assert work.seconds == pytest.approx(40 * MICRO)
    assert work.share == pytest.approx(10 / 40 / 0.7)
    assert Work.of([few, few], flops, 0, H100).seconds == pytest.approx(42.2 * MICRO)
    many = replace(few, grid=(5280, 1, 1), shared_bytes=100 << 10)
    assert Work.of([many], flops, 0, H100) == Work(pytest.approx(20 * MICRO), 1.0)
    assert Work.of([], 0, 0, H100) == Work(0.0, 0.0)
