"""Loops over threads become one set of loops per launch, with barriers where threads depend on each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeGuard

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.core.node import rewrite_nodes
from compiler.core.target import TargetFacts
from compiler.loops.interp import interpret
from compiler.loops.ir import SHARED, Alloc, Barrier, For, Func, If, Seq, const, statements
from compiler.loops.text import parse_func
from compiler.loops.verify import verify_func
from compiler.loops.walk import replace_buffers
from compiler.lower.compact_buffers import compact_buffers
from compiler.lower.lower_blocks import lower_blocks
from compiler.lower.merge_threads import merge_threads
from compiler.lower.place_allocations import place_allocations
from compiler.lower.place_shared import place_shared
from compiler.lower.verify_launch import problems_of_launches
from tests.support.gpu import HOPPER, SM_70
from tests.support.kernels import lower_all

TURN = """
func turn(x: f32[64]) -> (y: f32[64])
  local t: f32[64] @shared
  for b in 0..2 bound(blockIdx.x)
    for i in 0..32 bound(threadIdx.x)
      block t(v: spatial 64 = b * 32 + i)
        reads x[v]
        writes t[v]
        t[v] = x[v] * 2.0
    for j in 0..32 bound(threadIdx.x)
      block y(w: spatial 64 = b * 32 + j)
        reads t[READ]
        writes y[w]
        y[w] = t[READ]
"""
BACKWARDS = "w // 32 * 64 + 31 - w"


def barriers(func: Func) -> int:
    return sum(isinstance(item, Barrier) for item in statements(func.body))


def tags(func: Func) -> list[str | None]:
    return [item.tag for item in statements(func.body) if isinstance(item, For) and item.tag]


def check(text: str, facts: TargetFacts = SM_70) -> Func:
    """The lowered program, which computes the same and does not race."""
    func = parse_func(text)
    verify_func(func)
    lowered = lower_all(func, facts)
    source = np.random.default_rng(0)
    inputs = {
        item.name: source.standard_normal([int(n.value) for n in item.shape]).astype(np.float32)
        for item in func.params[: -func.outputs]
    }
    wanted = interpret(func, inputs)
    for name, array in interpret(lowered, inputs, races=True).items():
        np.testing.assert_array_equal(array, wanted[name].reshape(array.shape))
    return lowered


def test_threads_that_read_what_others_wrote_meet_between() -> None:
    lowered = check(TURN.replace("READ", BACKWARDS))
    assert tags(lowered) == ["blockIdx.x", "threadIdx.x"]
    assert barriers(lowered) == 1
    (shared,) = [item.buffer for item in statements(lowered.body) if isinstance(item, Alloc)]
    assert shared.scope == SHARED
    assert int(shared.shape[0].value) == 32, "each block has its own part"


def test_without_the_barrier_the_race_is_seen() -> None:
    lowered = lower_all(parse_func(TURN.replace("READ", BACKWARDS)), SM_70)
    broken = rewrite_nodes(lowered, lambda item: Seq(()) if isinstance(item, Barrier) else None)
    with pytest.raises(Exception, match="same element"):
        interpret(broken, {"x": np.zeros(64, np.float32)}, races=True)


ROUNDS = """
func rounds(x: f32[4, 32]) -> (y: f32[32])
  local t: f32[4, 32] @shared
  local s: f32[32] @register
  for i in 0..32 bound(threadIdx.x)
    block start(v: spatial 32 = i)
      writes s[v]
      s[v] = 0.0
  for k in 0..4
    for i1 in 0..32 bound(threadIdx.x)
      block t(a: spatial 4 = k, v1: spatial 32 = i1)
        reads x[a, v1]
        writes t[a, v1]
        t[a, v1] = x[a, v1]
    for i2 in 0..32 bound(threadIdx.x)
      block s(v2: spatial 32 = i2, r: reduce 4 = k)
        reads t[r, 31 - v2]
        writes s[v2]
        s[v2] += t[r, 31 - v2]
  for i3 in 0..32 bound(threadIdx.x)
    block y(v3: spatial 32 = i3)
      reads s[v3]
      writes y[v3]
      y[v3] = s[v3]
