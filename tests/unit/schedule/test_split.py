"""split: every tail, before and after."""

from __future__ import annotations

from compiler.loops.build import Builder
from compiler.loops.ir import Func, Var, const
from compiler.schedule.schedule import Schedule


def scale(n: int) -> Func:
    b = Builder("scale")
    x = b.input("x", (n,))
    return b.finish([b.compute("y", (n,), lambda i: x[i] * 2.0)])


def test_exact_split_needs_no_predicate() -> None:
    s = Schedule(scale(48))
    outer, inner = s.split("y_i0", (None, 16))
    assert (outer, inner) == ("y_i0_0", "y_i0_1")
    assert s.loops("y") == ("y_i0_0", "y_i0_1")
    assert s.loop(outer).extent == const(3)
    assert s.block("y").predicate is None
    assert s.block("y").iters[0].binding == Var("y_i0_0") * 16 + Var("y_i0_1")
