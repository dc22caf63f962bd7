"""Blocks of which the last one goes on: meaning, what interpreter and verifier find, lowering, text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.core.capabilities import LAST_BLOCK
from compiler.core.diagnostics import BadInputError
from compiler.loops.interp import interpret
from compiler.loops.interp_values import ProgramError
from compiler.loops.ir import Alloc, Barrier, LastBlock, statements
from compiler.loops.text import parse_func
from compiler.loops.verify import problems_of
from compiler.lower.last_block import gather_reads
from compiler.lower.verify_launch import verify_launch
from compiler.render.device import render_launches
from compiler.render.vocabulary_cuda import CUDA, HIP
from tests.support.gpu import HOPPER
from tests.support.kernels import lower_all, lower_steps

COUNTING = replace(HOPPER, intrinsics=HOPPER.intrinsics | {LAST_BLOCK})

SCHEDULED = """
func f(x: f32[4, 6]) -> (y: f32[6])
  local parts: f32[4, 6]
  for i in 0..2 bound(blockIdx.x)
    for c in 0..4 bound(blockPart)
      for t in 0..3 bound(threadIdx.x)
        block p(a: spatial 4 = c, b: spatial 6 = i * 3 + t)
          reads x[a, b]
          writes parts[a, b]
          parts[a, b] = x[a, b] * 2.0
    for u in 0..3 bound(threadIdx.x)
      for k in 0..4
        block s(d: spatial 6 = i * 3 + u, r: reduce 4 = k)
          reads parts[r, d]
          writes y[d]
          init
            y[d] = 0.0
          y[d] = y[d] + parts[r, d]
"""

FLAT = """
func f(x: f32[24], parts: f32[24], came: u32[2]) -> (y: f32[6]) {workspace = 2, counters = 1}
  for i in 0..2 bound(blockIdx.x)
    for c in 0..4 bound(blockPart)
      for t in 0..3 bound(threadIdx.x)
        parts[c * 6 + i * 3 + t] = x[c * 6 + i * 3 + t] * 2.0
        last_block came[i] of 4
          y[i * 3 + t] = 0.0
          for k in 0..4
            y[i * 3 + t] += parts[k * 6 + i * 3 + t]