"""


def one_launch(text: str) -> str:
    """All statements of a function under one loop over blocks."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("  for"))
    return "\n".join(
        [*lines[:first], "  for b in 0..1 bound(blockIdx.x)", *(f"  {line}" for line in lines[first:])]
    )


def test_a_loop_is_compared_with_its_next_iteration() -> None:
    """The tile of the next round may not be fetched before all have read this one: two barriers a round."""
    lowered = check(one_launch(ROUNDS))
    assert barriers(lowered) == 2
    registers = [item.buffer for item in statements(lowered.body) if isinstance(item, Alloc)]
    assert {(item.name, item.scope, int(item.shape[0].value)) for item in registers} == {
        ("t", "shared", 32),
        ("s", "register", 1),
    }


TURNS = """
func turns(x: f32[4, 32]) -> (y: f32[32])
  local t: f32[2, 32] @shared
  local s: f32[32] @register
  for b in 0..1 bound(blockIdx.x)
    for i in 0..32 bound(threadIdx.x)
      block start(v: spatial 32 = i)
        writes s[v]
        s[v] = 0.0
    for i1 in 0..32 bound(threadIdx.x)
      block first(v1: spatial 32 = i1)
        reads x[0, v1]
        writes t[0, v1]
        t[0, v1] = x[0, v1]
    for k in 0..4
      for i2 in 0..32 bound(threadIdx.x)
        block s(v2: spatial 32 = i2, r: reduce 4 = k)
          reads t[r % 2, 31 - v2]
          writes s[v2]
          s[v2] += t[r % 2, 31 - v2]
      for i3 in 0..32 bound(threadIdx.x)
        block next(a: spatial 4 = k + 1, v3: spatial 32 = i3) where k < 3
          reads x[a, v3]
          writes t[WHERE, v3]
          t[WHERE, v3] = x[a, v3]
    for i4 in 0..32 bound(threadIdx.x)
      block y(v4: spatial 32 = i4)
        reads s[v4]
        writes y[v4]
        y[v4] = s[v4]
"""


def test_parts_of_a_buffer_that_take_turns_need_one_barrier() -> None:
    """One half is filled while the other one is read; they change places behind the barrier."""
    lowered = check(TURNS.replace("WHERE", "a % 2"))
    assert barriers(lowered) == 1
    broken = rewrite_nodes(lowered, lambda item: Seq(()) if isinstance(item, Barrier) else None)
    with pytest.raises(Exception, match="same element"):
        interpret(broken, {"x": np.zeros((4, 32), np.float32).ravel()}, races=True)


def test_parts_that_do_not_take_turns_need_two() -> None:
    text = TURNS.replace("WHERE", "(a + 1) % 2").replace("t[0, v1]", "t[1, v1]")
    text = text.replace("t[r % 2, 31", "t[(r + 1) % 2, 31")
    assert barriers(check(text)) == 1
    assert barriers(lower_all(parse_func(TURNS.replace("WHERE", "k % 2")), SM_70)) == 2


def test_places_that_a_condition_limits_are_apart() -> None:
    """All 32 threads come, 16 of them fill a half; without the condition they would reach the other one."""
    text = TURNS.replace("WHERE", "(a * 16 + v3) // 16 % 2").replace("where k < 3", "where k < 3 and i3 < 16")
    assert barriers(lower_all(parse_func(text), SM_70)) == 1
    assert barriers(lower_all(parse_func(text.replace(" and i3 < 16", "")), SM_70)) == 2


def test_registers_keep_what_is_accessed_alone() -> None:
    text = """
func every(x: f32[32]) -> (y: f32[32])
  local t: f32[32] @register
  for b in 0..1 bound(blockIdx.x)
    for i in 0..8 bound(threadIdx.x)
      for j in 0..4 unrolled
        block t(v: spatial 32 = j * 8 + i)
          reads x[v]
          writes t[v]
          t[v] = x[v] * 2.0
    for i1 in 0..8 bound(threadIdx.x)
      for j1 in 0..4 unrolled
        block y(w: spatial 32 = j1 * 8 + i1)
          reads t[w]
          writes y[w]
          y[w] = t[w]
"""
    (own,) = [item.buffer for item in statements(check(text).body) if isinstance(item, Alloc)]
    assert (own.scope, int(own.shape[0].value)) == ("register", 4)


