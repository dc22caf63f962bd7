"""The interpreter: threads that share memory, sub-groups, barriers, copies in flight, atomics."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.loops.interp import ProgramError, interpret
from compiler.loops.text import parse_func
from compiler.loops.verify import problems_of
from tests.unit.loops.test_interp import go

THREADS = """
func f(x: f32[8]) -> (y: f32[8])
  for b in 0..2 bound(blockIdx.x)
    for t in 0..4 bound(threadIdx.x)
      alloc s: f32[4] @shared
      s[t] = x[b * 4 + t]
      barrier shared
      y[b * 4 + t] = s[3 - t]
"""


def test_shared_memory_is_seen_after_the_barrier() -> None:
    x = np.arange(8, dtype=np.float32)
    assert go(THREADS, x=x)["y"].tolist() == [3, 2, 1, 0, 7, 6, 5, 4]


def test_what_the_other_threads_have_not_written_yet_is_poison() -> None:
    write, barrier = "      s[t] = x[b * 4 + t]\n", "      barrier shared\n"
    early = THREADS.replace(write + barrier, barrier + write)
    assert np.isnan(go(early, x=np.arange(8, dtype=np.float32))["y"]).any()


@pytest.mark.parametrize(
    "body",
    [
        "if t < 2\n        barrier shared\n      y[t] = 1.0",
        "if t < 2\n        barrier shared\n      else\n        barrier shared\n      y[t] = 1.0",
        "for k in 0..t\n        barrier shared\n      y[t] = 1.0",
        "if t < 2\n        y[t] = subgroup_add(1.0)",
        "if t < 2\n        y[t] = subgroup_add(1.0)\n      else\n        y[t] = subgroup_max(1.0)",
        "if t < 2\n        y[t] = subgroup_add(1.0)\n      else\n        barrier shared",
    ],
)
def test_divergent_barriers_are_refused(body: str) -> None:
    loops = "  for b in 0..1 bound(blockIdx.x)\n    for t in 0..4 bound(threadIdx.x)\n"
    text = f"func f() -> (y: f32[4])\n{loops}      {body}\n"
    with pytest.raises(ProgramError, match="only some of the threads"):
        go(text)


def test_sibling_thread_loops_run_one_after_the_other() -> None:
    text = """
func f(x: f32[2, 4]) -> (y: f32[2, 4])
  for ty in 0..2 bound(threadIdx.y)
    alloc s: f32[2, 4] @shared
    for t0 in 0..4 bound(threadIdx.x)
      s[ty, t0] = x[ty, t0]
    barrier shared
    for t1 in 0..4 bound(threadIdx.x)
      barrier shared
      y[ty, t1] = s[1 - ty, 3 - t1]
"""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(go(text, x=x)["y"], x[::-1, ::-1])


def test_subgroups() -> None:
    text = """
func f(x: f32[2, 8]) -> (up: f32[16], xor: f32[16], total: f32[16])
  for ty in 0..2 bound(threadIdx.y)
    for tx in 0..8 bound(threadIdx.x)
      let at: i64 = ty * 8 + tx
      up[at] = subgroup_shuffle_up(x[ty, tx], 1)
      xor[at] = subgroup_shuffle_xor(x[ty, tx], 2)
      total[at] = subgroup_add(x[ty, tx])
"""
    x = np.arange(16, dtype=np.float32)
    got = interpret(parse_func(text), {"x": x.reshape(2, 8)}, subgroup=4)
    assert got["up"].tolist() == [0, 0, 1, 2, 4, 4, 5, 6, 8, 8, 9, 10, 12, 12, 13, 14]
    assert got["xor"].tolist() == [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13]
    assert got["total"].tolist() == [6.0] * 4 + [22.0] * 4 + [38.0] * 4 + [54.0] * 4


def test_subgroup_operations_need_threads() -> None:
    with pytest.raises(ProgramError, match="works on a sub-group"):
        go("func f() -> (y: f32[1])\n  y[0] = subgroup_add(1.0)\n")


# ---------------------------------------------------------------- asynchronous copies

COPY = """
func f(x: f32[8]) -> (early: f32[1], y: f32[8])
  local s: f32[2, 4]
  async_copy s[0, 0 +: 4] <- x[0 +: 4]
  async_commit
  async_copy s[1, 0 +: 4] <- x[4 +: 4]
  async_commit
  async_wait pending 1
  early[0] = s[1, 0]
  for i in 0..4
    y[i] = s[0, i]
  async_wait pending 0
  for j in 0..4
    y[j + 4] = s[1, j]
