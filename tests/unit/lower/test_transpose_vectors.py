"""Strided vectors that are neighbours: moved as rows and turned in registers, with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.loops.interp import interpret
from compiler.loops.ir import Func, IRNode, Load, Ramp, Shuffle, Store, const
from compiler.loops.text import parse_func
from compiler.loops.verify import verify_func
from compiler.lower.transpose_vectors import transpose_vectors
from compiler.targets import get_target

V4 = get_target("cpu:x86-64-v4").facts
SIZE = 1024

STORED = """
for u in 0..{n} unrolled
  y[ramp(u + 3, 37, {lanes})] = x[ramp(u * {lanes} + 1, 1, {lanes})] * broadcast(2.0, {lanes})
"""
LOADED = """
for u in 0..{n} unrolled
  y[ramp(u * {lanes} + 2, 1, {lanes})] = x[ramp(u + 5, 41, {lanes})]
"""
BOTH = """
for u in 0..{n} unrolled
  y[ramp(u, 29, {lanes})] = x[ramp(u + 1, 29, {lanes})] + x[ramp(u * {lanes}, 1, {lanes})]
"""


def func(body: str) -> Func:
    lines = "\n".join(f"  {line}" for line in body.strip("\n").splitlines())
    start = f"  for i in 0..{SIZE}\n    y[i] = 0.0\n"
    return parse_func(f"func f(x: f32[{SIZE}]) -> (y: f32[{SIZE}])\n{start}{lines}\n")


def strided(program: Func) -> int:
    """Accesses of vectors whose elements are apart."""
    found: list[IRNode] = [item for item in program.body.walk() if isinstance(item, Load | Store)]
    ramps = [item.indices[0] for item in found if isinstance(item, Load | Store)]
    return sum(isinstance(index, Ramp) and index.stride != const(1) for index in ramps)


def assert_same(before: Func, after: Func) -> None:
    verify_func(after, "flat")
    x = np.random.default_rng(1).random(SIZE, dtype=np.float32)
    wanted, got = (interpret(item, {"x": x})["y"] for item in (before, after))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("n", [4, 5, 6, 7, 8, 11, 14, 16, 21])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("text", [STORED, LOADED, BOTH], ids=["stored", "loaded", "both"])
def test_a_tile_is_turned_in_registers(text: str, lanes: int, n: int) -> None:
    before = func(text.format(n=n, lanes=lanes))
    after = transpose_vectors(before, V4)
    assert_same(before, after)
    alone = n % 4 == 1 and (n % lanes) % 4 == 1  # one vector that is left over moves as it did
    assert strided(after) == (strided(before) if alone else 0)
    assert any(isinstance(item, Shuffle) for item in after.body.walk())


@pytest.mark.parametrize(
    "text",
    [
        STORED.replace("unrolled", ""),
        STORED.replace("{n}", "3"),
        STORED.replace("u + 3", "u * 2"),
        STORED.replace("* broadcast(2.0, {lanes})", "+ y[ramp(u, 37, {lanes})]"),
    ],
    ids=["serial loop", "three vectors", "not neighbours", "reads what it writes"],
)
def test_what_is_no_tile_stays(text: str) -> None:
    before = func(text.format(n=8, lanes=8))
    assert transpose_vectors(before, V4) == before


def test_lanes_that_are_off_are_neither_read_nor_written() -> None:
    mask = "ramp(0, 1, 8) < broadcast(5, 8)"
    before = func(f"""
for u in 0..8 unrolled
  y[ramp(u * 8, 1, 8)] = x[ramp(u + 5, 41, 8) where {mask} else broadcast(0.0, 8)]
""")
    after = transpose_vectors(before, V4)
    assert_same(before, after)
    read = [item for item in after.body.walk() if isinstance(item, Load) and item.buffer.name == "x"]
    assert len(read) == 5


def test_a_condition_that_leaves_out_the_last_iterations() -> None:
    body = LOADED.format(n=8, lanes=4).replace("\n  y", "\n  if u < 6\n    y")
    before = func(body)
    after = transpose_vectors(before, V4)
    assert_same(before, after)
    assert strided(after) == 0
