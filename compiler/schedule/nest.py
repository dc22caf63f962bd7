"""Where blocks are in a Func, and taking them out of and putting them into loop nests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from compiler.core.diagnostics import did_you_mean
from compiler.core.node import Node, rewrite
from compiler.core.types import INDEX
from compiler.loops.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    Load,
    Region,
    Seq,
    Stmt,
    Var,
    const,
    seq,
)
from compiler.loops.linear import Linear, operands
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import block_regions
from compiler.loops.simplify import Simplifier
from compiler.schedule.errors import ScheduleError
from compiler.schedule.program import Program
from compiler.schedule.regions import Span, executed, limits_of

Refusal = Callable[[str, str, str], ScheduleError]
"""Makes an error of (what, why, hint)."""


@dataclass(frozen=True, slots=True)
class Site:
    """A block and the loops around it, outermost first; `inside` names the block that contains it."""

    block: Block
    loops: tuple[For, ...]
    inside: str | None
    order: int

    @property
    def name(self) -> str:
        return self.block.name

    def under(self, loop: str) -> bool:
        return any(item.var.name == loop for item in self.loops)

    def reads(self, buffer: str) -> list[Region]:
        """The declared reads of a buffer; a block that only adds to a buffer reads what it writes."""
        found = [item for item in self.block.reads if item.buffer.name == buffer]
        if not found and self.block.init is None and reads_itself(self.block.body, buffer):
            return self.writes(buffer)
        return found

    def writes(self, buffer: str) -> list[Region]:
        return [item for item in self.block.writes if item.buffer.name == buffer]

    @property
    def values(self) -> dict[str, Expr]:
        """What the iteration variables stand for."""
        return {item.var.name: item.binding for item in self.block.iters}


def sites(func: Func) -> dict[str, Site]:
    """All blocks by name, in program order."""
    found: dict[str, Site] = {}

    def visit(item: Node, loops: tuple[For, ...], inside: str | None) -> None:
        if isinstance(item, Block):
            found[item.name] = Site(item, loops, inside, len(found))
            loops, inside = (), item.name
        elif isinstance(item, For):
            loops = (*loops, item)
        for child in item.children():
            if isinstance(child, Stmt):
                visit(child, loops, inside)

    visit(func.body, (), None)
    return found


def loop_bounds(loops: Iterable[For]) -> dict[str, tuple[int, int]]:
    """Ranges of the variables of loops with literal extents."""
    found: dict[str, tuple[int, int]] = {}
    for item in loops:
        extent = int_of(item.extent)
        if extent is not None and extent > 0:
            found[item.var.name] = (0, extent - 1)
    return found


def iter_bounds(iters: Iterable[Iter]) -> dict[str, tuple[int, int]]:
    """Ranges of iteration variables with literal extents."""
    found: dict[str, tuple[int, int]] = {}
    for item in iters:
        extent = int_of(item.extent)
        if extent is not None and extent > 0:
            found[item.var.name] = (0, extent - 1)
    return found


def loop_name_of(item: Iter) -> str:
    """The name for a new loop over an iteration variable: that of its loop when it has one."""
    if isinstance(item.binding, Var):
        return item.binding.name
    return item.var.name.removeprefix("v") or item.var.name


# ---------------------------------------------------------------- editing


def without_block(body: Stmt, name: str) -> Stmt:
    """The statement without a block and without the loops that only held it."""
    if isinstance(body, Block) and body.name == name:
        return Seq(())
    if isinstance(body, Seq):
        kept = [without_block(item, name) for item in body.stmts]
        if all(a is b for a, b in zip(kept, body.stmts, strict=True)):
            return body
        return seq(*kept)
    if isinstance(body, For | Block):
        inner = without_block(body.body, name)
        if inner is body.body:
            return body
        return inner if inner == Seq(()) and isinstance(body, For) else body.replace(body=inner)
    return body.map_children(lambda child: without_block(child, name) if isinstance(child, Stmt) else child)


def holds(item: Node, names: set[str]) -> bool:
    """Whether one of the named blocks is in a statement."""
    return any(isinstance(found, Block) and found.name in names for found in item.walk())


def replace_loop_body(func: Func, loop: str, change: Callable[[Stmt], Stmt]) -> Func:
    """The Func with the body of one loop changed."""

    def visit(item: Node) -> Node:
        if isinstance(item, For) and item.var.name == loop:
            return item.replace(body=change(item.body))
        return item.map_children(lambda child: visit(child) if isinstance(child, Stmt) else child)

    body = visit(func.body)
    assert isinstance(body, Stmt)
    return func if body is func.body else func.replace(body=body)


def put_before(body: Stmt, names: set[str], new: Stmt) -> Stmt:
    """`new` before the first of the statements in sequence that holds one of the named blocks."""
    parts = body.stmts if isinstance(body, Seq) else (body,)
    at = next(number for number, item in enumerate(parts) if holds(item, names))
    return seq(*parts[:at], new, *parts[at:])


def put_after(body: Stmt, names: set[str], new: Stmt) -> Stmt:
    """`new` after the last of the statements in sequence that holds one of the named blocks."""
    parts = body.stmts if isinstance(body, Seq) else (body,)
    at = max(number for number, item in enumerate(parts) if holds(item, names)) + 1
    return seq(*parts[:at], new, *parts[at:])


def replace_block(func: Func, name: str, new: Block) -> Func:
    """The Func with one block exchanged."""

    def visit(item: Node) -> Node:
        if isinstance(item, Block) and item.name == name:
            return new
        return item.map_children(lambda child: visit(child) if isinstance(child, Stmt) else child)

    body = visit(func.body)
    assert isinstance(body, Stmt)
    return func.replace(body=body)


def find_buffer(func: Func, name: str, asked: str) -> Buffer:
    """The parameter or local buffer called `name`; ScheduleError when there is none."""
    for item in func.buffers:
        if item.name == name:
            return item
    names = [item.name for item in func.buffers]
    raise ScheduleError(
        f"{asked}: no buffer {name!r}",
        why="the program has no buffer of that name",
        hint=did_you_mean(name, names) or f"buffers here: {', '.join(names)}",
    )


def swap_buffer(func: Func, new: Buffer) -> Func:
    """The declaration of the buffer with the name of `new` exchanged; uses in the body stay as they are."""
    return func.replace(
        params=tuple(new if item.name == new.name else item for item in func.params),
        allocs=tuple(new if item.name == new.name else item for item in func.allocs),
    )


N = TypeVar("N", bound=Node)


def use_buffer(item: N, old: str, new: Buffer) -> N:
    """The node with every use of a buffer exchanged; indices stay."""
    return rewrite(item, lambda found: new if isinstance(found, Buffer) and found.name == old else None)


def reads_itself(body: Node, name: str) -> bool:
    """Whether a statement loads from the buffer called `name` what it did not start itself."""
    if isinstance(body, Block) and body.init is not None:
        return False
    if isinstance(body, Load) and body.buffer.name == name:
        return True
    return any(reads_itself(child, name) for child in body.children())


def declared(block: Block) -> Block:
    """A block of one piece with its region declarations made anew from its body.

    What a reduction starts from (`init`) touches the elements that the body updates, so it adds nothing.
    """
    reads, writes = block_regions(block.body)
    return block.replace(reads=reads, writes=writes)


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


def replace_stmt(func: Func, old: Stmt, new: Stmt) -> Func:
    """The Func with one statement (this very object) exchanged."""

    def visit(item: Stmt) -> Stmt:
        if item is old:
            return new
        return item.map_children(lambda child: visit(child) if isinstance(child, Stmt) else child)

    return func.replace(body=visit(func.body))


# ---------------------------------------------------------------- new nests


@dataclass(frozen=True, slots=True)
class Nest:
    """A block under new loops, and their names."""

    stmt: Stmt
    loops: tuple[str, ...]


def make_nest(
    block: Block,
    spans: Mapping[str, Span],
    conditions: Callable[[dict[str, Expr], Simplifier], list[Expr]],
    known: Simplifier,
    program: Program,
    *,
    unit_loops: bool = False,
) -> Nest:
    """The block under one new loop for each iteration variable that runs over more than one value.

    spans: where each variable runs; a variable that is missing runs over its whole domain. conditions: more
    conditions, made from the new bindings. Only what cannot be proved becomes a predicate. unit_loops: make
    loops of one iteration, too.
    """
    loops: list[tuple[Var, Expr]] = []
    iters: list[Iter] = []
    checks: list[Expr] = []
    for item in block.iters:
        span = spans.get(item.var.name)
        begin = Linear({}, 0) if span is None else span.begin
        extent = item.extent if span is None else const(span.extent)
        binding = known.emit(begin)
        if unit_loops or int_of(extent) != 1:
            var = Var(program.fresh(loop_name_of(item)))
            loops.append((var, extent))
            length = int_of(extent)
            if length is not None:
                known = known.bind(var.name, 0, length - 1)
            binding = known.simplify(var if not begin.terms and not begin.constant else binding + var)
        if span is not None:
            checks.append(known.simplify(binding.ge(const(0, INDEX))))
            checks.append(known.simplify(binding.lt(item.extent)))
        iters.append(item.replace(binding=binding))
    checks.extend(conditions({item.var.name: item.binding for item in iters}, known))
    stmt: Stmt = block.replace(iters=tuple(iters), predicate=conjunction(checks))
    for var, extent in reversed(loops):
        stmt = For(var, extent, stmt)
    return Nest(stmt, tuple(var.name for var, _ in loops))


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
    known = Simplifier({**loop_bounds(site.loops), **iter_bounds(site.block.iters)})
    sums = [(loops, _row_major(members)) for loops, members in binding_sums(site.block.iters, known)]
    allowed = shared | {item.var.name for item in site.block.iters}
    result: list[Expr] = []
    for cond in operands(site.block.predicate, "and"):
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
    known = Simplifier({**loop_bounds(site.loops), **iter_bounds(site.block.iters)})
    extents = {item.var.name: int_of(item.extent) or 1 for item in site.loops if item.var.name not in shared}
    inner = limits_of(site.block.predicate, extents, known)
    groups = binding_sums(site.block.iters, known)
    found = executed(site.block.iters, groups, inner, known)
    if found is None:
        return None
    reduce = {item.var.name for item in site.block.iters if item.kind == "reduce"}
    return found if reduce.isdisjoint(found) else None


def binding_sums(iters: Sequence[Iter], known: Simplifier) -> list[tuple[Linear, Sequence[Iter]]]:
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
        total = total.plus(Linear({item.var: stride}, 0))
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
