"""Changing parts of a Func; everything else stays the same object."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import (
    Alloc,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Func,
    Iter,
    Let,
    Load,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
    all_of,
    seq,
    statements,
)
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import block_regions, variables_of
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.program import ranges
from compiler.schedule.regions import Inner, box, clip, region_of


def map_statements(stmt: Stmt, fn: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Rewrite top-down: where `fn` gives a statement it is taken as it is, else the children are visited."""
    new = fn(stmt)
    if new is not None:
        return new
    return stmt.map_bodies(lambda child: map_statements(child, fn))


def name_of(stmt: For | Block) -> str:
    """The name by which a loop or block is known."""
    return stmt.name if isinstance(stmt, Block) else stmt.var.name


def replace_statements(func: Func, new: Mapping[str, Stmt]) -> Func:
    """Replace loops and blocks by name; a sequence that gets into another becomes part of it."""

    def swap(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Seq):
            parts = tuple(map_statements(item, swap) for item in stmt.stmts)
            return stmt if all(map(operator.is_, parts, stmt.stmts)) else seq(*parts)
        return new.get(name_of(stmt)) if isinstance(stmt, For | Block) else None

    return func.replace(body=map_statements(func.body, swap))


def map_blocks(stmt: Stmt, fn: Callable[[Block], Stmt]) -> Stmt:
    """Apply `fn` to the outer blocks of a subtree."""
    return map_statements(stmt, lambda item: fn(item) if isinstance(item, Block) else None)


def rebind(stmt: Stmt, values: Mapping[str, Expr], known: Mapping[str, tuple[int, int]]) -> Stmt:
    """Replace loop variables by expressions in the loops, bindings and predicates of a subtree.

    `known` has the ranges of all variables around `stmt` and of those in the new expressions.
    """
    simplifier = Simplifier(known)

    def visit(item: Stmt) -> Stmt:
        if isinstance(item, Block):
            return _rebind_block(item, values, simplifier)
        if isinstance(item, For):
            extent = simplifier.simplify(substitute(item.extent, values))
            last = simplifier.interval(extent)[1]
            if last is not None and last >= 1:
                simplifier.bind(item.var.name, 0, last - 1)
            return item.replace(extent=extent, body=visit(item.body))
        return item.map_children(
            lambda child: (
                visit(child)
                if isinstance(child, Stmt)
                else substitute(child, values)
                if isinstance(child, Expr)
                else child
            )
        )

    return visit(stmt)


def _rebind_block(block: Block, values: Mapping[str, Expr], simplifier: Simplifier) -> Block:
    """Replace loop variables in the bindings and the predicate of one block."""
    iters = tuple(
        item.replace(binding=simplifier.simplify(substitute(item.binding, values))) for item in block.iters
    )
    predicate = block.predicate
    if predicate is not None:
        predicate = all_of(simplifier.simplify(substitute(predicate, values)))
    return block.replace(iters=iters, predicate=predicate)


def add_predicate(stmt: Stmt, cond: Expr) -> Stmt:
    """Run the blocks of a subtree only where `cond` (over loop variables) holds."""
    return map_blocks(stmt, lambda block: block.replace(predicate=all_of(block.predicate, cond)))


def duplicate(stmt: Stmt, fresh: Callable[[str], str]) -> Stmt:
    """A copy of a subtree in which loops, blocks and iteration variables have fresh names."""
    names: dict[str, Expr] = {}
    blocks: dict[str, str] = {}
    for item in statements(stmt):
        if isinstance(item, Block):
            blocks[item.name] = fresh(item.name)
        names.update({var.name: var.replace(name=fresh(var.name)) for var in variables_of(item)})

    def rename(item: Stmt) -> Stmt:
        new = item.map_bodies(rename)
        return new.replace(name=blocks[new.name]) if isinstance(new, Block) else new

    return rename(substitute(stmt, names))


def nest(loops: Iterable[For], body: Stmt) -> Stmt:
    """Put `body` into copies of `loops`, outermost first."""
    for loop in reversed(tuple(loops)):
        body = loop.replace(body=body)
    return body


def nest_of(block: Block) -> Stmt:
    """A block whose bindings are variables, under one loop for each of them."""
    stmt: Stmt = block
    for item in reversed(block.iters):
        assert isinstance(item.binding, Var)
        stmt = For(item.binding, item.extent, stmt)
    return stmt


# ---------------------------------------------------------------- blocks