def test_virtual_threads_are_written_out_by_each_thread() -> None:
    """Each thread does the work of two, half a block apart; both halves of shared memory are there."""
    text = TURN.replace("READ", BACKWARDS).replace("for b in 0..2", "for b in 0..1")
    text = text.replace("b * 32 + i", "v2 * 32 + i").replace("b * 32 + j", "v3 * 32 + j")
    lines = []
    for line in text.splitlines():
        loop = {"    for i": "v2", "    for j": "v3"}.get(line[:9])
        lines += [f"    for {loop} in 0..2 bound(vthread.x)"] if loop else []
        lines.append(f"  {line}" if line.startswith("    ") else line)
    lowered = check("\n".join(lines))
    assert tags(lowered) == ["blockIdx.x", "threadIdx.x"]
    assert barriers(lowered) == 1, "between the steps, not between virtual threads"
    (shared,) = [item.buffer for item in statements(lowered.body) if isinstance(item, Alloc)]
    assert int(shared.shape[0].value) == 64


STRIPES = """
func stripes(x: f32[64], p: i64[64]) -> (y: f32[64])
  for b in 0..1 bound(blockIdx.x)
    for k in 0..2
      for i in 0..32 bound(threadIdx.x)
        block y(v: spatial 64 = k * 32 + i)
          reads x[v], p[v]
          writes y[PLACE]
          y[PLACE] = x[v]
"""


@pytest.mark.parametrize(
    ("place", "wanted"), [("v", 0), ("63 - v", 0), ("v // 8 * 8 + v % 8", 0), ("p[v]", 1)]
)
def test_a_result_that_grows_element_by_element_needs_no_barrier(place: str, wanted: int) -> None:
    func = parse_func(STRIPES.replace("PLACE", place))
    assert barriers(lower_all(func, SM_70)) == wanted


def test_a_result_that_others_read_in_the_next_iteration_needs_one() -> None:
    text = STRIPES.replace("PLACE", "v").replace("reads x[v], p[v]", "reads x[v], y[63 - v]")
    lowered = lower_all(parse_func(text.replace("y[v] = x[v]", "y[v] = x[v] + y[63 - v]")), SM_70)
    assert barriers(lowered) == 1


@pytest.mark.parametrize(("condition", "wanted"), [("i < 8", 8), ("i // 4 < 3", 12), ("i < 40", 32)])
def test_shared_memory_has_no_room_for_threads_that_a_condition_leaves_out(
    condition: str, wanted: int
) -> None:
    text = f"""
func few(x: f32[64]) -> (y: f32[1])
  local t: f32[64] @shared
  for b in 0..1 bound(blockIdx.x)
    for i in 0..32 bound(threadIdx.x)
      block t(v: spatial 64 = i) where {condition}
        reads x[v]
        writes t[v]
        t[v] = x[v] * 2.0
    block y(w: spatial 1 = 0)
      reads t[7 - w]
      writes y[w]
      y[w] = t[7 - w]
"""
    (shared,) = [item.buffer for item in statements(check(text).body) if isinstance(item, Alloc)]
    assert int(shared.shape[0].value) == wanted


def test_work_outside_of_threads_is_done_once_where_others_see_it() -> None:
    text = """
func first(x: f32[8]) -> (y: f32[8], z: f32[1])
  for b in 0..1 bound(blockIdx.x)
    for i in 0..8 bound(threadIdx.x)
      block y(v: spatial 8 = i)
        reads x[v]
        writes y[v]
        y[v] = x[v]
    block z(w: spatial 1 = 0)
      reads y[7]
      writes z[w]
      z[w] = y[7]
"""
    lowered = check(text)
    assert barriers(lowered) == 1
    assert any(isinstance(item, If) for item in statements(lowered.body))


def test_shorter_loops_are_guarded_and_need_no_barrier_inside() -> None:
    text = TURN.replace("READ", "w").replace("for j in 0..32", "for j in 0..16")
    text = text.replace("b * 32 + j", "b * 16 + j")
    text = text.replace("y: f32[64]", "y: f32[32]").replace("w: spatial 64", "w: spatial 32")
    func = parse_func(text.replace("t[w]", "t[w // 16 * 32 + w % 16]"))
    merged = merge_threads(place_allocations(func, launches=True), SM_70)
    assert tags(merged) == ["blockIdx.x", "threadIdx.x"]
    assert any(isinstance(item, If) for item in statements(merged.body))