"""
X = np.arange(24, dtype=np.float32).reshape(4, 6)
WANTED = 2 * X.sum(axis=0)
TURNED = FLAT.replace("parts[k * 6 + i * 3 + t]", "parts[k * 6 + i * 3 + 2 - t]")
"""In which threads pass values to each other, too."""


def test_what_follows_parts_is_done_by_the_last_block() -> None:
    func = parse_func(SCHEDULED)
    np.testing.assert_array_equal(interpret(func, {"x": X})["y"], WANTED)
    lowered = lower_all(func, COUNTING)
    assert lowered == parse_func(FLAT)
    assert not any(isinstance(item, Barrier) for item in statements(lowered.body))


@pytest.mark.parametrize("shuffle", [None, 1, 2, 3])
def test_any_block_may_be_the_last(shuffle: int | None) -> None:
    found = interpret(parse_func(TURNED), {"x": X.reshape(24)}, shuffle=shuffle, races=True)
    np.testing.assert_array_equal(found["y"], WANTED.reshape(2, 3)[:, ::-1].reshape(6))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("last_block came[i] of 4", "if c == 3", "parallel iterations use the same element of `parts`"),
        ("last_block came[i] of 4", "if c >= 0", "parallel iterations use the same element of `parts`"),
        ("came[i] of 4", "came[i] of 3", "has 0|parallel iterations|not left at zero"),
        ("came[i] of 4", "came[i] of 8", "not left at zero"),
        ("came[i] of 4", "came[c % 2] of 4", "parallel iterations use the same element of `parts`"),
    ],
)
def test_who_reads_too_early_is_found(old: str, new: str, found: str) -> None:
    with pytest.raises(ProgramError, match=found):
        interpret(parse_func(FLAT.replace(old, new)), {"x": X.reshape(24)}, races=True)


def test_what_is_written_behind_the_counter_is_not_seen() -> None:
    late = "        last_block came[i] of 4\n"
    part = FLAT.splitlines(keepends=True)[5]
    moved = FLAT.replace(part, "").replace(
        late, f"        last_block other[i] of 4\n          pass\n{part}{late}"
    )
    right = moved.replace("came: u32[2]", "came: u32[2], other: u32[2]").replace(
        "{workspace = 2, counters = 1}", "{workspace = 3, counters = 2}"
    )
    np.testing.assert_array_equal(interpret(parse_func(right), {"x": X.reshape(24)}, races=True)["y"], WANTED)
    swapped = (
        right.replace("other[i]", "first[i]").replace("came[i]", "other[i]").replace("first[i]", "came[i]")
    )
    lines = swapped.splitlines(keepends=True)
    at = next(n for n, line in enumerate(lines) if "parts[c" in line)
    lines.append(lines.pop(at))
    with pytest.raises(ProgramError, match="`parts`"):
        interpret(parse_func("".join(lines)), {"x": X.reshape(24)}, races=True)


def test_a_counter_that_is_not_zero_is_found() -> None:
    for first, found in ((1, "not left at zero"), (4, "counter of 4 blocks that has 4")):
        with pytest.raises(ProgramError, match=found):
            interpret(parse_func(FLAT), {"x": X.reshape(24), "came": np.full(2, first, np.uint32)})


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("came[i] of 4", "came[i] of 3", "4 blocks come to one counter, which counts 3"),
        ("came[i] of 4", "came[0] of 4", "8 blocks come to one counter, which counts 4"),
        ("came[i] of 4", "came[t % 2] of 4", "the threads of a block come to different counters"),
        ("came: u32[2]", "came: f32[2]", "counts blocks, and is no global memory of 32-bit integers"),
        (
            "last_block came[i] of 4\n",
            "if t < 2\n          barrier shared\n        last_block came[i] of 4\n",
            "the barrier is under a condition that differs between threads",
        ),
    ],
)
def test_the_verifier(old: str, new: str, found: str) -> None:
    assert problems_of(parse_func(FLAT), "flat") == ()
    problems = problems_of(parse_func(FLAT.replace(old, new)), "flat")
    assert any(found in item for item in problems), problems


def test_parts_stand_inside_of_the_other_loops_over_blocks() -> None:
    outside = SCHEDULED.replace("blockIdx.x", "first").replace("blockPart", "blockIdx.x")
    with pytest.raises(BadInputError, match="cannot be bound"):
        lower_all(parse_func(outside.replace("first", "blockPart")), COUNTING)


def test_blocks_see_global_memory_alone_of_each_other() -> None:
    shared = SCHEDULED.replace("local parts: f32[4, 6]", "local parts: f32[4, 6] @shared")
    with pytest.raises(BadInputError, match="cannot be bound") as caught:
        lower_all(parse_func(shared), COUNTING)
    assert caught.value.where == "parts"
    assert "set_scope to global" in caught.value.hint


def test_devices_without_counters_are_refused() -> None:
    with pytest.raises(BadInputError, match="no block is the last one behind blockPart"):
        verify_launch(parse_func(FLAT), HOPPER)


@pytest.mark.parametrize("words", [CUDA, HIP], ids=["cuda", "hip"])
def test_text(words: object) -> None:
    launch = render_launches(parse_func(FLAT), 0, words, COUNTING)  # type: ignore[arg-type]
    assert launch.launches[0].grid == (2, 1, 4)
    assert launch.launches[0].shared_bytes == LastBlock.SHARED_BYTES
    assert "if (tk_last_block(" in launch.text
    head = next(line for line in launch.text.splitlines() if "__global__" in line)
    assert "float * b1, uint32_t * b2" in head, "others write there meanwhile"
    assert "__restrict__ b3" in head


def test_one_condition_around_many_reads() -> None:
    """But none that depends on the loop, or on memory."""
    guarded = FLAT.replace("y[i * 3 + t] = 0.0", "if t < 2\n            y[i * 3 + t] = 0.0").replace(
        "          for k in 0..4\n            y",
        "          for k in 0..4 unrolled\n            if t < 2\n              y",
    )
    joined = gather_reads(parse_func(guarded))
    (last,) = (item for item in statements(joined.body) if isinstance(item, LastBlock))
    assert type(last.body).__name__ == "If"
    for other in ("k + t < 5", "x[t] < 1.0"):
        apart = parse_func(guarded.replace("if t < 2\n              y", f"if {other}\n              y"))
        assert gather_reads(apart) == apart


def test_each_pass_keeps_the_meaning() -> None:
    func = parse_func(SCHEDULED)
    for name, step in lower_steps(func, COUNTING):
        size = [int(item.value) for item in step.params[0].shape]  # type: ignore[attr-defined]
        found = interpret(step, {"x": X.reshape(size)}, shuffle=1)["y"]
        np.testing.assert_array_equal(found.reshape(6), WANTED, err_msg=name)
        assert not any(
            isinstance(item, Alloc) and item.buffer.name == "parts" for item in statements(step.body)
        )
