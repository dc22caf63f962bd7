"""Loop nests around a block: which loops are its own, what they run over, and new nests for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from compiler.core.types import INDEX
from compiler.loops.ir import (
    Binary,
    Block,
    Const,
    Expr,
    For,
    ForKind,
    Iter,
    Seq,
    Stmt,
    Var,
    const,
)
from compiler.loops.linear import Linear, conjuncts, operands, single
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.program import Fresh, Site
from compiler.schedule.regions import Span, executed
from compiler.schedule.rewriting import nest

Refusal = Callable[[str, str, str], ScheduleError]
"""Makes an error of (what, why, hint)."""


def loop_name_of(item: Iter) -> str:
    """The name for a new loop over an iteration variable: that of its loop when it has one."""
    if isinstance(item.binding, Var):
        return item.binding.name
    return item.var.name.removeprefix("v") or item.var.name


def own_loops(site: Site, refuse: Refusal) -> list[For]:
    """The loops that hold only this block and stand one to one for its iteration variables, outermost first.

    Loops of one iteration that no variable uses may lie between them. `refuse` makes the error for others.
    """
    extents = {loop.var.name: loop.extent for loop in site.loops}
    wanted = {
        item.binding.name
        for item in site.block.iters
        if isinstance(item.binding, Var) and extents.get(item.binding.name) == item.extent
    }
    if len(wanted) < len([i for i in site.block.iters if int_of(i.extent) != 1 or variables(i.binding)]):
        raise refuse(
            "its loops were split or fused",
            "an iteration variable is not the variable of one loop",
            "do this before splitting and fusing its loops",
        )
    own = [loop for loop in site.loops if loop.var.name in wanted]
    below = list(site.loops[site.loops.index(own[0]) :]) if own else []
    used = {name for item in site.block.iters for name in variables(item.binding)}
    others = [loop for loop in below if loop.var.name not in wanted]
    between = any(loop.extent != const(1) or loop.var.name in used for loop in others)
    if between or site.block.predicate is not None:
        raise refuse(
            "other loops lie between its loops",
            "the loops of the block have to be innermost and without predicate",
            "do this before moving the block",
        )
    for loop in below:
        if isinstance(loop.body, Seq):
            raise refuse(
                f"loop {loop.var.name} holds other blocks too",
                "only the loops of this block can be replaced",
                "do this before computing others at its loops",
            )
        if loop.kind is not ForKind.SERIAL:
            raise refuse(
                f"loop {loop.var.name} is already {loop.kind.value}",
                "the new loops have no place for that",
                f"make loops {loop.kind.value} after this step",
            )
    return own


# ---------------------------------------------------------------- new nests


def make_nest(
    block: Block,
    spans: Mapping[str, Span],
    known: Simplifier,
    fresh: Fresh,
    conditions: Iterable[Expr] = (),
    *,
    unit_loops: bool = False,
) -> tuple[Stmt, tuple[str, ...]]:
    """The block under a new loop for each iteration variable with more than one value, and their names.

    spans: where each variable runs; a variable that is missing runs over its whole domain. fresh: names a
    loop; `str` keeps the names that the bindings have. conditions: more conditions, over iteration and
    outer loop variables. Only what cannot be proved becomes a predicate. unit_loops: make loops of one
    iteration, too.
    """
    loops: list[For] = []
    iters: list[Iter] = []
    checks: list[Expr] = []
    for item in block.iters:
        span = spans.get(item.var.name)
        begin = Linear({}, 0) if span is None else span.begin
        extent = item.extent if span is None else const(span.extent)
        binding = known.emit(begin)
        if unit_loops or int_of(extent) != 1:
            var = Var(fresh(loop_name_of(item)))
            loops.append(For(var, extent, block))
            length = int_of(extent)
            if length is not None:
                known = known.bind(var.name, 0, length - 1)
            binding = known.simplify(var if not begin.terms and not begin.constant else binding + var)
        if span is not None:
            checks.append(known.simplify(binding.ge(const(0, INDEX))))
            checks.append(known.simplify(binding.lt(item.extent)))
        iters.append(item.replace(binding=binding))
    values = {item.var.name: item.binding for item in iters}
    checks.extend(known.simplify(substitute(item, values)) for item in conditions)
    new = block.replace(iters=tuple(iters), predicate=conjunction(checks))
    return nest(loops, new), tuple(loop.var.name for loop in loops)


def conjunction(items: Iterable[Expr]) -> Expr | None:
    """The conditions joined with `and`, without repetition; None when nothing is left to check."""
    result: Expr | None = None
    for item in dict.fromkeys(part for whole in items for part in operands(whole, "and")):
        if not (isinstance(item, Const) and item.value):
            result = item if result is None else Binary("and", result, item)
    return result


def own_conditions(site: Site, shared: set[str]) -> list[Expr] | None:
    """The predicate of a block in terms of its iteration variables, without what their domains imply.

    shared: loop variables that stay around the block wherever it goes. None when a condition is about other
    loop variables.
    """
    if site.block.predicate is None:
        return []
    known = site.known
    sums = [(loops, _row_major(members)) for loops, members in _binding_sums(site.block.iters, known)]
    allowed = shared | {item.var.name for item in site.block.iters}
    result: list[Expr] = []
    for cond in conjuncts(site.block.predicate):
        renamed = _in_iters(cond, sums, known)
        if renamed is None or not variables(renamed) <= allowed:
            return None
        simple = known.simplify(renamed)
        if not (isinstance(simple, Const) and simple.value):
            result.append(simple)
    return result


def executed_box(site: Site, shared: set[str]) -> dict[str, Span] | None:
    """Spans of the iteration variables that do not run over their whole domain while `shared` stand still.

    None when the iterations that run are not known to be a box.
    """
    known = site.known
    inner = site.moving(shared, known)
    groups = _binding_sums(site.block.iters, known)
    found = executed(site.block.iters, groups, inner, known)
    if found is None:
        return None
    reduce = {item.var.name for item in site.block.iters if item.kind == "reduce"}
    return found if reduce.isdisjoint(found) else None


def _binding_sums(iters: Sequence[Iter], known: Simplifier) -> list[tuple[Linear, Sequence[Iter]]]:
    """Sums of loop variables with the neighbouring iteration variables whose row-major number they are."""
    found: list[tuple[Linear, Sequence[Iter]]] = []
    for last in range(len(iters)):
        loops, stride = Linear({}, 0), 1
        for first in range(last, -1, -1):
            item = iters[first]
            extent = int_of(item.extent)
            term = known.simplify(item.binding * stride)
            loops = known.linear(Binary("add", known.emit(loops), term))
            found.append((loops, iters[first : last + 1]))
            if extent is None:
                break
            stride *= extent
    return sorted(found, key=lambda pair: len(pair[1]))


def _row_major(members: Sequence[Iter]) -> Linear:
    total, stride = Linear({}, 0), 1
    for item in reversed(members):
        total = total.plus(single(item.var), stride)
        stride *= int_of(item.extent) or 1
    return total


def _in_iters(cond: Expr, sums: list[tuple[Linear, Linear]], known: Simplifier) -> Expr | None:
    if not isinstance(cond, Binary):
        return None
    total = known.linear(cond.a).plus(known.linear(cond.b), -1)
    for loops, iteration in sums:
        if not loops.terms:
            continue
        atom, factor = next(iter(loops.terms.items()))
        times = total.terms.get(atom, 0)
        if times and times % factor == 0:
            reduced = total.plus(loops, -times // factor)
            if all(item not in reduced.terms for item in loops.terms):
                total = reduced.plus(iteration, times // factor)
    return Binary(cond.op, known.emit(total), const(0))
