"""A budget of text: unrolled loops run serially again where a kernel would become longer than it.

Every rule unrolls little. What that comes to with tiles, taps, borders and operators behind them is seen here
alone: a kernel that the C++ compiler takes minutes for is worth less than a slower one.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.loops.ir import For, ForKind, Func, Stmt
from compiler.loops.queries import int_of
from compiler.loops.walk import Rewriter, with_body

MOST_LINES = 2000
"""Lines of a body; vectors, tails and declarations, which come later, add up to half as many."""


def limit_unrolling(func: Func) -> Func:
    """Leave the largest unrolled nests serial until the text fits, the outermost loops of a nest first."""
    longest = MOST_LINES
    body = func.body
    while longest and _printed_lines(body) > MOST_LINES:
        longest //= 2
        body = _Serial(longest).visit(func.body)
    return with_body(func, body)


def _printed_lines(stmt: Stmt) -> int:
    """Statements, as often as they are printed."""
    below = sum(map(_printed_lines, stmt.bodies()))
    if isinstance(stmt, For) and stmt.kind is ForKind.UNROLLED:
        return below * (int_of(stmt.extent) or 1)
    return 1 + below


@dataclass(eq=False)
class _Serial(Rewriter):
    """Makes unrolled loops of more than `longest` lines serial."""

    longest: int

    def visit_for(self, item: For) -> Stmt:
        is_long = item.kind is ForKind.UNROLLED and _printed_lines(item) > self.longest
        return self.parts(item.replace(kind=ForKind.SERIAL) if is_long else item)
