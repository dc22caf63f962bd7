"""compute_root, and where compute_at puts a block: `index=`, `preserve_unit_loops`."""

from __future__ import annotations

from collections import Counter

import pytest

from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.loops.text import parse_func
from compiler.schedule.errors import ScheduleError
from compiler.schedule.schedule import Schedule
from compiler.schedule.trace import Trace
from tests.support.schedules import checked, padded_conv_pool
from tests.unit.schedule.test_random_schedules import Tally, random_schedule


def two_steps() -> Func:
    """y = (2x + 1) * 3, and z = 2x - 1."""
    b = Builder("steps")
    x = b.input("x", (4, 1, 6))
    p = b.compute("p", (4, 1, 6), lambda i, j, k: x[i, j, k] * 2.0)
    q = b.compute("q", (4, 1, 6), lambda i, j, k: p[i, j, k] + 1.0)
    y = b.compute("y", (4, 1, 6), lambda i, j, k: q[i, j, k] * 3.0)
    return b.finish([y, b.compute("z", (4, 1, 6), lambda i, j, k: p[i, j, k] - 1.0)])


# ---------------------------------------------------------------- compute_root


def test_compute_root_undoes_compute_at() -> None:
    before = padded_conv_pool(h=7, w=7, size=3, step=2)
    s = Schedule(before)
    outer, _ = s.split("Z_i1", (None, 2))
    s.compute_at("R", outer)
    s.compute_at("T", outer)
    assert len(s.compute_root("T")) == len(s.block("T").iters)
    s.compute_root("R")
    assert not set(s.loops("R")) & set(s.loops("Z"))
    assert s.block("R").predicate is None
    checked(before, s)


def test_compute_root_after_a_split_that_does_not_come_out_even() -> None:
    before = two_steps()
    s = Schedule(before)
    s.split("p_i2", (None, 4), tail="guard")
    s.compute_at("q", "y_i0")
    assert len(s.compute_root("p")) == 3
    s.compute_root("q")
    checked(before, s)


def test_compute_root_needs_its_inputs_before_the_loops() -> None:
    s = Schedule(padded_conv_pool())
    s.compute_at("R", "Z_i1")
    s.compute_at("T", "R_i1")
    with pytest.raises(ScheduleError, match="T makes what it reads"):
        s.compute_root("R")


def test_compute_root_of_what_another_block_started() -> None:
    b = Builder("sum")
    x = b.input("x", (4, 8))
    c = b.reduce("c", (4,), (8,), lambda i, k: x[i, k])
    s = Schedule(b.finish([b.compute("y", (4,), lambda i: c[i] + 1.0)]))
    s.decompose_reduction("c", "c_r0")
    with pytest.raises(ScheduleError, match="started"):
        s.compute_root("c")


def test_compute_root_in_random_schedules() -> None:
    """Of the blocks of schedules that others were moved in."""
    outcomes: Counter[str] = Counter()
    for number in range(40):
        s = random_schedule(number, Tally())
        for block in s.blocks():
            try:
                s.compute_root(block)
            except ScheduleError as error:
                outcomes[error.why] += 1
            else:
                outcomes["done"] += 1
        checked(s.origin, s)
    assert outcomes["done"] > 40, outcomes


# ---------------------------------------------------------------- index, preserve_unit_loops


def test_unit_loops_are_kept_when_asked() -> None:
    before = two_steps()
    s = Schedule(before)
    assert len(s.compute_at("q", "y_i0")) == 1
    s = Schedule(before)
    assert len(s.compute_at("q", "y_i0", preserve_unit_loops=True)) == 3
    checked(before, s)
    s = Schedule(before)
    assert len(s.reverse_compute_at("z", "p_i0", preserve_unit_loops=True)) == 3
    checked(before, s)


BESIDE = """
func beside(x: f32[8]) -> (y: f32[8], z: f32[8])
  local p: f32[8]
  local q: f32[8]
  for i in 0..8
    block q(vq: spatial 8 = i)
      reads x[vq]
      writes q[vq]
      q[vq] = x[vq] + 1.0
  for j in 0..8
    block p(vp: spatial 8 = j)
      reads x[vp]
      writes p[vp]
      p[vp] = x[vp] * 2.0
    block z(vz: spatial 8 = j)
      reads p[vz]
      writes z[vz]
      z[vz] = p[vz] - 1.0
    block y(vy: spatial 8 = j)
      reads p[vy], q[vy]
      writes y[vy]
      y[vy] = p[vy] * q[vy]
"""


@pytest.mark.parametrize(("index", "wanted"), [(-1, "pzqy"), (-2, "qpzy"), (0, "qpzy"), (1, "pqzy")])
def test_the_place_of_compute_at(index: int, wanted: str) -> None:
    before = parse_func(BESIDE)
    s = Schedule(before)
    s.compute_at("q", "j", index=index)
    assert "".join(s.blocks()) == wanted
    checked(before, s)


BEHIND = """
func behind(x: f32[8]) -> (y: f32[8], z: f32[8])
  local p: f32[8]
  for j in 0..8
    block p(vp: spatial 8 = j)
      reads x[vp]
      writes p[vp]
      p[vp] = x[vp] * 2.0
    block z(vz: spatial 8 = j)
      reads p[vz]
      writes z[vz]
      z[vz] = p[vz] - 1.0
  for i in 0..8
    block y(vy: spatial 8 = i)
      reads p[vy]
      writes y[vy]
      y[vy] = p[vy] * 3.0
"""


@pytest.mark.parametrize(("index", "wanted"), [(-2, "pyz"), (-1, "pzy"), (1, "pyz"), (2, "pzy")])
def test_the_place_of_reverse_compute_at(index: int, wanted: str) -> None:
    before = parse_func(BEHIND)
    s = Schedule(before)
    s.reverse_compute_at("y", "j", index=index)
    assert "".join(s.blocks()) == wanted
    checked(before, s)


def test_a_place_that_is_not_possible() -> None:
    s = Schedule(parse_func(BESIDE))
    with pytest.raises(ScheduleError, match="cannot be statement 3") as caught:
        s.compute_at("q", "j", index=3)
    assert "from 0 to 2" in caught.value.hint


def test_traces_of_before_have_no_places() -> None:
    s = Schedule(parse_func(BESIDE))
    s.compute_at("q", "j")
    assert "index" not in s.trace.to_json()
    s = Schedule(parse_func(BESIDE))
    s.compute_at("q", "j", index=1)
    text = s.trace.to_json()
    assert '"index": 1' in text
    assert Trace.from_json(text) == s.trace
