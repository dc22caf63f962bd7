"""Thread synchronisation: barriers where one thread uses what another one made.

The program consists of *leaves*, each run by every thread on its own, under loops and conditions that all
threads of a block run through together. Where two leaves touch the same memory that threads share, and at
least one of them writes it, all threads have to meet between the two. Loops are gone through again, so that
the end of an iteration is compared with the beginning of the next one. There, a leaf that only writes a
result, each of its spatial iterations another element, does not wait for itself. Parts of a buffer that take
turns (one is filled while another is used) are told apart by the loop variables of the access (`overlap.py`).

What blocks of a cluster pass to each other lies in memory of scope `cluster`: there all blocks have to meet.
A barrier of one block orders nothing of it. At a `LastBlock` the threads of each block meet, and the one that
goes on sees what all of them wrote: it takes no barrier in front, and nothing is pending behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from compiler.core.diagnostics import BadInputError
from compiler.loops.ir import (
    CLUSTER,
    CONSTANT,
    GLOBAL,
    SHARED,
    Alloc,
    Barrier,
    Block,
    Buffer,
    Expr,
    For,
    If,
    LastBlock,
    Load,
    Seq,
    Stmt,
    Store,
    const,
    seq,
    statements,
)
from compiler.loops.queries import int_of, variables
from compiler.lower.overlap import Footprint, Overlap, accesses, distance


@dataclass(frozen=True, slots=True)
class _Effects:
    """The memory that threads share, as one leaf uses it; `apart`: written, each time at other places."""

    leaf: int
    touched: tuple[Footprint, ...]
    apart: frozenset[str]

    def conflicts(self, other: _Effects, overlap: Overlap) -> bool:
        """Whether the order of the two matters."""
        return any(
            overlap.may_meet(a, b) and not self._grows(a, b, other)
            for a in self.touched
            for b in other.touched
        )

    def _grows(self, a: Footprint, b: Footprint, other: _Effects) -> bool:
        return self.leaf == other.leaf and a.write and b.write and a.name in self.apart

    def mapped(self, change: Callable[[Footprint], Footprint]) -> _Effects:
        return replace(self, touched=tuple(change(item) for item in self.touched))

    def within(self, names: frozenset[str]) -> _Effects:
        """Those on some buffers."""
        return replace(self, touched=tuple(item for item in self.touched if item.name in names))


_TWICE = 2
"""Iterations of a loop in which nothing is longer ago than the one before."""

_Pending = tuple[_Effects, ...]
"""What was done since all threads met."""


def is_shared(buffer: Buffer) -> bool:
    """Whether several threads see the same content of a buffer."""
    return buffer.scope in (SHARED, GLOBAL, CONSTANT, CLUSTER)


def insert_barriers(stmt: Stmt, leaves: Mapping[int, Stmt], threads: Mapping[str, int]) -> Stmt:
    """The statement with barriers before leaves that need them.

    leaves: by identity. threads: the variables that differ between threads, and how many values they take;
    without any, one thread runs alone and never waits. BadInputError where only some threads would come to a
    barrier.
    """
    return _Insert(stmt, leaves, threads).stmt(stmt, ())[0] if threads else stmt


class _Insert:
    def __init__(self, stmt: Stmt, leaves: Mapping[int, Stmt], threads: Mapping[str, int]) -> None:
        self._effects = {key: _effects(leaf) for key, leaf in leaves.items()}
        self._threads = frozenset(threads)
        self._overlap = Overlap(stmt, leaves.values(), threads)
        self._parted: list[str] = []
        buffers = {item for leaf in leaves.values() for item in leaf.walk() if isinstance(item, Buffer)}
        self._passed = frozenset(item.name for item in buffers if item.scope == CLUSTER)

    def stmt(self, stmt: Stmt, pending: _Pending) -> tuple[Stmt, _Pending]:
        """The statement with barriers, and what is pending after it."""
        if id(stmt) in self._effects:
            return self._leaf(stmt, pending)
        if isinstance(stmt, Barrier):
            return stmt, self._behind(stmt.scope, pending)
        if isinstance(stmt, For):
            return self._loop(stmt, pending)
        if isinstance(stmt, LastBlock):
            return self._last_block(stmt)
        if isinstance(stmt, If):
            return self._branch(stmt, pending)
        return self._other(stmt, pending)

    def _leaf(self, stmt: Stmt, pending: _Pending) -> tuple[Stmt, _Pending]:
        own = self._effects[id(stmt)]
        if not self._conflicts(own, pending):
            return stmt, (*pending, own)
        if self._parted:
            raise _divergent(self._parted[-1])
        passes = self._passed and self._conflicts(own.within(self._passed), pending)
        scope = CLUSTER if passes else SHARED
        return seq(Barrier(scope), stmt), (*self._behind(scope, pending), own)

    def _conflicts(self, own: _Effects, pending: _Pending) -> bool:
        return any(own.conflicts(item, self._overlap) for item in pending)

    def _behind(self, scope: str, pending: _Pending) -> _Pending:
        """What is still pending behind a barrier: what blocks pass to each other, if one block met alone."""
        if scope == CLUSTER or not self._passed:
            return ()
        kept = (item.within(self._passed) for item in pending)
        return tuple(item for item in kept if item.touched)

    def _loop(self, loop: For, pending: _Pending) -> tuple[Stmt, _Pending]:
        leaf, names = self._only_leaf(loop)
        if (
            leaf is not None
            and not self._parted
            and not any(item.write for item in self._effects[id(leaf)].touched)
        ):
            done, after = self._leaf(leaf, pending)
            for name in names:
                after = _forgetting(after, name)
            return (seq(done.stmts[0], loop) if done is not leaf and isinstance(done, Seq) else loop), after
        if int_of(loop.extent) == 1:
            body, after = self.stmt(loop.body, pending)
            first = {loop.var.name: const(0)}
            made: Stmt = loop.replace(body=body)
            if isinstance(body, Seq) and isinstance(body.stmts[0], Barrier):  # where others see it, too
                made = seq(body.stmts[0], loop.replace(body=seq(*body.stmts[1:])))
            return made, tuple(x.mapped(lambda access: access.at(first)) for x in after)
        body, after = self._rounds(loop, pending)
        if body != loop.body and not self._parted and self._waits_once(loop):
            inside = {item.scope for item in statements(body) if isinstance(item, Barrier)}
            scope = CLUSTER if CLUSTER in inside else SHARED
            after = _forgetting(self._rounds(loop, ())[1], loop.var.name)
            return seq(Barrier(scope), loop), _joined(self._behind(scope, pending), after)
        return loop.replace(body=body), _joined(pending, _forgetting(after, loop.var.name))

    def _last_block(self, stmt: LastBlock) -> tuple[Stmt, _Pending]:
        if self._parted:
            raise _divergent(self._parted[-1])
        body, after = self.stmt(stmt.body, ())
        return stmt.replace(body=body), after

    def _only_leaf(self, stmt: Stmt) -> tuple[Stmt | None, list[str]]:
        """The leaf that loops which run are around, and their variables; no leaf where there is more."""
        names = []
        while id(stmt) not in self._effects:
            if isinstance(stmt, For) and int_of(stmt.extent):
                names.append(stmt.var.name)
            elif not isinstance(stmt, Block) or stmt.iters or stmt.init is not None:
                return None, names
            stmt = stmt.body
        return stmt, names

    def _rounds(self, loop: For, pending: _Pending) -> tuple[Stmt, _Pending]:
        """The body with barriers, each iteration compared with the one before, and with longer ago."""
        own = {item.buffer.name for item in statements(loop.body) if isinstance(item, Alloc)}

        def ago(effects: Iterable[_Effects], iterations: Expr) -> _Pending:
            """As a later iteration sees it; memory of an iteration is the same in each."""
            then = {loop.var.name: loop.var - iterations}

            def moved(access: Footprint) -> Footprint:
                return Footprint(access.name, access.write) if access.name in own else access.at(then)

            return tuple(item.mapped(moved) for item in effects)

        _, once = self.stmt(loop.body, ())
        before = ago(once, const(1))
        _, after = self.stmt(loop.body, (*pending, *before))
        lasting = [item for item, last in zip(once, before, strict=True) if last in after]
        longer = ago(lasting, distance(loop)) if int_of(loop.extent) != _TWICE else ()
        return self.stmt(loop.body, _joined((*pending, *before), longer))

    def _waits_once(self, loop: For) -> bool:
        """Whether only what was done before a loop that runs keeps its iterations waiting."""
        if not int_of(loop.extent):
            return False
        return self._rounds(loop, ())[0] == loop.body

    def _branch(self, stmt: If, pending: _Pending) -> tuple[Stmt, _Pending]:
        parted = self._differs(stmt.cond)
        if parted:
            self._parted.append(parted)
        then, after = self.stmt(stmt.then, pending)
        orelse, other = (None, pending) if stmt.orelse is None else self.stmt(stmt.orelse, pending)
        if parted:
            self._parted.pop()
        return stmt.replace(then=then, orelse=orelse), _joined(after, other)

    def _other(self, stmt: Stmt, pending: _Pending) -> tuple[Stmt, _Pending]:
        """A statement around others: they run in the order of its fields."""

        def one(child: Stmt) -> Stmt:
            nonlocal pending
            new, pending = self.stmt(child, pending)
            return new

        done = stmt.map_bodies(one)
        return seq(*done.stmts) if isinstance(done, Seq) else done, pending

    def _differs(self, cond: Expr) -> str:
        """The thread variable by which a condition differs between threads, if any."""
        return min(variables(cond) & self._threads, default="")


def _joined(a: _Pending, b: _Pending) -> _Pending:
    return tuple(dict.fromkeys((*a, *b)))


def _forgetting(pending: Iterable[_Effects], name: str) -> _Pending:
    """The same, of any iteration of a loop."""
    return tuple(item.mapped(lambda access: access.forgetting([name])) for item in pending)


def _effects(stmt: Stmt) -> _Effects:
    buffers = {item for item in stmt.walk() if isinstance(item, Buffer) and is_shared(item)}
    shared = frozenset(item.alias_of or item.name for item in buffers)
    return _Effects(id(stmt), accesses(stmt, shared), _written_apart(stmt))


def _written_apart(stmt: Stmt) -> frozenset[str]:
    """Results of which each run of a leaf writes other elements: one for each iteration of its only block.

    Not in memory of a block of threads, which shrinks to what is used at a time.
    """
    blocks = [item for item in stmt.walk() if isinstance(item, Block)]
    if len(blocks) != 1 or not isinstance(blocks[0].body, Store):
        return frozenset()
    block, store = blocks[0], blocks[0].body
    moving = {item.var.name for item in block.iters if int_of(item.extent) != 1}
    places = [index for index in store.indices if not any(isinstance(n, Load) for n in index.walk())]
    used = {name for index in places for name in variables(index)}
    own = store.buffer.scope in (GLOBAL, CLUSTER) and store.buffer.alias_of is None
    own = own and all(item.kind == "spatial" for item in block.iters)
    return frozenset({store.buffer.name}) if own and moving <= used else frozenset()


def _divergent(name: str) -> BadInputError:
    return BadInputError(
        "threads of one block would have to meet where not all of them come along",
        where=f"under a condition on {name}",
        why="loops bound to one thread axis have different extents, and use values of other threads",
        hint="split the loops to equal extents",
    )
