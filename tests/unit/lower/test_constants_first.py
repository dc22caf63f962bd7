"""Copies of constants come in front of those of what other launches make, in the first group of copies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.loops.ir import AsyncCommit, AsyncCopy, Func, Store, statements
from compiler.loops.text import parse_func
from compiler.lower.constants_first import constants_first
from tests.support.gpu import TINY

WITH = replace(TINY, intrinsics=frozenset({"cp.async"}))


def pipeline(parts: int, inner: str = "") -> Func:
    """Parts of a made and a constant factor, in front of a loop or in it."""
    lines = []
    for n in range(parts):
        lines += [f"async_copy a[{4 * n} +: 4] <- x[{4 * n} +: 4]"]
        lines += [
            "for j in 0..2 unrolled",
            f"  async_copy b[j * 4 + {8 * n} +: 4] <- w[j * 4 + {8 * n} +: 4]",
        ]
        lines += ["async_commit"]
    text = "\n".join(f"  {inner}{line}" for line in lines)
    loop = "  for r in 0..4\n" if inner else ""
    return parse_func(
        "func f(x: f32[64], w: f32[64] @constant) -> (y: f32[64])\n"
        "  local a: f32[64] @shared\n  local b: f32[64] @shared\n"
        f"{loop}{text}\n  async_wait pending 0\n  y[0] = a[0] + b[0]\n"
    )


def order(func: Func) -> str:
    """Copies of x and w, and the ends of groups, in their order."""
    names = {AsyncCommit: lambda _: "|", AsyncCopy: lambda item: item.source.buffer.name}
    return "".join(names[type(item)](item) for item in statements(func.body) if type(item) in names)


def test_constants_of_the_first_two_parts_come_first() -> None:
    before = pipeline(4)
    assert order(before) == "xw|xw|xw|xw|"
    assert order(constants_first(before, WITH)) == "wwx|x|xw|xw|"


@pytest.mark.parametrize(("between", "wanted"), [("", "w|made"), ("barrier shared", "madew|")])
def test_constants_come_before_what_a_block_makes(between: str, wanted: str) -> None:
    """Unless it waits in between for others."""
    before = parse_func(
        "func f(x: f32[64], w: f32[64] @constant) -> (y: f32[64])\n"
        "  local a: f32[64] @shared\n  local b: f32[64] @shared\n"
        f"  a[0] = x[0] * x[1]\n  {between}\n"
        "  async_copy b[0 +: 4] <- w[0 +: 4]\n  async_commit\n"
        "  async_wait pending 0\n  y[0] = a[0] + b[0]\n"
    )
    names = {AsyncCommit: "|", AsyncCopy: "w"}
    done = statements(constants_first(before, WITH).body)
    found = [
        "made" if isinstance(item, Store) and item.buffer.name == "a" else names.get(type(item), "")
        for item in done
    ]
    assert "".join(found) == wanted


def test_rounds_of_a_loop_stay() -> None:
    """What is copied in a round belongs to that round's group: nothing there waits for a launch."""
    before = pipeline(1, inner="  ")
    assert constants_first(before, WITH) is before


def test_nothing_moves_without_such_copies() -> None:
    before = pipeline(4)
    assert constants_first(before, TINY) is before
