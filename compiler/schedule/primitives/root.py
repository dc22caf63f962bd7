"""The primitive that takes a block out of the loops of others: compute_root."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.loops.ir import Expr, Func, Seq, Stmt, seq
from compiler.loops.queries import int_of
from compiler.schedule.injectivity import is_circular
from compiler.schedule.nest import make_nest, own_conditions
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program, Site, reads_itself
from compiler.schedule.regions import whole, within
from compiler.schedule.rewriting import holds, without_block


@dataclass(frozen=True, slots=True)
class ComputeRoot(Primitive[tuple[str, ...]]):
    """Compute all of a block before the outermost loop that it is in, in plain loops of its own.

    block: a block that no other one shares its result with. What compute_at did is undone, and what was
    done to the loops of the block itself; its iteration variables, and the layout of its result, stay.
    Outputs: the new loops, outermost first: one for each iteration variable.
    rewrite: for j: (for i in 3: P(2j + i)); C(j) reads P(2j .. 2j+2) -> for i: P(i); for j: C(j)
    Halide, TVM (TE): compute_root.
    """

    name: ClassVar[str] = "compute_root"

    block: str

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        site = program.site(self.block, self.name)
        parts = program.func.body.stmts if isinstance(program.func.body, Seq) else (program.func.body,)
        at = next(number for number, item in enumerate(parts) if holds(item, {self.block}))
        self._check(program, site, parts[at])
        conditions = own_conditions(site, set())
        if conditions is None:
            raise self.refuse(
                "what it executes cannot be said in terms of its iteration variables",
                "a condition on it is about loops that are not its own",
                "take it out of the loops before they are split and fused",
            )
        rest = without_block(parts[at], self.block)
        left = program.func.replace(body=seq(*parts[:at], rest, *parts[at + 1 :]))
        nest, loops = make_nest(
            site.block, {}, site.known, Program(left).namer(), [*conditions, *_inside(site)], unit_loops=True
        )
        return left.replace(body=seq(*parts[:at], nest, rest, *parts[at + 1 :])), loops

    def _check(self, program: Program, site: Site, around: Stmt) -> None:
        block = site.block
        read = {region.buffer.name for region in block.reads}
        written = {region.buffer.name for region in block.writes}
        if site.inside is not None:
            raise self.refuse(
                f"it is part of block {site.inside}", "what is in a block stays there", "move that block"
            )
        if block.init is None and any(reads_itself(block.body, name) for name in written):
            raise self.refuse(
                "it updates what another block started",
                "the two would come apart",
                "take it out of the loops before decompose_reduction",
            )
        if any(is_circular(block, region) for region in block.writes):
            raise self.refuse(
                "its buffer has room for a part of its result only",
                "each element holds several values in turn",
                "take it out of the loops before software_pipeline",
            )
        for other in program.sites.values():
            theirs = {region.buffer.name for region in other.block.writes}
            if other is not site and not written.isdisjoint(theirs):
                raise self.refuse(
                    f"{other.name} writes {', '.join(sorted(written & theirs))}, too",
                    "all of the block could overwrite what that one has written",
                    "say where each of them goes with compute_at",
                )
            if other is not site and holds(around, {other.name}) and not read.isdisjoint(theirs):
                raise self.refuse(
                    f"{other.name} makes what it reads, in the same loops",
                    f"{', '.join(sorted(read & theirs))} is not there before them",
                    f"compute_root {other.name} first",
                )


def _inside(site: Site) -> list[Expr]:
    """That what is written lies in its buffers: digits of a number may come to more than there is of it."""
    return [
        condition
        for region in site.block.writes
        for begin, length, extent in zip(region.begin, region.extent, region.buffer.shape, strict=True)
        for condition in within(
            site.known.linear(begin), int_of(length) or 1, whole(int_of(extent) or 0), site.known
        )
        if int_of(extent)
    ]
