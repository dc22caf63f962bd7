"""Primitives that move a block under a loop of another: compute_at, reverse_compute_at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler.loops.ir import Block, Expr, For, Func, Seq, Stmt, seq
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier
from compiler.schedule.move import Move, disjoint, is_narrower
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program, Site
from compiler.schedule.provided import Provided
from compiler.schedule.regions import Span, clip, covers, dimensions, hull, solve
from compiler.schedule.rewriting import holds

LAST, FIRST = -1, -2
"""As an index among statements: the last and the first place that is possible."""


def _parts(body: Stmt) -> tuple[Stmt, ...]:
    return body.stmts if isinstance(body, Seq) else (body,)


def _place(move: Move, index: int, first: int, last: int) -> int:
    """The number of the statement that a block is put before, of those from `first` to `last`."""
    at = {LAST: last, FIRST: first}.get(index, index)
    if first <= at <= last:
        return at
    raise move.refuse(
        f"it cannot be statement {index} under {move.loop.var.name}",
        "what it reads is made before, and what reads it comes behind",
        f"say a number from {first} to {last}, or -1 for the last of them and -2 for the first",
    )


# ---------------------------------------------------------------- compute_at


@dataclass(frozen=True, slots=True)
class ComputeAt(Primitive[tuple[str, ...]]):
    """Compute a block inside a loop of its consumers, just before they need it.

    block: a block that writes a local buffer. loop: a loop around all consumers of that buffer. The new loops
    cover the box that the consumers read in one iteration; where it can stick out of the block's domain, a
    predicate keeps the block inside. Overlapping boxes are computed more than once.
    preserve_unit_loops: a variable with one value gets a loop, too. index: where among the statements under
    the loop: -1 the last place that is possible, before its first consumer; -2 the first one; else a number.
    Outputs: the new loops, outermost first; a variable with one value gets none unless asked.
    rewrite: for i: P(i); for j: C(j) reads P(2j .. 2j+2) -> for j: (for i in 3: P(2j + i)); C(j)
    TVM: compute_at.
    """

    name: ClassVar[str] = "compute_at"
    later: ClassVar[tuple[str, ...]] = ("preserve_unit_loops", "index")

    block: str
    loop: str
    preserve_unit_loops: bool = False
    index: int = LAST

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        move = Move(program, self.block, self.loop, self.name, self.refuse)
        consumers = self._consumers(move)
        spans = self._needed(move, consumers)
        nest, loops = move.moved(spans, unit_loops=self.preserve_unit_loops)
        names = {site.name for site in consumers}

        def put(body: Stmt) -> Stmt:
            parts = _parts(body)
            last = next(number for number, item in enumerate(parts) if holds(item, names))
            passed = [number for number in range(last) if move.is_in_the_way(parts[number])]
            at = _place(move, self.index, passed[-1] + 1 if passed else 0, last)
            return seq(*parts[:at], nest, *parts[at:])

        return move.rebuilt(put), loops

    def _consumers(self, move: Move) -> list[Site]:
        """The blocks that read what the block writes; all of them have to be under the loop."""
        site = move.site
        written = {region.buffer.name for region in site.block.writes}
        if outputs := written & move.program.outputs:
            raise move.refuse(
                f"{', '.join(sorted(outputs))} is an output of the kernel",
                "an output has to be written completely, not where another block needs it",
                "use reverse_compute_at, or cache_write first",
            )
        readers = [s for s in move.sites.values() if s is not site and any(s.reads(b) for b in written)]
        if not readers:
            raise move.refuse(
                "nothing reads what it computes", "compute_at follows the consumers", "move another block"
            )
        outside = [s.name for s in readers if not s.under(self.loop)]
        if outside:
            raise move.refuse(
                f"{', '.join(outside)} reads it outside of {self.loop}",
                "what is computed under the loop has to be used there",
                f"move {', '.join(outside)} under {self.loop} first, or name a loop around all consumers",
            )
        self._check_sources(move, readers)
        self._check_other_writers(move, written, readers)
        return readers

    def _check_sources(self, move: Move, readers: Sequence[Site]) -> None:
        """Nothing may change the inputs of the block between its old and its new place."""
        first = min(s.order for s in readers)
        inputs = {region.buffer.name for region in move.site.block.reads}
        for other in move.sites.values():
            late = move.site.order < other.order and (other.order < first or other.under(self.loop))
            if late and any(other.writes(name) for name in inputs):
                raise move.refuse(
                    f"{other.name} changes what it reads before {self.loop} gets there",
                    f"{other.name} writes one of {', '.join(sorted(inputs))}",
                    f"move {other.name} out of the way first",
                )

    def _check_other_writers(self, move: Move, written: set[str], readers: Sequence[Site]) -> None:
        """Other blocks that write the same buffer must write other elements of it."""
        first = min(s.order for s in readers)
        for other in move.sites.values():
            if other is move.site or not move.site.order < other.order < first:
                continue
            for name in written:
                if other.writes(name) and not disjoint(move, move.site, other, name):
                    raise move.refuse(
                        f"{other.name} writes {name}, too, and may overwrite it",
                        "the order of the two would change",
                        f"move {other.name} first",
                    )

    def _needed(self, move: Move, readers: Sequence[Site]) -> dict[str, Span]:
        found: dict[str, Span] = {}
        for number, region in enumerate(move.site.block.writes):
            name = region.buffer.name
            target: list[Span] | None = None
            for reader in (s for s in readers if s.reads(name)):
                spans = move.read(reader, name)
                target = spans if target is None else _around(target, spans, region.buffer.shape, move.known)
            touched = dimensions(region, target, move.known) if target else []
            solved = solve(touched, move.site.spatial, move.known)
            found = _agreed(found, solved) if number else solved
        return {name: span for name, span in found.items() if is_narrower(move.site, name, span, move.known)}


def _around(a: Sequence[Span], b: Sequence[Span], shape: Sequence[Expr], known: Simplifier) -> list[Span]:
    return [clip(hull(x, y), int_of(n) or 0, known) for x, y, n in zip(a, b, shape, strict=True)]


def _agreed(a: dict[str, Span], b: dict[str, Span]) -> dict[str, Span]:
    """Spans around both; variables that one leaves free are free."""
    joined = {name: hull(a[name], b[name]) for name in a.keys() & b.keys()}
    return {name: span for name, span in joined.items() if span is not None}


@dataclass(frozen=True, slots=True)
class ReverseComputeAt(Primitive[tuple[str, ...]]):
    """Compute a block inside a loop of its producers, as soon as they have made what it reads.

    block: a block that reads what blocks under the loop write. loop: a loop that is not part of a reduction
    of theirs. The new loops run over exactly those iterations whose inputs one iteration of the loop makes.
    preserve_unit_loops: a variable with one value gets a loop, too. index: where among the statements under
    the loop: -2 the first place that is possible, behind its last producer; -1 the last one; else a number.
    Outputs: the new loops, outermost first; a variable with one value gets none unless asked.
    rewrite: for i, j: P(i, j); for i, j: C(i, j) reads P(i, j) -> for i: (for j: P(i, j)); (for j: C(i, j))
    TVM: reverse_compute_at.
    """

    name: ClassVar[str] = "reverse_compute_at"
    later: ClassVar[tuple[str, ...]] = ("preserve_unit_loops", "index")

    block: str
    loop: str
    preserve_unit_loops: bool = False
    index: int = FIRST

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        move = Move(program, self.block, self.loop, self.name, self.refuse)
        producers = self._producers(move)
        self._check_order(move, producers)
        spans, exact = Provided(move, producers).iterations()
        nest, loops = move.moved(spans, exact, unit_loops=self.preserve_unit_loops)
        _check_other_inputs(move, producers, nest)
        names = {site.name for site in producers}

        def put(body: Stmt) -> Stmt:
            parts = _parts(body)
            first = max(number for number, item in enumerate(parts) if holds(item, names)) + 1
            beyond = (n for n in range(first, len(parts)) if move.is_in_the_way(parts[n]))
            at = _place(move, self.index, first, next(beyond, len(parts)))
            return seq(*parts[:at], nest, *parts[at:])

        return move.rebuilt(put), loops

    def _producers(self, move: Move) -> list[Site]:
        """The blocks under the loop that write what the block reads."""
        read = {region.buffer.name for region in move.site.block.reads}
        found = [s for s in move.inside() if any(s.writes(name) for name in read)]
        if not found:
            raise move.refuse(
                f"nothing under {self.loop} writes what it reads",
                f"it reads {', '.join(sorted(read)) or 'nothing'}",
                "name a loop of a producer",
            )
        for site in found:
            for item in site.block.iters:
                used = variables(item.binding) & move.outer_names
                if item.kind == "reduce" and used:
                    raise move.refuse(
                        f"{site.name} is not complete under {self.loop}",
                        f"loop {', '.join(sorted(used))} is part of its reduction",
                        "name a loop outside of the reduction, or use cache_inplace",
                    )
        return found

    def _check_order(self, move: Move, producers: Sequence[Site]) -> None:
        site = move.site
        last = max(s.order for s in producers)
        if last > site.order:
            raise move.refuse(
                f"{site.name} comes before {self.loop}",
                "it reads what was there before the loop",
                "name a loop before the block",
            )
        inputs = {region.buffer.name for region in site.block.reads}
        outputs = {region.buffer.name for region in site.block.writes}
        for other in move.sites.values():
            passed = last < other.order < site.order or (other.under(self.loop) and other not in producers)
            if other is site or not passed:
                continue
            if any(other.writes(name) for name in inputs) or any(other.reads(name) for name in outputs):
                raise move.refuse(
                    f"{other.name} lies between and touches the same buffers",
                    "their order would change",
                    f"move {other.name} under {self.loop} first",
                )
            for name in outputs:
                if other.writes(name) and not disjoint(move, site, other, name):
                    raise move.refuse(
                        f"{other.name} writes {name}, too, and may be overwritten",
                        "the order of the two would change",
                        f"move {other.name} under {self.loop} first",
                    )


def _check_other_inputs(move: Move, producers: Sequence[Site], nest: Stmt) -> None:
    """Inputs made beside the loop, under a loop around both, have to be complete where the block goes."""
    block = next(item for item in nest.walk() if isinstance(item, Block))
    loops = [item for item in nest.walk() if isinstance(item, For)]
    moved = Site(block, (*move.outer, *loops), None, move.site.order)
    known = moved.known
    for other in move.sites.values():
        if other in producers or other is move.site:
            continue
        shared = {loop.var.name for loop in other.loops} & move.outer_names
        for name in {region.buffer.name for region in moved.block.reads}:
            if not shared or not other.writes(name):
                continue
            made = move.made(other, name, shared)
            needed = moved.box(name, move.inner_of(moved, shared), known, write=False)
            if not covers(made, needed, known):
                raise move.refuse(
                    f"it also reads {name}, which {other.name} makes in other iterations",
                    f"of loop {', '.join(sorted(shared))}",
                    "name a loop that holds all its producers",
                )
