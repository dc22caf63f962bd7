"""Loops over blocks of a launch end with what a run has, where the first place of a block says so."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.loops.annotations import ENDS
from compiler.loops.interp import interpret
from compiler.loops.ir import For, Func, const, statements
from compiler.loops.text import parse_func
from compiler.loops.verify import verify_func
from compiler.lower.grid_ends import grid_ends
from compiler.targets import get_target

FACTS = get_target("cuda:sm_90").facts
NOTES = "symbols = ((1, 64,),), extents = ((1, 0, 0, 1, 1,),)"


def func(head: str, place: str, notes: str = NOTES) -> Func:
    return parse_func(f"""
func f(x: f32[64,8]) -> (y: f32[64,8]) {{{notes}}}
  {head}
    for t in 0..8 bound(threadIdx.x)
      for r in 0..4
        block y(v: spatial 64 = {place}, u: spatial 8 = t)
          reads x[v,u]
          writes y[v,u]
          y[v,u] = x[v,u]
""")


def ends(made: Func) -> list[tuple[int, ...]]:
    loops = [item for item in statements(made.body) if isinstance(item, For) and item.over_blocks]
    return [row for loop in loops for row in dict(loop.annotations).get(ENDS, ())]


@pytest.mark.parametrize(
    ("head", "place", "row"),
    [
        ("for b in 0..16 bound(blockIdx.y)", "b * 4 + r", (1, 4, 0, 1, 1)),
        ("for b in 0..64 bound(blockIdx.x)", "b", (1, 1, 0, 1, 1)),
        ("for b in 0..128 bound(blockIdx.x)", "b // 2", (2, 1, 0, 1, 1)),
        ("for b in 0..32 bound(blockIdx.x)", "b * 4 // 2 + r // 2", (1, 2, 0, 1, 1)),
    ],
)
def test_as_many_blocks_as_there_are_places(head: str, place: str, row: tuple[int, ...]) -> None:
    assert ends(grid_ends(func(head, place), FACTS)) == [row]


HEADS = """
func f(x: f32[3,64,8]) -> (y: f32[3,64,8]) {symbols = ((1, 64,),), extents = ((1, 1, 0, 1, 1,),)}
  for b in 0..48 bound(blockIdx.x)
    for t in 0..8 bound(threadIdx.x)
      for r in 0..4
        block y(h: spatial 3 = b * 4 // 64, v: spatial 64 = (b * 4) % 64 + r, u: spatial 8 = t)
          reads x[h,v,u]
          writes y[h,v,u]
          y[h,v,u] = x[h,v,u] * 2.0
"""


def test_places_that_come_again_are_a_loop_within_another() -> None:
    """Of three heads each has as many tokens: sixteen blocks, of which a run needs the first ones."""
    one = parse_func(HEADS)
    made = grid_ends(one, FACTS)
    assert ends(made) == [(1, 4, 0, 1, 1)]
    loops = [item for item in statements(made.body) if isinstance(item, For) and item.over_blocks]
    assert [(item.tag, item.extent) for item in loops] == [
        ("blockIdx.y", const(3)),
        ("blockIdx.x", const(16)),
    ]
    verify_func(made, "scheduled")
    x = np.random.default_rng(0).random((3, 64, 8), np.float32)
    np.testing.assert_array_equal(interpret(made, {"x": x})["y"], interpret(one, {"x": x})["y"])


def test_places_that_come_again_in_no_whole_number_of_blocks_end_nowhere() -> None:
    assert not ends(grid_ends(func("for b in 0..100 bound(blockIdx.x)", "b * 3 % 64"), FACTS))


def test_a_loop_along_another_axis_is_whole() -> None:
    assert not ends(
        grid_ends(func("for b in 0..64 bound(blockIdx.x)", "b", NOTES.replace("1, 0, 0", "1, 1, 0")), FACTS)
    )


def test_samples_keep_their_blocks_along_z() -> None:
    """A block finds its sample by how many one has."""
    notes = f"{NOTES}, samples = (9, 512, 512,)"
    assert not ends(grid_ends(func("for b in 0..64 bound(blockIdx.z)", "b", notes), FACTS))
    assert ends(grid_ends(func("for b in 0..64 bound(blockIdx.y)", "b", notes), FACTS))


def test_a_function_of_one_size_stays() -> None:
    plain = func("for b in 0..64 bound(blockIdx.x)", "b", "")
    assert grid_ends(plain, FACTS) is plain


CHUNKS = """
func f(x: f32[4,64,8], s: f32[4,64,8]) -> (y: f32[64,8]) {symbols = ((1, 64,),), extents = ((1, 0, 0, 1, 1,),), workspace = 1}
  for c in 0..4 bound(blockIdx.y)
    for b in 0..16 bound(blockIdx.x)
      for t in 0..32 bound(threadIdx.x)
        block s(k: spatial 4 = c, v: spatial 64 = b * 4 + t // 8, u: spatial 8 = t % 8)
          reads x[k,v,u]
          writes s[k,v,u]
          s[k,v,u] = x[k,v,u] * 2.0
  for b in 0..8 bound(blockIdx.x)
    for t in 0..64 bound(threadIdx.x)
      let n: i64 = b * 64 + t
      block z(v: spatial 64 = n // 8, u: spatial 8 = n % 8)
        writes y[v,u]
        y[v,u] = 0.0
      for c in 0..4
        block y(v: spatial 64 = n // 8, u: spatial 8 = n % 8, k: reduce 4 = c)
          reads s[k,READ,u]
          writes y[v,u]
          y[v,u] = y[v,u] + s[k,READ,u]
"""  # noqa: E501 - the text form has a line for a head


def test_chunks_end_where_their_sum_does() -> None:
    """Both launches: what makes chunks of a sum, and what adds them up, by a variable defined in it."""
    made = grid_ends(parse_func(CHUNKS.replace("READ", "v")), FACTS)
    assert ends(made) == [(1, 4, 0, 1, 1), (1, 8, 0, 1, 1)]


@pytest.mark.parametrize("read", ["63 - v", "u"])
def test_chunks_of_which_all_may_be_read_are_whole(read: str) -> None:
    made = grid_ends(parse_func(CHUNKS.replace("READ", read)), FACTS)
    assert ends(made) == [(1, 8, 0, 1, 1)]


ROWS_OF_24 = """
func f(x: f32[4,24]) -> (y: f32[4,24]) {symbols = ((1, 24,),), extents = ((1, AXIS, 0, 1, 1,),)}
  for b in 0..3 bound(blockIdx.x)
    for t in 0..32 bound(threadIdx.x)
      let n: i64 = b * 32 + t
      block y(h: spatial 4 = n // 24, v: spatial 24 = n % 24)
        reads x[h,v]
        writes y[h,v]
        y[h,v] = x[h,v]
"""


def test_blocks_in_which_places_begin_again_are_whole() -> None:
    """The second block begins with place 8 of the second row, and has the first places of the third one."""
    assert ends(grid_ends(parse_func(ROWS_OF_24.replace("AXIS", "0")), FACTS)) == [(1, 1, 0, 1, 1)]
    assert ends(grid_ends(parse_func(ROWS_OF_24.replace("AXIS", "1")), FACTS)) == []
