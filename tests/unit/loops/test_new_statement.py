"""A statement that only its declaration knows of is written, read, checked and walked; no meaning yet."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from compiler.core.diagnostics import InternalError
from compiler.core.node import node
from compiler.loops.interp import ProgramError, interpret
from compiler.loops.ir import Buffer, For, Func, Region, Stmt, Var
from compiler.loops.regions import block_regions, buffers_written
from compiler.loops.simplify import simplify_stmt
from compiler.loops.text import parse_func, print_func
from compiler.loops.verify import problems_of
from compiler.loops.walk import replace_buffers, scoped
from compiler.lower.flatten_buffers import flatten_buffers
from compiler.lower.merge_threads import merge_threads
from compiler.render.cstyle import render_kernel
from compiler.targets import get_target


@node
class Clear(Stmt):
    """All elements of a box become `value`, so many bytes at a time."""

    SPELLING: ClassVar = "clear {target} to {value}{bytes!o:a number of bytes}"
    WRITES: ClassVar = ("target",)
    target: Region
    value: int
    bytes: int = 4


@node
class Either(Stmt):
    """One of two statements."""

    SPELLING: ClassVar = "either"
    first: Stmt
    second: Stmt


TEXT = """func f() -> (y: f32[8, 4])
  for i in 0..8
    either
      first
        clear y[i * 2 + (0 - i), 0 +: 4] to 3
      second
        clear y[i, 0 +: 4] to 1 bytes 8
"""
"""Two new statements in a loop."""


def clears(func: Func) -> list[Clear]:
    return [item for item in func.body.walk() if isinstance(item, Clear)]


def test_text() -> None:
    func = parse_func(TEXT)
    assert print_func(func) == TEXT
    assert [item.bytes for item in clears(func)] == [4, 8]


def test_the_verifier_looks_into_it() -> None:
    assert problems_of(parse_func(TEXT), "lowered") == ()
    shorter = parse_func(TEXT.replace("y[i, 0 +: 4]", "y[i]"))
    assert "another rank" in problems_of(shorter, "lowered")[0]
    assert (
        "is used where it is not defined" in problems_of(parse_func(TEXT).replace(body=clears(shorter)[0]))[0]
    )
    nothing = parse_func(TEXT).replace(body=parse_func("func g() -> ()\n  pass").body)
    assert problems_of(nothing, "lowered")[0].endswith("output `y` is never written")


def test_walks_and_passes() -> None:
    func = parse_func(TEXT)
    y = func.params[0]
    assert buffers_written(func.body) == {y}
    assert block_regions(clears(func)[0]) == ((), (clears(func)[0].target,))
    around = [scope for item, scope in scoped(func.body) if isinstance(item, Clear)]
    assert [[loop.var for loop in scope.loops] for scope in around] == [[Var("i")]] * 2
    assert [type(item) for item in around[0].around] == [For, Either]
    assert "clear y[i, 0 +: 4] to 3" in print_func(func.replace(body=simplify_stmt(func.body)))
    assert "clear y[i * 4 +: 4] to 1" in print_func(flatten_buffers(func))
    other = y.replace(name="z")
    assert {item for item in replace_buffers(func.body, {y: other}).walk() if isinstance(item, Buffer)} == {
        other
    }


def test_threads_wait_for_each_other_before_it() -> None:
    head, store = "func f() -> (y: f32[8, 4])\n  for b in 0..1 bound(blockIdx.x)", "      y[t, 0] = 1.0"
    func = parse_func(f"{head}\n    for t in 0..8 bound(threadIdx.x)\n{store}\n    clear y[0, 0 +: 4] to 3\n")
    text = print_func(merge_threads(func, get_target("cuda-nvidia").facts))
    assert [line.strip() for line in text.splitlines()[-4:]] == [
        "y[t, 0] = 1.0",
        "barrier shared",
        "if t == 0",
        "clear y[0, 0 +: 4] to 3",
    ]


def test_what_it_means_is_for_the_interpreter_and_the_renderer_to_say() -> None:
    func = flatten_buffers(parse_func(TEXT))
    with pytest.raises(ProgramError, match="kind Either has no meaning"):
        interpret(func, {"y": np.zeros(32, np.float32)})
    target = get_target("cpu")
    with pytest.raises(InternalError, match="cannot print the statement Either"):
        render_kernel(func, 0, target.vocabulary, target.facts)
