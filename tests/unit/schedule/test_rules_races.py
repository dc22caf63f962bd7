"""Loops over channel groups that two tensors pad differently: parallel is allowed only where nothing races.

The interpreter watches memory while the loop runs, so what it says is exact.
"""

from __future__ import annotations

import contextlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.loops.build import Builder
from compiler.loops.index_map import IndexMap
from compiler.loops.interp import interpret
from compiler.loops.ir import Func
from compiler.loops.layout import lanes_last
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule


def doubled(channels: int, width: int) -> Func:
    b = Builder("double")
    x = b.input("x", (channels, width))
    return b.finish([b.compute("y", (channels, width), lambda c, w: x[c, w] * 2.0)])


def grouped(channels: int, outer: int, inner: int, lanes: int) -> Schedule:
    """The result in blocks of lanes for each group of `inner` channels, iterated by groups of `outer`."""
    s = Schedule(doubled(channels, 3))
    s.transform_layout("y", IndexMap.identity(2).split(0, inner))
    s.transform_layout("y", lanes_last(3, 1, lanes))
    s.transform_block_layout("y", IndexMap.identity(2).split(0, outer))
    s.transform_block_layout("y", lanes_last(3, 1, lanes))
    return s


def allowed(s: Schedule) -> list[str]:
    """The loops that may run in parallel; each of them is run."""
    found = []
    for loop in s.loops("y"):
        candidate = s.copy()
        with contextlib.suppress(ScheduleError):
            candidate.parallel(loop)
            x = np.arange(np.prod([int(e.value) for e in s.func.params[0].shape]), dtype=np.float32)
            interpret(candidate.func, {"x": x.reshape(-1, 3)}, races=True)
            found.append(loop)
    return found


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 3),
    st.sampled_from((2, 3, 5, 7, 10)),
    st.sampled_from((1, 2, 3)),
    st.sampled_from((2, 4, 8)),
    st.data(),
)
def test_no_loop_that_is_allowed_races(
    groups: int, size: int, times: int, lanes: int, data: st.DataObject
) -> None:
    channels = groups * size * times * 2
    s = grouped(channels, size * times, size, lanes)
    loops = list(s.loops("y"))
    for loop in data.draw(st.lists(st.sampled_from(loops), max_size=2, unique=True)):
        s.split(loop, (None, data.draw(st.sampled_from((2, 3, 4)))), tail="guard")
    order = data.draw(st.permutations(s.loops("y")))
    with contextlib.suppress(ScheduleError):
        s.reorder(*order)
    at = data.draw(st.integers(0, len(order) - 2))
    with contextlib.suppress(ScheduleError):
        s.fuse(*s.loops("y")[at : at + 2])
    allowed(s)


def test_groups_and_blocks_of_them_may_run_in_parallel() -> None:
    """Also where the padding of the two does not agree."""
    for channels, outer, inner in ((20, 10, 10), (20, 10, 5), (18, 9, 9), (18, 18, 6)):
        s = grouped(channels, outer, inner, 4)
        group, block, lane, width = s.loops("y")
        assert {group, block, width} <= set(allowed(s)), (channels, outer, inner, lane)
        fused = s.fuse(group, block)
        assert fused in allowed(s)


def test_groups_that_do_not_fit_each_other_are_still_right() -> None:
    s = grouped(30, 15, 10, 4)
    allowed(s)
