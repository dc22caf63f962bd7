"""Delinearisation: fused loops are taken apart where their parts are used; no divisions in indices.

A loop over f in 0..n whose body speaks of `f // c` and `f % c` becomes a loop over n // c with one over c
inside. Serial loops are always split. A parallel loop keeps enough iterations to share among threads, and its
inner part becomes serial.

On GPUs a loop whose pipeline runs ahead stays whole: parts of `f + c` do not fall together with those of `f`,
and digits of one number are carried along (`render/loop_indices.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.ir import Binary, Const, Expr, For, ForKind, Func, Stmt, Var, binary, const
from compiler.loops.linear import divisor, is_division, is_masked
from compiler.loops.names import fresh
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import simplify_stmt, substitute
from compiler.loops.walk import Rewriter, with_body

PARALLEL_ITERATIONS = 96
"""A parallel loop is not split below so many iterations."""


def split_fused(func: Func, facts: TargetFacts) -> Func:
    """Split loops by the divisors of their variables."""
    split = _Split(set(variables(func.body)), carries=facts.binds_threads)
    return with_body(func, split.visit(func.body))


@dataclass(eq=False)
class _Split(Rewriter):
    names: set[str]
    carries: bool

    def visit_for(self, item: For) -> Stmt:
        return self.parts(self._split(item))

    def _split(self, loop: For) -> For:
        """The loop, or the outer one of those that it becomes."""
        extent = int_of(loop.extent)
        least = PARALLEL_ITERATIONS if loop.kind is ForKind.PARALLEL else 2
        if extent is None or loop.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
            return loop
        if self.carries and _runs_ahead(loop):
            return loop
        size = min((n for n in _divisors(loop) if extent % n == 0 and extent // n >= least), default=None)
        if size is None:
            return loop
        outer, inner = (Var(fresh(f"{loop.var.name}_{part}", self.names)) for part in "oi")
        value = binary("add", binary("mul", outer, size), inner)
        known = self.known.bind(outer.name, 0, extent // size - 1).bind(inner.name, 0, size - 1)
        body = simplify_stmt(substitute(loop.body, {loop.var.name: value}), known)
        inside = For(inner, const(size), body)
        return self._split(loop.replace(var=outer, extent=const(extent // size), body=inside))


def _divisors(loop: For) -> set[int]:
    """Numbers above 1 by which the variable itself is divided."""
    return {divisor(item) for item in _divisions(loop) if item.a == loop.var and divisor(item) > 1}


def _runs_ahead(loop: For) -> bool:
    """Whether the variable and a number together are divided by something that is no power of two."""
    shifted = (item for item in _divisions(loop) if _is_shifted(item.a, loop.var))
    return not all(is_masked(divisor(item)) for item in shifted)


def _is_shifted(value: Expr, var: Var) -> bool:
    return isinstance(value, Binary) and value.op == "add" and value.a == var and isinstance(value.b, Const)


def _divisions(loop: For) -> Iterator[Binary]:
    for item in loop.body.walk():
        if isinstance(item, Expr) and (is_division(item, "floordiv") or is_division(item, "floormod")):
            yield item