"""


def test_copies_arrive_at_the_wait_and_are_poison_before() -> None:
    got = go(COPY, x=np.arange(8, dtype=np.float32))
    assert got["y"].tolist() == list(range(8))
    assert np.isnan(got["early"][0])


def test_a_copy_whose_condition_does_not_hold_reads_nothing_and_fills_with_zeros() -> None:
    """It begins behind the end of what it would read; zeros arrive when copies do."""
    text = COPY.replace("<- x[4 +: 4]", "<- x[6 +: 4] where x[0] > 0.0")
    got = go(text, x=np.arange(8, dtype=np.float32))
    assert got["y"].tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    assert np.isnan(got["early"][0])


@pytest.mark.parametrize("missing", ["  async_wait pending 0\n", "  async_commit\n"])
def test_a_forgotten_commit_or_wait_shows(missing: str) -> None:
    assert np.isnan(go(COPY.replace(missing, ""), x=np.arange(8, dtype=np.float32))["y"]).any()


def test_the_source_of_a_copy_in_flight_stays_as_it_is() -> None:
    text = COPY.replace("x: f32[8]) -> (", "z: f32[1]) -> (x: f32[8], ").replace(
        "  async_wait pending 1\n", "  x[5] = 1.0\n  async_wait pending 1\n"
    )
    with pytest.raises(ProgramError, match="overwritten while an asynchronous copy read it"):
        go(text, z=np.zeros(1, np.float32), x=np.zeros(8, np.float32))


def test_copies_keep_their_size() -> None:
    with pytest.raises(ProgramError, match="changes size"):
        go(COPY.replace("x[0 +: 4]", "x[0 +: 3]"), x=np.arange(8, dtype=np.float32))
    with pytest.raises(ProgramError, match="out of bounds"):
        go(COPY.replace("x[4 +: 4]", "x[5 +: 4]"), x=np.arange(8, dtype=np.float32))


@pytest.mark.parametrize(
    ("old", "new", "race"),
    [
        ("", "", False),
        ("      barrier shared\n", "", True),
        ("s[3 - t]", "s[3 - t]\n      s[t] = 0.0", True),
        ("s[3 - t]", "s[3 - t]\n      barrier shared\n      s[t] = 0.0", False),
        ("y[b * 4 + t] =", "y[t] =", True),
        ("s[t] = x[b * 4 + t]", "s[t] = x[t]", False),
    ],
)
def test_races_of_threads_are_found(old: str, new: str, race: bool) -> None:
    func = parse_func(THREADS.replace(old, new))
    inputs = {"x": np.arange(8, dtype=np.float32)}
    if not race:
        interpret(func, inputs, races=True)
        return
    with pytest.raises(ProgramError, match=r"parallel (threads|iterations) use the same element"):
        interpret(func, inputs, races=True)


CLUSTER = """
func f(x: f32[2, 4]) -> (y: f32[4])
  for b in 0..1 bound(blockIdx.x)
    alloc parts: f32[2, 4] @cluster
    for r in 0..2 bound(blockRank)
      alloc s: f32[4] @shared
      for t in 0..4 bound(threadIdx.x)
        s[t] = x[r, t]
        barrier shared
        parts[r, t] = s[3 - t]
        barrier cluster
        if t < 2
          y[r * 2 + t] = parts[0, r * 2 + t] + parts[1, r * 2 + t]
"""


def test_blocks_of_a_cluster_see_what_others_left_in_their_memory() -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    assert go(CLUSTER, x=x)["y"].tolist() == [10, 8, 6, 4]
    interpret(parse_func(CLUSTER), {"x": x}, races=True)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("barrier cluster", "barrier shared", "parallel blocks use the same element of `parts`"),
        ("        barrier shared\n", "", "parallel threads use the same element of `s`"),
        ("parts[r, t] = s", "parts[0, t] = s", "parallel blocks use the same element of `parts`"),
        ("s[3 - t]\n        b", "s[3 - t]\n        if r < 1\n          b", "parallel blocks use"),
    ],
)
def test_races_and_barriers_of_clusters(old: str, new: str, found: str) -> None:
    func = parse_func(CLUSTER.replace(old, new))
    with pytest.raises(ProgramError, match=found):
        interpret(func, {"x": np.zeros((2, 4), np.float32)}, races=True)


@pytest.mark.parametrize(("rank", "good"), [("r", True), ("0", False), ("1 - r", False)])
def test_blocks_of_a_cluster_write_their_own_part(rank: str, good: bool) -> None:
    found = problems_of(parse_func(CLUSTER.replace("parts[r, t] = s", f"parts[{rank}, t] = s")), "lowered")
    assert any("into another block's part of `parts`" in item for item in found) != good, found


@pytest.mark.parametrize("cond", ["r < 1", "t < 1", "r + t < 2"])
def test_barriers_that_only_some_of_a_cluster_reach_are_refused(cond: str) -> None:
    with pytest.raises(ProgramError, match="only some of the threads"):
        go(
            CLUSTER.replace("barrier cluster", f"if {cond}\n          barrier cluster"),
            x=np.zeros((2, 4), np.float32),
        )


def test_atomics_by_address() -> None:
    text = """
func f(x: i32[8]) -> (y: i32[2])
  y[0] = 0:i32
  y[1] = 100:i32
  for i in 0..8 parallel
    atomic_add:i32(&y[0], x[i])
    eval atomic_min:i32(&y[1], x[i])
"""
    assert go(text, x=np.arange(5, 13, dtype=np.int32))["y"].tolist() == [68, 5]