def test_every_launch_has_loops_over_blocks_and_threads() -> None:
    text = """
func two(x: f32[8]) -> (y: f32[8], z: f32[8])
  for i in 0..8 bound(blockIdx.x)
    block y(v: spatial 8 = i)
      reads x[v]
      writes y[v]
      y[v] = x[v]
  for j in 0..8
    block z(w: spatial 8 = j)
      reads x[w]
      writes z[w]
      z[w] = x[w] + 1.0
"""
    assert tags(check(text)) == ["blockIdx.x", "threadIdx.x", "blockIdx.x", "threadIdx.x"]


def test_blocks_inside_of_other_work_are_refused() -> None:
    text = """
func inside(x: f32[4, 8]) -> (y: f32[4, 8])
  for k in 0..4
    for i in 0..8 bound(blockIdx.x)
      block y(a: spatial 4 = k, v: spatial 8 = i)
        reads x[a, v]
        writes y[a, v]
        y[a, v] = x[a, v]
"""
    with pytest.raises(BadInputError, match=r"cannot be bound to blockIdx\.x") as error:
        lower_all(parse_func(text), SM_70)
    assert "reorder" in error.value.hint


def test_loops_of_one_iteration_may_stand_around_blocks() -> None:
    text = """
func once(x: f32[1, 4, 1, 8]) -> (y: f32[1, 4, 1, 8])
  for n in 0..1
    for b in 0..4 bound(blockIdx.x)
      for m in 0..1
        for i in 0..8 bound(threadIdx.x)
          block y(a: spatial 1 = n, c: spatial 4 = b, d: spatial 1 = m, v: spatial 8 = i)
            reads x[a, c, d, v]
            writes y[a, c, d, v]
            y[a, c, d, v] = x[a, c, d, v]
"""
    assert tags(check(text)) == ["blockIdx.x", "threadIdx.x"]


@pytest.mark.parametrize("turned", [False, True], ids=["rows", "columns"])
def test_padded_rows_stay_padded_when_shared_memory_shrinks(turned: bool) -> None:
    """Whatever dimension lies side by side."""

    def at(row: str, place: str) -> str:
        return f"t[{place}, {row}]" if turned else f"t[{row}, {place}]"

    text = TURN.replace("READ", BACKWARDS)
    text = text.replace("local t: f32[64]", f"local t: f32[{'32, 2' if turned else '2, 32'}]")
    text = text.replace("writes t[v]", f"writes {at('v // 32', 'v % 32')}")
    text = text.replace("t[v] =", f"{at('v // 32', 'v % 32')} =")
    text = text.replace(f"t[{BACKWARDS}]", at("w // 32", "31 - w % 32"))
    func = parse_func(text)
    strides = (const(1), const(36)) if turned else (const(36), const(1))
    padded = func.allocs[0].replace(strides=strides)
    func = func.replace(allocs=(padded,), body=replace_buffers(func.body, {func.allocs[0]: padded}))
    merged = merge_threads(place_allocations(func, launches=True), SM_70)
    steps = place_shared(compact_buffers(lower_blocks(merged)))
    (shared,) = [item.buffer for item in statements(steps.body) if isinstance(item, Alloc)]
    assert sorted(int(item.value) for item in shared.shape) == [1, 32]
    assert shared.strides == strides


def test_other_devices_are_left_alone() -> None:
    func = parse_func(TURN.replace("READ", BACKWARDS))
    assert merge_threads(func, replace(SM_70, binds_threads=False)) is func


CHUNKS = """
func chunks(x: f32[4, 64]) -> (y: f32[64])
  local t: f32[4, 64] @shared
  local parts: f32[4, 64] @cluster
  for b in 0..2 bound(blockIdx.x)
    for r in 0..4 bound(blockRank)
      for i in 0..32 bound(threadIdx.x)
        block t(a: spatial 4 = r, v: spatial 64 = b * 32 + i)
          reads x[a, v]
          writes t[a, v]
          t[a, v] = x[a, v]
      for i1 in 0..32 bound(threadIdx.x)
        block parts(a1: spatial 4 = r, v1: spatial 64 = b * 32 + i1)
          reads t[a1, v1 // 32 * 64 + 31 - v1]
          writes parts[a1, v1]
          parts[a1, v1] = t[a1, v1 // 32 * 64 + 31 - v1]
    for r1 in 0..4 bound(blockRank)
      for i2 in 0..32 bound(threadIdx.x)
        block y(v2: spatial 64 = b * 32 + r1 * 8 + i2) where i2 < 8
          reads parts[0, v2], parts[1, v2], parts[2, v2], parts[3, v2]
          writes y[v2]
          y[v2] = parts[0, v2] + parts[1, v2] + parts[2, v2] + parts[3, v2]
"""


