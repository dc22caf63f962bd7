"""The walks over a loop program: what is around each node (`scoped`), and rebuilding it (`Rewriter`).

Passes and analyses use these, `ir.statements`, `Stmt.map_bodies` or `core.node.rewrite_nodes`, and no visitor
of their own: where a node has its parts, and what they are, its declaration says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar, cast

from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.types import INDEX
from compiler.loops.arith import Simplifier
from compiler.loops.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    For,
    Func,
    If,
    Indexed,
    Iter,
    Let,
    Region,
    Seq,
    Stmt,
    seq,
)
from compiler.loops.names import fresh
from compiler.loops.regions import buffers_of

N = TypeVar("N", bound=IRNode)
S = TypeVar("S", bound=Stmt)


@dataclass(frozen=True, slots=True)
class Scope:
    """What is around a node: the statements that it is in, outermost first, and their variables' ranges.

    An expression is in the statement that it belongs to, a loop's extent in the loop, too.
    """

    around: tuple[Stmt, ...] = ()
    known: Simplifier = field(default_factory=Simplifier)

    def inside(self, stmt: Stmt) -> Scope:
        """The scope of the parts of a statement."""
        return Scope((*self.around, stmt), _inside(self.known, stmt))

    @property
    def loops(self) -> tuple[For, ...]:
        """The loops around, outermost first."""
        return tuple(item for item in self.around if isinstance(item, For))

    @property
    def deciding(self) -> tuple[Expr, ...]:
        """Conditions of branches and extents of loops: whether and how often the place is reached."""
        return tuple(
            item.cond if isinstance(item, If) else item.extent
            for item in self.around
            if isinstance(item, If | For)
        )


def scoped(
    root: IRNode, scope: Scope | None = None, *, closed: Callable[[IRNode], bool] = lambda _: False
) -> Iterator[tuple[IRNode, Scope]]:
    """`root` and all nodes below it, parents first, each with what is around it.

    Buffers are yielded and not entered, nor is what `closed` holds of.
    """
    stack = [(root, scope or Scope())]
    while stack:
        item, here = stack.pop()
        yield item, here
        if not item.CHILD_FIELDS or isinstance(item, Buffer) or closed(item):
            continue
        if isinstance(item, Stmt):
            here = here.inside(item)
        stack += [(child, here) for child in reversed(item.children())]


@dataclass(eq=False)
class Rewriter:
    """Rebuilds statements; a method `visit_<class>(stmt)` replaces the default, which visits its bodies.

    `scope` is what is around the statement at hand, as it was rewritten so far. Where nothing changed, the
    same object comes back.
    """

    scope: Scope = field(default_factory=Scope, kw_only=True)

    uses_conditions: ClassVar[bool] = False
    """Whether a branch is rewritten with what its condition says of variables.

    What is in it has to stay there, and may not get the condition as a mask: it would always hold.
    """

    @property
    def known(self) -> Simplifier:
        """What is known of the loops around."""
        return self.scope.known

    def visit(self, item: Stmt) -> Stmt:
        """Rewrite one statement."""
        method = getattr(self, f"visit_{type(item).__name__.lower()}", None)
        return cast(Stmt, method(item)) if method is not None else self.parts(item)

    def visit_seq(self, item: Seq) -> Stmt:
        """Flattens sequences in a sequence, as passes that leave several statements for one make them."""
        done = self.parts(item)
        nested = any(isinstance(one, Seq) for one in done.stmts)
        return seq(*done.stmts) if nested or done is not item else item

    def part(self, item: N) -> N:
        """What becomes of an expression, a region or a buffer of a statement."""
        return item

    def parts(self, item: S) -> S:
        """Rewrite what is in a statement."""
        outer, self.scope = self.scope, self.scope.inside(item)
        done = item.map_parts(
            lambda child: self._inner(item, child) if isinstance(child, Stmt) else self.part(child)
        )
        self.scope = outer
        return done

    def _inner(self, item: Stmt, child: Stmt) -> Stmt:
        """Rewrite a statement of a statement."""
        if not (self.uses_conditions and isinstance(item, If) and child is item.then):
            return self.visit(child)
        around, self.scope = self.scope, replace(self.scope, known=self.known.where(item.cond))
        done = self.visit(child)
        self.scope = around
        return done


def _inside(known: Simplifier, stmt: Stmt) -> Simplifier:
    """What is known of variables inside a statement."""
    if isinstance(stmt, For):
        return bind_loop(known, stmt)
    if isinstance(stmt, Block):
        for item in stmt.iters:
            known = bind_loop(known, item)
    if isinstance(stmt, Let) and stmt.var.type == INDEX:
        low, high = known.interval(stmt.value)
        return known if low is None or high is None else known.bind(stmt.var.name, low, high)
    return known


class AccessRewriter(Rewriter):
    """Rebuilds what names a place in memory: loads, stores, addresses and boxes."""

    def place(self, item: Indexed | Region) -> IRNode:
        """What becomes of one of them; what is in it was rebuilt before."""
        raise NotImplementedError

    def part(self, item: N) -> N:
        return rewrite_nodes(item, self._placed)

    def parts(self, item: S) -> S:
        return cast(S, self._placed(super().parts(item)))

    def _placed(self, item: IRNode) -> IRNode:
        return self.place(item) if isinstance(item, Indexed | Region) else item


def bind_loop(known: Simplifier, loop: For | Iter) -> Simplifier:
    """The simplifier inside a loop: its variable runs from 0 to the largest extent less one."""
    longest = known.interval(loop.extent)[1]
    return known if longest is None or longest < 1 else known.bind(loop.var.name, 0, longest - 1)


def replace_buffers(root: N, changes: dict[Buffer, Buffer]) -> N:
    """Exchange buffers wherever they occur."""
    if not changes:
        return root
    return rewrite_nodes(root, lambda item: changes.get(item) if isinstance(item, Buffer) else None)


def with_own_buffers(body: Stmt, taken: set[str]) -> Stmt:
    """A copy whose allocations have names of their own; `taken` grows by them."""
    buffers = [buffer for item in body.walk() for buffer in buffers_of(item)]
    return replace_buffers(body, {item: item.replace(name=fresh(item.name, taken)) for item in buffers})


def allocating(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """A statement with the allocations that it needs around it, in order."""
    for buffer in reversed(buffers):
        body = Alloc(buffer, body)
    return body


def allocated(item: Stmt) -> tuple[list[Buffer], Stmt]:
    """Buffers that are allocated together, outermost first, and what they are allocated for."""
    buffers: list[Buffer] = []
    while isinstance(item, Alloc):
        buffers.append(item.buffer)
        item = item.body
    return buffers, item


def with_body(func: Func, body: Stmt) -> Func:
    """The Func with another body; itself when nothing changed."""
    return func if body is func.body else func.replace(body=body)


def is_empty(stmt: Stmt) -> bool:
    """Whether a statement is the empty sequence."""
    return isinstance(stmt, Seq) and not stmt.stmts
