"""Loops over blocks of a launch end with what a run has, where the first place of a block says so."""

from __future__ import annotations

import pytest

from compiler.loops.annotations import ENDS
from compiler.loops.ir import For, Func, statements
from compiler.loops.text import parse_func
from compiler.lower.grid_ends import grid_ends

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
    assert ends(grid_ends(func(head, place))) == [row]


def test_places_that_come_again_later_end_nowhere() -> None:
    assert not ends(grid_ends(func("for b in 0..128 bound(blockIdx.x)", "b % 64")))


def test_a_loop_along_another_axis_is_whole() -> None:
    assert not ends(
        grid_ends(func("for b in 0..64 bound(blockIdx.x)", "b", NOTES.replace("1, 0, 0", "1, 1, 0")))
    )


def test_samples_keep_their_blocks_along_z() -> None:
    """A block finds its sample by how many one has."""
    notes = f"{NOTES}, samples = (9, 512, 512,)"
    assert not ends(grid_ends(func("for b in 0..64 bound(blockIdx.z)", "b", notes)))
    assert ends(grid_ends(func("for b in 0..64 bound(blockIdx.y)", "b", notes)))


def test_a_function_of_one_size_stays() -> None:
    plain = func("for b in 0..64 bound(blockIdx.x)", "b", "")
    assert grid_ends(plain) is plain