def without_block(body: Stmt, name: str) -> Stmt:
    """The statement without a block and without the loops that only held it."""
    if isinstance(body, Block) and body.name == name:
        return Seq(())
    new = body.map_bodies(lambda child: without_block(child, name))
    if new is body:
        return body
    if isinstance(new, Seq):
        return seq(*new.stmts)
    return new.body if isinstance(new, For) and new.body == Seq(()) else new


def fresh_iters(fresh: Callable[[str], str], name: str, extents: Iterable[Expr]) -> tuple[Iter, ...]:
    """New spatial iteration variables, each with a new loop's variable as its value, for a block `name`."""
    made = []
    for number, extent in enumerate(extents):
        loop = Var(fresh(f"{name}_i{number}"))
        made.append(Iter(Var(fresh(f"v{loop.name}")), extent, "spatial", loop))
    return tuple(made)


def copying(
    name: str, iters: tuple[Iter, ...], target: Buffer, source: Buffer, at: tuple[Expr, ...]
) -> Block:
    """A block that copies an element from one buffer to the same place in another."""
    return declared(Block(name, iters, (), (), Store(target, at, Load(source, at))))


def holds(item: IRNode, names: set[str]) -> bool:
    """Whether one of the named blocks is in a statement."""
    return any(isinstance(found, Block) and found.name in names for found in item.walk())


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


def update_of(body: Stmt) -> tuple[str, Expr] | None:
    """`(op, x)` of a store `C = C op x`, whatever side C is on; None for any other statement."""
    if not isinstance(body, Store) or not isinstance(body.value, Binary):
        return None
    own = Load(body.buffer, body.indices)
    others = [item for item in (body.value.a, body.value.b) if item != own]
    return (body.value.op, others[0]) if len(others) == 1 else None


def swap_buffer(func: Func, new: Buffer) -> Func:
    """The declaration of the buffer with the name of `new` exchanged; uses in the body stay as they are."""
    return func.replace(
        params=tuple(new if item.name == new.name else item for item in func.params),
        allocs=tuple(new if item.name == new.name else item for item in func.allocs),
    )


# ---------------------------------------------------------------- buffers


N = TypeVar("N", bound=IRNode)
_MANY = 1 << 30
"""Of iterations, or elements, whose number is not known."""


def use_buffer(item: N, old: str, new: Buffer) -> N:
    """The node with every use of a buffer exchanged; indices stay."""
    return rewrite_nodes(item, lambda found: new if isinstance(found, Buffer) and found.name == old else None)


def with_buffer(func: Func, new: Buffer) -> Func:
    """The function with a buffer exchanged for another one of its name, everywhere."""
    changed = swap_buffer(func, new)
    return changed.replace(body=use_buffer(changed.body, new.name, new))


def declared(block: Block) -> Block:
    """A block without inner blocks with its region declarations made anew from its body.

    What a reduction starts from (`init`) touches the elements that the body updates, so it adds nothing.
    """
    reads, writes = (_from_outside(block, found) for found in block_regions(block.body))
    return block.replace(reads=reads, writes=writes)


def _from_outside(block: Block, found: Sequence[Region]) -> tuple[Region, ...]:
    """Regions while the loops of a block's body run, without buffers that only the body has."""
    parts = list(block.body.walk())
    private = {item.buffer for item in parts if isinstance(item, Alloc)}
    moving = Inner({item.var.name: int_of(item.extent) or _MANY for item in parts if isinstance(item, For)})
    own = {item.var.name for item in parts if isinstance(item, Let)}
    known = Simplifier(ranges(block.iters))

    def is_inside(begin: Expr) -> bool:
        """Whether a place is known to the body alone."""
        loaded = any(isinstance(item, Load) and item.buffer in private for item in begin.walk())
        return loaded or not own.isdisjoint(variables(begin))

    def around(region: Region) -> Region:
        names = {name for begin in region.begin for name in variables(begin)}
        inside = [is_inside(begin) for begin in region.begin]
        if names.isdisjoint(moving.extents) and not any(inside):
            return region
        rows = zip(box(region, {}, moving, known), inside, region.buffer.shape, strict=True)
        clipped = [clip(None if here else span, int_of(n) or _MANY, known) for span, here, n in rows]
        return region_of(region.buffer, clipped, known)

    return tuple(dict.fromkeys(around(item) for item in found if item.buffer not in private))
