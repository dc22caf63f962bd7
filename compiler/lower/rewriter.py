"""Base of the lowering passes: a rewriter with one method per node class that knows the enclosing loops."""

from __future__ import annotations

from typing import TypeVar, cast

from compiler.core.node import Node, rewrite
from compiler.loops.ir import Alloc, Buffer, For, Func, Seq, Stmt
from compiler.loops.names import fresh
from compiler.loops.queries import int_of
from compiler.loops.simplify import Simplifier

N = TypeVar("N", bound=Node)


class Rewriter:
    """Rebuilds a program; a method `visit_<class>(node)` replaces the default, which visits the children.

    `sim` simplifies under the ranges of the enclosing loops. Where nothing changed, the same
    object comes back.
    """

    def __init__(self) -> None:
        self.sim = Simplifier()

    def visit(self, item: N) -> N:
        """Rewrite one node (statement or expression)."""
        method = getattr(self, f"visit_{type(item).__name__.lower()}", None)
        return cast(N, method(item) if method is not None else self.children(item))

    def children(self, item: N) -> N:
        """Rewrite the children of a node."""
        return item.map_children(self.visit)

    def visit_buffer(self, item: Buffer) -> Buffer:
        """Buffers are changed as a whole or not at all."""
        return item

    def visit_for(self, item: For) -> Stmt:
        """Enter a loop."""
        return self.loop(item)

    def loop(self, item: For) -> For:
        """The default for loops: rewrite the body with the variable's range known."""
        outer = self.sim
        self.sim = bind_loop(outer, item)
        body = self.visit(item.body)
        self.sim = outer
        return item if body is item.body else item.replace(body=body)


def bind_loop(sim: Simplifier, loop: For) -> Simplifier:
    """The simplifier inside a loop: its variable runs from 0 to the largest extent less one."""
    high = sim.interval(loop.extent)[1]
    return sim if high is None else sim.bind(loop.var.name, 0, max(0, high - 1))


def extents(buffer: Buffer) -> tuple[int | None, ...]:
    """The shape of a buffer as numbers; None where an extent is symbolic."""
    return tuple(int_of(item) for item in buffer.shape)


def replace_buffers(root: N, changes: dict[Buffer, Buffer]) -> N:
    """Exchange buffers wherever they occur."""
    if not changes:
        return root
    return rewrite(root, lambda item: changes.get(item) if isinstance(item, Buffer) else None)


def with_own_buffers(body: Stmt, taken: set[str]) -> Stmt:
    """A copy whose allocations have names of their own; `taken` grows by them."""
    buffers = [item.buffer for item in body.walk() if isinstance(item, Alloc)]
    return replace_buffers(body, {item: item.replace(name=fresh(item.name, taken)) for item in buffers})


def with_body(func: Func, body: Stmt) -> Func:
    """The Func with another body; itself when nothing changed."""
    return func if body is func.body else func.replace(body=body)


def is_empty(stmt: Stmt) -> bool:
    """Whether a statement is the empty sequence."""
    return isinstance(stmt, Seq) and not stmt.stmts
