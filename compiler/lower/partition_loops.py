"""Index-set splitting (loop peeling): an interior without a condition, and borders with what is left of it.

A condition that is linear in a loop variable is surely true on one interval of it, and surely false on
another, whatever the other variables are. These intervals cut the loop into pieces; in each piece the
condition is decided, or is handed to the loops further in. A parallel loop is not cut, because its pieces
would run one after the other; it chooses the piece of each iteration. Where it was fused of several, and a
condition is about one of these (`f % 5`), it chooses by that part. Unrolled loops need nothing: their
conditions are decided when they are printed. Vectorised loops that end early are masked instead, where the
target has masks. Programs of bound threads are left alone: a condition costs them little, and copies of a
loop cost registers and instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from compiler.core.capabilities import MASKED_MEMORY
from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.target import TargetFacts
from compiler.loops.annotations import PARTITION
from compiler.loops.ir import (
    COMPARISONS,
    Binary,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Select,
    Stmt,
    Unary,
    Var,
    all_of,
    binary,
    const,
    seq,
)
from compiler.loops.linear import Linear, is_division, operands
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, renamed, simplify_stmt, substitute
from compiler.loops.walk import Rewriter, Scope, bind_loop, is_empty, with_body

MAX_PIECES = 6
MAX_WEIGHT = 6000
"""Nodes (with unrolled loops counted as often as they are printed) that the copies may have together."""


def partition_loops(func: Func, facts: TargetFacts) -> Func:
    """Cut loops so that conditions on loop variables do not stand in inner loops."""
    body = func.body
    if facts.binds_threads or next(_conditions(body), None) is None:
        return func
    return with_body(func, _Partition(names_in(body), MASKED_MEMORY in facts.intrinsics).visit(body))


@dataclass(eq=False)
class _Partition(Rewriter):
    names: set[str]
    masks: bool

    def visit_for(self, item: For) -> Stmt:
        extent = int_of(item.extent)
        if extent is None:
            return _unswitched(self.parts(item))
        if item.kind is ForKind.PARALLEL:
            return self._choose(item, extent)
        if not (cuts := self._cuts(item, item.var, extent)):
            return _unswitched(self.parts(item))
        return seq(*(self._piece(item, low, high) for low, high in pairwise([0, *cuts, extent])))

    def _choose(self, loop: For, extent: int) -> Stmt:
        """A parallel loop whose body is the piece that the variable, or a part of it, lies in."""
        if cuts := self._cuts(loop, loop.var, extent):
            body = self._chosen(loop, loop.body, loop.var, [0, *cuts, extent])
            return loop.replace(body=body)
        for part in _parts_of(loop):
            last = bind_loop(self.known, loop).interval(part)[1]
            if last is None or not (cuts := self._cuts(loop, part, last + 1)):
                continue
            var = Var(fresh(f"{loop.var.name}_part", self.names))
            body = self._chosen(loop, _replaced(loop.body, part, var), var, [0, *cuts, last + 1])
            return loop.replace(body=Let(var, part, body))
        return self.parts(loop)

    def _chosen(self, loop: For, body: Stmt, var: Var, ends: list[int]) -> Stmt:
        """The body of a loop, a copy for each piece of what `var` may be."""
        bodies, outer = [], self.scope
        for low, high in pairwise(ends):
            known = bind_loop(outer.known, loop).bind(var.name, low, high - 1)
            self.scope = Scope((*outer.around, loop), known)
            piece = simplify_stmt(renamed(body, self.names) if low else body, known)
            bodies.append((high, self.visit(piece)))
        self.scope = outer
        *firsts, (_, result) = bodies
        for high, piece in reversed(firsts):
            result = If(binary("lt", var, high), piece, None if is_empty(result) else result)
        return result

    def _piece(self, loop: For, low: int, high: int) -> Stmt:
        """The iterations low..high-1 as a loop of their own, with fresh names inside."""
        body = renamed(loop.body, self.names) if low else loop.body
        if high - low == 1:
            return self.visit(simplify_stmt(substitute(body, {loop.var.name: const(low)}), self.known))
        var = Var(fresh(loop.var.name, self.names)) if low else loop.var
        moved = substitute(body, {loop.var.name: binary("add", var, low)}) if low else body
        piece = simplify_stmt(moved, self.known.bind(var.name, 0, high - low - 1))
        if is_empty(piece):
            return piece
        return self.visit(loop.replace(var=var, extent=const(high - low), body=piece))

    def _cuts(self, loop: For, part: Expr, extent: int) -> list[int]:
        """Values of a part of the variable at which a piece begins, without 0; empty when it is no use."""
        if loop.kind in (ForKind.UNROLLED, ForKind.BOUND):
            return []
        sim = self.known
        for item in loop.walk():
            if isinstance(item, For):
                sim = bind_loop(sim, item)
        found: set[int] = set()
        masked = self.masks and loop.kind is ForKind.VECTORIZED
        for cond in _conditions(loop.body):
            if not (masked and _is_end(cond, loop.var, sim)):
                found.update(_changes(cond, part, sim))
        cuts = sorted(point for point in found if 0 < point < extent)
        if not cuts or len(cuts) >= MAX_PIECES:
            return []
        wanted = PARTITION in dict(loop.annotations)
        return cuts if wanted or _weight(loop.body) * (len(cuts) + 1) <= MAX_WEIGHT else []


def _unswitched(loop: For) -> Stmt:
    """The loop with what its variable does not change about the condition of its body asked once, outside."""
    branch = loop.body
    if not isinstance(branch, If) or branch.orelse is not None or loop.kind is ForKind.PARALLEL:
        return loop
    inside: list[Expr] = []
    outside: list[Expr] = []
    for part in operands(branch.cond, "and"):
        fixed = loop.var.name not in variables(part) and not any(isinstance(i, Load) for i in part.walk())
        (outside if fixed else inside).append(part)
    if not outside:
        return loop
    rest, once = all_of(*inside), all_of(*outside)
    assert once is not None
    return If(once, loop.replace(body=branch.then if rest is None else If(rest, branch.then)))


def _parts_of(loop: For) -> list[Expr]:
    """What conditions below a fused loop say about its variable: quotients and remainders, in order."""
    found: dict[Expr, None] = {}
    for cond in _conditions(loop.body):
        for item in cond.walk():
            if isinstance(item, Binary) and (is_division(item, "floordiv") or is_division(item, "floormod")):
                found |= {item: None} if variables(item.a) == {loop.var.name} else {}
    return list(found)


def _replaced(body: Stmt, old: Expr, new: Expr) -> Stmt:
    return rewrite_nodes(body, lambda item: new if item == old else None)


def _conditions(root: IRNode) -> Iterator[Binary]:
    """Comparisons inside the conditions of branches and selections below a node."""
    for item in root.walk():
        if isinstance(item, If | Select) and item.cond.dtype.lanes == 1:
            yield from _comparisons(item.cond)


def _comparisons(cond: Expr) -> Iterator[Binary]:
    if isinstance(cond, Binary) and cond.op in ("and", "or"):
        yield from _comparisons(cond.a)
        yield from _comparisons(cond.b)
    elif isinstance(cond, Unary) and cond.op == "not":
        yield from _comparisons(cond.a)
    elif isinstance(cond, Binary) and cond.op in COMPARISONS and cond.a.dtype.is_int:
        yield cond


def _changes(cond: Binary, part: Expr, sim: Simplifier) -> Iterator[int]:
    """Where the condition begins or stops to be surely true or surely false, as `part` grows."""
    if any(isinstance(item, Load) for item in cond.walk()):
        return
    difference = sim.linear(cond.a).plus(sim.linear(cond.b), -1)
    factor = difference.terms.get(part, 0)
    rest = {atom: count for atom, count in difference.terms.items() if atom != part}
    if factor == 0 or any(item == part for atom in rest for item in atom.walk()):
        return
    low, high = sim.range(Linear(rest, difference.constant))
    for limit in _limits(cond.op):
        for bound in (low, high):
            if abs(bound) != float("inf"):
                yield _first_above(factor, int(bound) - limit)


def _is_end(cond: Binary, var: Var, sim: Simplifier) -> bool:
    """Whether the condition says that the variable, plus something, is below something."""
    difference = sim.linear(cond.a).plus(sim.linear(cond.b), -1)
    return cond.op in ("lt", "le") and difference.coefficient(var.name) == 1


def _limits(op: str) -> tuple[int, ...]:
    """Truth of `d op 0` changes where d passes from below a limit to at or above it."""
    return {"lt": (0,), "ge": (0,), "le": (1,), "gt": (1,)}.get(op, (0, 1))


def _first_above(factor: int, rest: int) -> int:
    """Smallest v with factor * v + rest >= 0 (factor > 0), or with factor * v + rest < 0 (factor < 0)."""
    return -(rest // factor) if factor > 0 else rest // -factor + 1


def _weight(root: IRNode, unrolled: frozenset[str] = frozenset()) -> int:
    """Nodes as often as they are printed; of alternatives that unrolled loops decide, the larger one."""
    if isinstance(root, Select) and variables(root.cond) <= unrolled:
        return 1 + max(_weight(root.a, unrolled), _weight(root.b, unrolled))
    times = 1
    if isinstance(root, For) and root.kind is ForKind.UNROLLED:
        unrolled, times = unrolled | {root.var.name}, int_of(root.extent) or 1
    below = sum(1 if isinstance(child, Const) else _weight(child, unrolled) for child in root.children())
    return (1 + below) * times
