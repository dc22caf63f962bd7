"""Device limits: what a launch may ask of its device, checked before anything is compiled or started.

For each launch of a lowered function: threads of a block, shared memory, size of the grid and of a cluster,
barriers that not all threads reach, bindings that contradict each other, width of accesses, memory of other
address spaces, private memory that several threads would have to share. Every problem says the limit, the
value, where it comes from, and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.capabilities import LAST_BLOCK
from compiler.core.diagnostics import BadInputError
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    CLUSTER,
    PART,
    RANK,
    REGISTER,
    SCRATCH,
    SHARED,
    Alloc,
    Barrier,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    LastBlock,
    Let,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    statements,
)
from compiler.loops.queries import int_of, variables
from compiler.loops.walk import scoped

_WIDEST_BYTES = 16
"""The widest access of one thread, on all devices that bind threads."""


@dataclass(frozen=True, slots=True)
class LaunchProblem:
    """One thing that a launch cannot do: what, where it comes from, why not, what to do."""

    what: str
    where: str
    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what} ({self.where}): {self.why}; {self.hint}"


def verify_launch(func: Func, facts: TargetFacts) -> Func:
    """The function itself; BadInputError with all problems of its launches, if there are any."""
    problems = problems_of_launches(func, facts)
    if not problems:
        return func
    first, *others = problems
    more = "".join(f"\n     {item}" for item in others)
    raise BadInputError(first.what, where=first.where, why=f"{first.why}{more}", hint=first.hint)


def problems_of_launches(func: Func, facts: TargetFacts) -> tuple[LaunchProblem, ...]:
    """All problems of all launches of a lowered function; none where the device does not bind threads."""
    if not facts.binds_threads:
        return ()
    parts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    found = [problem for n, part in enumerate(parts) for problem in _Launch(n, part, facts).problems()]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class _Launch:
    number: int
    body: Stmt
    facts: TargetFacts

    def problems(self) -> Iterator[LaunchProblem]:
        yield from self._axes()
        yield from self._threads()
        yield from self._grid()
        yield from self._cluster()
        yield from self._shared()
        yield from self._barriers()
        yield from self._accesses()
        yield from self._private()

    def _where(self, detail: str = "") -> str:
        return f"launch {self.number}{', ' if detail else ''}{detail}"

    def _loops(self, unit: str) -> list[For]:
        return [
            item
            for item in statements(self.body)
            if isinstance(item, For) and item.kind is ForKind.BOUND and (item.tag or "").startswith(unit)
        ]

    def _thread_variables(self) -> set[str]:
        """The variables of threads, and those that are computed from them."""
        found = {loop.var.name for loop in self._loops("threadIdx.")}
        for item in statements(self.body):
            if isinstance(item, Let) and variables(item.value) & found:
                found.add(item.var.name)
        return found

    def _extents(self, unit: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for loop in self._loops(unit):
            assert loop.tag is not None
            found[loop.tag] = max(found.get(loop.tag, 1), int_of(loop.extent) or 1)
        return found

    def _axes(self) -> Iterator[LaunchProblem]:
        blocks = (*self._loops("blockIdx."), *self._loops(RANK), *self._loops(PART))
        loops = (*blocks, *self._loops("threadIdx."))
        for loop in loops:
            if not isinstance(loop.extent, Const):
                yield LaunchProblem(
                    f"the extent of {loop.tag} is not known",
                    self._where(f"loop {loop.var.name}"),
                    "the size of a launch is fixed when the kernel is compiled",
                    "split the loop by a constant and bind the inner part",
                )
        seen: dict[str, For] = {}
        for loop in loops:
            assert loop.tag is not None
            first = seen.setdefault(loop.tag, loop)
            if first.extent != loop.extent:
                yield LaunchProblem(
                    f"{loop.tag} has two extents",
                    self._where(f"loops {first.var.name} and {loop.var.name}"),
                    f"one launch has one size along each axis, not {int_of(first.extent)} and "
                    f"{int_of(loop.extent)}",
                    "split both loops to the same extent",
                )

    def _threads(self) -> Iterator[LaunchProblem]:
        extents = self._extents("threadIdx.")
        count, limit = math.prod(extents.values()), self.facts.limit("threads_per_block")
        if limit is not None and count > limit:
            loops = ", ".join(f"{tag} = {extent}" for tag, extent in sorted(extents.items()))
            yield LaunchProblem(
                f"a block of {count} threads is too large",
                self._where(loops),
                f"{self._device()} runs at most {limit} threads in a block, this launch asks for {count}",
                f"bind loops whose extents multiply to at most {limit}, and split what is left over blocks",
            )

    def _grid(self) -> Iterator[LaunchProblem]:
        for tag, extent in (self._extents("blockIdx.") | self._extents(PART)).items():
            axis = "z" if tag == PART else tag[-1]
            limit = self.facts.limit(f"grid_{axis}")
            if limit is not None and extent > limit:
                yield LaunchProblem(
                    f"a grid of {extent} blocks along {axis} is too large",
                    self._where(f"{tag} = {extent}"),
                    f"{self._device()} starts at most {limit} blocks along {axis}",
                    "bind the longest loop to blockIdx.x, or fuse it with the one bound there",
                )

    def _cluster(self) -> Iterator[LaunchProblem]:
        extents, limit = self._extents(RANK), self.facts.limit("blocks_per_cluster") or 1
        count = math.prod(extents.values())
        if count > limit:
            yield LaunchProblem(
                f"a cluster of {count} blocks is too large",
                self._where(f"{RANK} = {count}"),
                f"{self._device()} has clusters of {limit} blocks at most",
                "split the loop and bind the outer part to blockIdx, or none of it",
            )
        if self._loops(PART) and LAST_BLOCK not in self.facts.intrinsics:
            yield LaunchProblem(
                f"no block is the last one behind {PART}",
                self._where(f"{PART} = {math.prod(self._extents(PART).values())}"),
                f"{self._device()} has no counters that blocks come to",
                "bind the loop to blockIdx, and leave what follows to another launch",
            )
        along_z = [tag for tag in (RANK, PART, "blockIdx.z") if self._loops(tag)]
        if len(along_z) > 1:
            yield LaunchProblem(
                f"{' and '.join(along_z)} are both bound",
                self._where(),
                "the blocks of a cluster, and those that make parts, stand side by side along z",
                "fuse the loop that is bound to blockIdx.z with one of x or y",
            )

    def _shared(self) -> Iterator[LaunchProblem]:
        ranks = math.prod(self._extents(RANK).values())
        sizes = {
            item.buffer: _bytes_of(item.buffer) // (ranks if item.buffer.scope == CLUSTER else 1)
            for item in statements(self.body)
            if isinstance(item, Alloc) and item.buffer.scope in (SHARED, CLUSTER) and not item.buffer.alias_of
        }
        told = LastBlock.SHARED_BYTES * sum(isinstance(item, LastBlock) for item in statements(self.body))
        total, limit = sum(sizes.values()) + told, self.facts.shared_limit
        if limit is not None and total > limit:
            parts = ", ".join(f"{buffer.name} {size}" for buffer, size in sizes.items())
            parts += f", the last block {told}" if told else ""
            yield LaunchProblem(
                f"{total} bytes of shared memory are too many",
                self._where(parts),
                f"a block on {self._device()} has {limit} bytes, {total - limit} fewer than its arrays take",
                "use smaller tiles, or stage fewer steps of the sum at a time",
            )

    def _barriers(self) -> Iterator[LaunchProblem]:
        """Barriers below a condition, or a loop length, that differs between threads."""
        threads = self._thread_variables()
        for item, scope in scoped(self.body, closed=lambda item: isinstance(item, Expr)):
            parted = [name for cond in scope.deciding for name in variables(cond) & threads]
            if isinstance(item, Barrier | LastBlock) and parted:
                yield LaunchProblem(
                    "a barrier is reached by only some threads of a block",
                    f"under a condition on {', '.join(dict.fromkeys(sorted(parted)))}",
                    "the others would wait for ever, or meet at another barrier",
                    "move the barrier out of the condition, or split the loops so that all threads take part",
                )

    def _device(self) -> str:
        return f"{self.facts.language} {self.facts.arch}".strip()

    # ------------------------------------------------------------ memory

    def _accesses(self) -> Iterator[LaunchProblem]:
        for item in self.body.walk():
            if not isinstance(item, Load | Store):
                continue
            index = item.indices[0]
            lanes = item.buffer.dtype.lanes * (index.lanes if isinstance(index, Ramp) else 1)
            size = lanes * item.buffer.dtype.scalar.bits // 8
            if size > _WIDEST_BYTES and item.buffer.scope not in (REGISTER, SCRATCH):
                yield LaunchProblem(
                    f"an access of {size} bytes is too wide",
                    self._where(f"buffer {item.buffer.name}"),
                    f"a thread reads and writes at most {_WIDEST_BYTES} bytes at once, here {lanes} elements",
                    f"vectorise at most {_WIDEST_BYTES * 8 // item.buffer.dtype.scalar.bits} iterations",
                )
            if item.buffer.scope not in self.facts.scopes:
                yield LaunchProblem(
                    f"{item.buffer.name} lies in {item.buffer.scope} memory",
                    self._where(f"buffer {item.buffer.name}"),
                    f"{self._device()} has {', '.join(sorted(self.facts.scopes))}",
                    "set_scope to one of these",
                )

    def _private(self) -> Iterator[LaunchProblem]:
        """Memory of one thread of which each thread writes its own part: no other one sees that.

        Where every thread writes the same elements, each has them all, whichever it reads.
        """
        numbered, written, read = self._thread_variables(), dict[Buffer, set[Expr]](), list[_Access]()
        for item in self._private_accesses(numbered):
            if item.stored:
                written.setdefault(item.buffer, set()).update(item.conditions)
            if item.used:
                read.append(item)
        for item in read:
            if item.stored or written.get(item.buffer, set()) - item.conditions:
                yield LaunchProblem(
                    f"{item.buffer.name} is private to each thread, and threads pass values in it",
                    self._where(f"buffer {item.buffer.name}, indexed by {', '.join(sorted(item.used))}"),
                    f"it is in scope {item.buffer.scope}: what one thread writes no other one sees",
                    "set its scope to shared",
                )

    def _private_accesses(self, numbered: set[str]) -> Iterator[_Access]:
        own = {
            item.buffer
            for item in statements(self.body)
            if isinstance(item, Alloc) and item.buffer.scope in (REGISTER, SCRATCH)
        }
        for item, scope in scoped(self.body) if own else ():
            if isinstance(item, Load | Store) and item.buffer in own:
                yield _Access(
                    item.buffer,
                    isinstance(item, Store),
                    frozenset(name for index in item.indices for name in variables(index) & numbered),
                    frozenset(cond for cond in scope.deciding if variables(cond) & numbered),
                )


@dataclass(frozen=True, slots=True)
class _Access:
    """Of private memory: variables of threads in its indices, and conditions on threads around it."""

    buffer: Buffer
    stored: bool
    used: frozenset[str]
    conditions: frozenset[Expr]


def _bytes_of(buffer: Buffer) -> int:
    sizes = [int_of(extent) or 0 for extent in buffer.shape]
    return (math.prod(sizes) * buffer.dtype.bits + 7) // 8