def test_blocks_of_a_cluster_meet_where_one_reads_what_another_wrote() -> None:
    lowered = check(CHUNKS, HOPPER)
    assert tags(lowered) == ["blockIdx.x", "blockRank", "threadIdx.x"]
    scopes = [item.scope for item in statements(lowered.body) if isinstance(item, Barrier)]
    assert scopes == ["shared", "cluster"], "threads of a block first, then all of the cluster, once"
    sizes = {
        item.buffer.name: item.buffer.shape[0] for item in statements(lowered.body) if isinstance(item, Alloc)
    }
    assert sizes == {"t": const(32), "parts": const(128)}, "a tile of a block, and one of each block"


BETWEEN = """
func between(x: f32[2, 32]) -> (z: f32[2, 32], y: f32[32])
  local t: f32[2, 32] @shared
  local parts: f32[2, 32] @cluster
  for b in 0..1 bound(blockIdx.x)
    for r in 0..2 bound(blockRank)
      for i in 0..32 bound(threadIdx.x)
        block parts(a: spatial 2 = r, v: spatial 32 = i)
          reads x[a, v]
          writes parts[a, v]
          parts[a, v] = x[a, v]
      for i1 in 0..32 bound(threadIdx.x)
        block t(a1: spatial 2 = r, v1: spatial 32 = i1)
          reads x[a1, v1]
          writes t[a1, v1]
          t[a1, v1] = x[a1, v1]
      for i2 in 0..32 bound(threadIdx.x)
        block z(a2: spatial 2 = r, v2: spatial 32 = i2)
          reads t[a2, 31 - v2]
          writes z[a2, v2]
          z[a2, v2] = t[a2, 31 - v2]
    for r1 in 0..2 bound(blockRank)
      for i3 in 0..32 bound(threadIdx.x)
        block y(v3: spatial 32 = r1 * 16 + i3) where i3 < 16
          reads parts[0, v3], parts[1, v3]
          writes y[v3]
          y[v3] = parts[0, v3] + parts[1, v3]
"""


def test_a_barrier_of_a_block_between_orders_nothing_of_a_cluster() -> None:
    scopes = [item.scope for item in statements(check(BETWEEN, HOPPER).body) if isinstance(item, Barrier)]
    assert scopes == ["shared", "cluster"]


def test_a_barrier_of_a_block_is_not_enough_for_a_cluster() -> None:
    lowered = lower_all(parse_func(CHUNKS), HOPPER)
    broken = rewrite_nodes(lowered, lambda item: Barrier(SHARED) if isinstance(item, Barrier) else None)
    with pytest.raises(Exception, match="parallel blocks use the same element"):
        interpret(broken, {"x": np.zeros((4, 64), np.float32)}, races=True)


def test_clusters_have_limits() -> None:
    func = lower_all(parse_func(CHUNKS), HOPPER)
    small = replace(HOPPER, limits=(*HOPPER.limits, ("blocks_per_cluster", 2), ("shared_bytes", 200)))
    found = [str(item) for item in problems_of_launches(func, small)]
    assert ["cluster of 4 blocks" in item for item in found] == [True, False]
    assert "256 bytes of shared memory" in found[1], "32 elements of each: those of other blocks are theirs"
    assert any("lies in cluster memory" in str(item) for item in problems_of_launches(func, SM_70))
    both = rewrite_nodes(func, lambda item: item.replace(tag="blockIdx.z") if _is_over_blocks(item) else None)
    assert any("both bound" in str(item) for item in problems_of_launches(both, HOPPER))


def _is_over_blocks(item: object) -> TypeGuard[For]:
    return isinstance(item, For) and item.tag == "blockIdx.x"
