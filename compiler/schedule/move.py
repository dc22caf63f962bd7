"""A block that is to be moved under a loop, and what is known about it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.loops.ir import Expr, ForKind, Func, Region, Stmt, Var
from compiler.loops.linear import single
from compiler.loops.queries import int_of
from compiler.loops.simplify import Simplifier
from compiler.schedule.injectivity import is_circular
from compiler.schedule.nest import Refusal, executed_box, make_nest, own_conditions
from compiler.schedule.program import Program, Site, outer_blocks, ranges, reads_itself
from compiler.schedule.regions import Inner, Span, clip, keep_smaller, whole, within
from compiler.schedule.rewriting import replace_statements, without_block


class Move:
    """A block to be moved, the loop it is moved under, and what is known about the variables there."""

    def __init__(self, program: Program, block: str, loop: str, asked: str, refuse: Refusal) -> None:
        self.program, self.func, self.refuse = program, program.func, refuse
        self.site = program.site(block, asked)
        self.loop = program.loop(loop, asked)
        self.sites = {s.name: s for s in program.sites.values() if s.inside == self.site.inside}
        self.outer = (*program.loops_around(loop), self.loop)
        self.outer_names = {item.var.name for item in self.outer}
        every = [loop for site in self.sites.values() for loop in site.loops]
        iters = [item for site in self.sites.values() for item in site.block.iters]
        self.known = Simplifier({**program.bounds_at(loop), **ranges((*every, *self.outer, *iters))})
        self._check()

    def _check(self) -> None:
        loop = self.loop.var.name
        if self.site.under(loop):
            raise self.refuse(
                f"{self.site.name} is already under {loop}",
                "a block cannot move to a loop around itself",
                "name a loop of another block",
            )
        if self.loop.kind in {ForKind.VECTORIZED, ForKind.UNROLLED}:
            raise self.refuse(
                f"loop {loop} is already {self.loop.kind.value}",
                "a nest of loops cannot be put under it",
                f"make it {self.loop.kind.value} after this step",
            )
        if not self.inside():
            raise self.refuse(
                f"{self.site.name} and {loop} are not in the same block",
                "a block stays in the block around it",
                "name a loop beside the block",
            )
        self._check_whole()
        self._check_lifetimes()

    def _check_whole(self) -> None:
        """A block that adds to what another one wrote cannot move alone."""
        block = self.site.block
        written = {region.buffer.name for region in block.writes}
        if block.init is None and any(reads_itself(block.body, name) for name in written):
            raise self.refuse(
                f"{block.name} updates what another block started",
                "the two would come apart",
                "move the block before decompose_reduction",
            )

    def _check_lifetimes(self) -> None:
        """A block stays in its loops if it touches a circular buffer, whose elements hold several values."""
        for other in self.sites.values():
            for region in other.block.writes:
                name = region.buffer.name
                if self.site.uses(name) and is_circular(other.block, region):
                    raise self.refuse(
                        f"{name} is a circular buffer: {other.name} writes its elements in turn",
                        "what is read or written at another time is another value",
                        "move the block before software_pipeline",
                    )

    def inside(self) -> list[Site]:
        """The blocks under the loop, in program order."""
        return [site for site in self.sites.values() if site.under(self.loop.var.name)]

    def inner_of(self, site: Site, fixed: set[str] | None = None) -> Inner:
        """The loops of a block that move while the outer ones (or those named `fixed`) stand still."""
        return site.moving(self.outer_names if fixed is None else fixed, self.known)

    def read(
        self, site: Site, buffer: str, fixed: set[str] | None = None, *, clipped: bool = True
    ) -> list[Span]:
        """A box around what a block reads of a buffer under the loop.

        Reads outside of the buffer, which a select leaves out, are clipped when asked.
        """
        shape = site.reads(buffer)[0].buffer.shape
        spans = site.box(buffer, self.inner_of(site, fixed), self.known, write=False)
        return [
            clip(span, int_of(extent) or 0, self.known) if clipped or span is None else span
            for span, extent in zip(spans, shape, strict=True)
        ]

    def made(self, site: Site, buffer: str, fixed: set[str] | None = None) -> list[Span]:
        """A box around what a block writes of a buffer under the loop, not clipped."""
        shape = site.writes(buffer)[0].buffer.shape
        spans = site.box(buffer, self.inner_of(site, fixed), self.known, write=True)
        return [whole(int_of(n) or 0) if s is None else s for s, n in zip(spans, shape, strict=True)]

    def moved(
        self, spans: dict[str, Span], exact: Sequence[Expr] = (), *, unit_loops: bool = False
    ) -> tuple[Stmt, tuple[str, ...]]:
        """The block in a new nest for the place under the loop, and the names of the loops.

        spans, exact: where iteration variables run, and conditions over them that say it exactly. unit_loops:
        make loops of one iteration, too.
        """
        own = own_conditions(self.site, self.outer_names)
        runs = executed_box(self.site, self.outer_names)
        if own is None or runs is None:
            raise self.refuse(
                "its loops do not run over a box that comes along",
                "what it executes cannot be said in terms of its iteration variables",
                "move the block before splitting and fusing its loops",
            )

        narrow, conditions = dict(spans), list(own)
        for name, span in runs.items():
            keep_smaller(narrow, name, span)
            conditions += within(single(Var(name)), 1, span, self.known)
        fresh = Program(self._left()).namer()
        conditions = [*conditions, *exact]
        return make_nest(self.site.block, narrow, self.known, fresh, conditions, unit_loops=unit_loops)

    def rebuilt(self, change: Callable[[Stmt], Stmt]) -> Func:
        """The Func without the block at its old place and with the body of the loop changed."""
        left = self._left()
        loop = Program(left).loop(self.loop.var.name)
        return replace_statements(left, {loop.var.name: loop.replace(body=change(loop.body))})

    def is_in_the_way(self, stmt: Stmt) -> bool:
        """Whether the block cannot go from one side of a statement to the other."""
        read, written = _names(self.site.block.reads), _names(self.site.block.writes)
        for block in outer_blocks(stmt):
            theirs = _names(block.writes)
            if not read.isdisjoint(theirs) or not written.isdisjoint(theirs | _names(block.reads)):
                return True
        return False

    def _left(self) -> Func:
        return self.func.replace(body=without_block(self.func.body, self.site.name))


def _names(regions: Sequence[Region]) -> set[str]:
    return {region.buffer.name for region in regions}


def disjoint(move: Move, a: Site, b: Site, buffer: str) -> bool:
    """Whether two blocks provably write different elements of a buffer."""
    boxes = [move.made(site, buffer, set()) for site in (a, b)]
    for first, second in zip(*boxes, strict=True):
        apart = second.begin.plus(first.begin, -1)
        low, high = move.known.range(apart)
        if low >= first.extent or -high >= second.extent:
            return True
    return False


def is_narrower(site: Site, name: str, span: Span, known: Simplifier) -> bool:
    """Whether a span is less than the domain of its variable."""
    extent = next(int_of(item.extent) for item in site.block.iters if item.var.name == name)
    if extent is None:
        return True
    clipped = clip(span, extent, known)
    return clipped != whole(extent) or extent == 1
