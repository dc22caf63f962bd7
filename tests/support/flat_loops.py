"""Small functions of flat loops, written as text, and what is asked of them after a pass."""

from __future__ import annotations

from compiler.loops.ir import (
    Func,
    IRNode,
)
from compiler.loops.text import parse_func, print_func
from compiler.targets import get_target

V4 = get_target("cpu:x86-64-v4").facts
BASE = get_target("cpu:x86-64").facts  # 128-bit vectors, no masks


def func(body: str, params: str = "x: f32[64]", result: str = "y: f32[64]") -> Func:
    lines = "\n".join(f"  {line}" for line in body.strip("\n").splitlines())
    return parse_func(f"func f({params}) -> ({result})\n{lines}\n")


def body_of(program: Func) -> str:
    """The statements as text, without indentation of the function."""
    lines = print_func(program).splitlines()[1:]
    return "\n".join(line[2:] for line in lines if line.strip())


def count(program: Func, kind: type[IRNode]) -> int:
    return sum(isinstance(item, kind) for item in program.body.walk())


def stripped(text: str) -> str:
    return "\n".join(line for line in text.strip("\n").splitlines())
