"""Changing parts of a Func; everything else stays the same object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from compiler.loops.ir import (
    Block,
    Expr,
    For,
    Func,
    Let,
    Seq,
    Stmt,
    Var,
    all_of,
    seq,
    statements,
)
from compiler.loops.simplify import Simplifier, substitute


def map_statements(stmt: Stmt, fn: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Rewrite top-down: where `fn` gives a statement it is taken as it is, else the children are visited.

    Sequences in sequences are flattened.
    """
    new = fn(stmt)
    if new is not None:
        return new
    rebuilt = stmt.map_children(lambda child: map_statements(child, fn) if isinstance(child, Stmt) else child)
    return seq(*rebuilt.stmts) if isinstance(rebuilt, Seq) and rebuilt is not stmt else rebuilt


def replace_statements(func: Func, new: Mapping[str, Stmt]) -> Func:
    """Replace loops and blocks by name; everything else stays the same object."""

    def swap(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, For):
            return new.get(stmt.var.name)
        return new.get(stmt.name) if isinstance(stmt, Block) else None

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
            return rebind_block(item, values, simplifier)
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


def rebind_block(block: Block, values: Mapping[str, Expr], simplifier: Simplifier) -> Block:
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
        if isinstance(item, For | Let):
            names[item.var.name] = item.var.replace(name=fresh(item.var.name))
        elif isinstance(item, Block):
            blocks[item.name] = fresh(item.name)
            names.update({it.var.name: it.var.replace(name=fresh(it.var.name)) for it in item.iters})

    def rename(item: Stmt) -> Stmt:
        new = item.map_children(lambda child: rename(child) if isinstance(child, Stmt) else child)
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
