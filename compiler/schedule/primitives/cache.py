"""Primitives that put a cache between a block and a buffer: cache_read, cache_write, cache_inplace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler.loops.ir import Buffer, Expr, Func, Region, Seq, Stmt, const, seq
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.layout_changes import layouts_of, with_layouts
from compiler.schedule.nest import executed_box, make_nest, own_conditions
from compiler.schedule.primitives.base import Made, Primitive
from compiler.schedule.program import Fresh, Program, Site, ranges, reads_itself
from compiler.schedule.regions import Inner, Span, clip, is_dense
from compiler.schedule.rewriting import (
    copying,
    fresh_iters,
    holds,
    nest_of,
    put_after,
    put_before,
    replace_statements,
    use_buffer,
)

# ---------------------------------------------------------------- caches


@dataclass(frozen=True, slots=True)
class _Caching(Primitive[Made]):
    """A step that lets a block use a cache in place of a buffer."""

    block: str
    buffer: str
    scope: str

    def cached(self, program: Program, fresh: Fresh, old: Buffer) -> tuple[Func, Buffer]:
        """The Func in which the block uses a new local buffer of the same shape and layout, and that buffer.

        Lowering makes it as small as its uses.
        """
        name = fresh(f"{self.buffer}_{self.scope.replace('.', '_')}")
        cache = Buffer(name, old.dtype, old.shape, self.scope)
        func = program.func.replace(allocs=(*program.func.allocs, cache))
        func = with_layouts(func, name, layouts_of(func, self.buffer))
        new = use_buffer(program.block(self.block), self.buffer, cache)
        return replace_statements(func, {self.block: new}), cache

    def check_single(self, writes: Sequence[Region]) -> None:
        """Refuse unless the block writes the buffer at one place in each iteration."""
        if len(writes) != 1 or any(int_of(item) != 1 for item in writes[0].extent):
            raise self.refuse(
                f"it writes more than one element of {self.buffer} at a time",
                "a copy needs one place for each iteration",
                "cache before blockize and tensorize",
            )


def _beside(program: Program, block: str) -> list[Site]:
    """The other blocks in the outermost statement that holds a block."""
    body = program.func.body
    top = next(item for item in (body.stmts if isinstance(body, Seq) else (body,)) if holds(item, {block}))
    return [site for site in program.sites.values() if site.name != block and holds(top, {site.name})]


@dataclass(frozen=True, slots=True)
class CacheWrite(_Caching[str]):
    """Let a block write a cache, and copy from there.

    block: the block. buffer: what it writes. scope: where the cache lives. The copy runs over the spatial
    iterations of the block, so it writes exactly what the block wrote; move it with reverse_compute_at. A
    reduction accumulates in the cache. Outputs: the block that copies.
    rewrite: y[i] = f(i) -> c[i] = f(i); y[i] = c[i]
    TVM: cache_write.
    """

    name: ClassVar[str] = "cache_write"

    def apply(self, program: Program) -> tuple[Func, str]:
        buffer, fresh = program.buffer(self.buffer, self.name), program.namer()
        site = program.site(self.block, self.name)
        indices = self._indices(site)
        self._check(program, site, indices)
        name = fresh(f"{self.buffer}_write")
        moved, cache = self.cached(program, fresh, buffer)
        nest = self._copy(site, name, (buffer, cache), indices, fresh)
        return moved.replace(body=put_after(moved.body, {self.block}, nest)), name

    def _copy(
        self,
        site: Site,
        name: str,
        ends: tuple[Buffer, Buffer],
        indices: tuple[Expr, ...],
        fresh: Fresh,
    ) -> Stmt:
        """The nest that copies what the block writes, over the spatial iterations that it executes."""
        conditions, runs = own_conditions(site, set()), executed_box(site, set())
        iters = fresh_iters(fresh, name, [item.extent for item in site.spatial])
        values = {old.var.name: new.var for old, new in zip(site.spatial, iters, strict=True)}
        if conditions is None or runs is None or any(not variables(c) <= values.keys() for c in conditions):
            raise self.refuse(
                "its loops do not run over a box of iterations",
                "the copy could not run over the same ones",
                "cache before splitting and fusing its loops",
            )
        known = Simplifier(ranges(iters))
        at = tuple(known.simplify(substitute(item, values)) for item in indices)
        own = [substitute(item, values) for item in conditions]
        spans = {values[old].name: span for old, span in runs.items()}
        return make_nest(copying(name, iters, *ends, at), spans, known, str, own, unit_loops=True)[0]

    def _indices(self, site: Site) -> tuple[Expr, ...]:
        """Where the block writes the buffer, with literal extents of 1."""
        found = site.writes(self.buffer)
        if not found:
            written = ", ".join(item.buffer.name for item in site.block.writes)
            raise self.refuse(f"it does not write {self.buffer}", f"it writes {written}", f"one of {written}")
        self.check_single(found)
        return found[0].begin

    def _check(self, program: Program, site: Site, indices: tuple[Expr, ...]) -> None:
        if site.inside is not None:
            raise self.refuse(
                f"it is inside block {site.inside}",
                "the cache would have to cross that block",
                "cache before blockize",
            )
        if site.block.init is None and reads_itself(site.block.body, self.buffer):
            raise self.refuse(
                f"it updates what is in {self.buffer}",
                "the cache would not hold what it adds to",
                "use cache_inplace, or cache before decompose_reduction",
            )
        spatial = {item.var.name for item in site.spatial}
        if any(not variables(item) <= spatial for item in indices):
            raise self.refuse(
                "it writes at places that depend on a reduction",
                "the copy runs over the spatial iterations only",
                "make that variable spatial in the block",
            )
        for other in _beside(program, self.block):
            if other.reads(self.buffer):
                raise self.refuse(
                    f"{other.name} reads {self.buffer} in the same loops",
                    "it would read before the copy",
                    f"cache before moving {other.name} there",
                )


@dataclass(frozen=True, slots=True)
class CacheRead(_Caching[str]):
    """Let a block read a copy of a buffer.

    block: the block. buffer: what it reads. scope: where the copy lives. The copy holds the box that the
    block reads in all its iterations; move it with compute_at. Other readers keep the buffer. Outputs: the
    block that copies.
    rewrite: y[i] = f(x[i]) -> c[i] = x[i]; y[i] = f(c[i])
    TVM: cache_read.
    """

    name: ClassVar[str] = "cache_read"

    def apply(self, program: Program) -> tuple[Func, str]:
        buffer, fresh = program.buffer(self.buffer, self.name), program.namer()
        site = program.site(self.block, self.name)
        self._check(program, site)
        name = fresh(f"{self.buffer}_read")
        spans = self._box(site, buffer)
        moved, cache = self.cached(program, fresh, buffer)
        iters = fresh_iters(fresh, name, [const(span.extent) for span in spans])
        known = Simplifier(ranges(iters))
        begins = [span.begin.constant for span in spans]
        at = tuple(known.simplify(item.var + begin) for item, begin in zip(iters, begins, strict=True))
        copy = copying(name, iters, cache, buffer, at)
        return moved.replace(body=put_before(moved.body, {self.block}, nest_of(copy))), name

    def _check(self, program: Program, site: Site) -> None:
        if not site.reads(self.buffer):
            read = ", ".join(dict.fromkeys(item.buffer.name for item in site.block.reads)) or "nothing"
            raise self.refuse(f"it does not read {self.buffer}", f"it reads {read}", f"one of {read}")
        if site.writes(self.buffer):
            raise self.refuse(
                f"it writes {self.buffer}, too",
                "the copy would not see what it writes",
                "use cache_inplace",
            )
        if site.inside is not None:
            raise self.refuse(
                f"it is inside block {site.inside}",
                "the copy would have to cross that block",
                "cache before blockize",
            )
        for other in _beside(program, self.block):
            if other.writes(self.buffer):
                raise self.refuse(
                    f"{other.name} writes {self.buffer} in the same loops",
                    "the copy would be made too early",
                    f"cache before moving {other.name} there",
                )

    def _box(self, site: Site, buffer: Buffer) -> list[Span]:
        """What the block reads over all iterations; literal begins."""
        known = site.known
        found = site.box(self.buffer, site.moving(set(), known), known, write=False)
        result = []
        for span, extent in zip(found, buffer.shape, strict=True):
            size = int_of(extent)
            if size is None:
                raise self.refuse(
                    f"{self.buffer} has a symbolic extent",
                    "the copy needs loops of known length",
                    "compile for a fixed shape",
                )
            fixed = None if span is None or span.begin.terms else span
            if fixed is not None and not -fixed.extent < fixed.begin.constant < size:
                raise self.refuse(
                    f"it reads {self.buffer} outside of its {size} elements only",
                    "a condition in the block leaves all its reads out, so there is nothing to copy",
                    "leave the block as it is, or read another buffer",
                )
            result.append(clip(fixed, size, known))
        return result


@dataclass(frozen=True, slots=True)
class CacheInplace(_Caching[tuple[str, str]]):
    """Load a tile of an accumulator into a cache, update it there, and store it back, under a loop.

    block: a block that updates what another one initialised (after decompose_reduction). buffer: the
    accumulator. scope: where the cache lives. loop: a loop around the block; each of its iterations loads and
    stores the box that it updates. So an outer part of the reduction can run outside of spatial loops.
    Outputs: the blocks that load and store.
    rewrite: for o: for i: y[i] += f(o, i) -> for o: (c[:] = y[:]); (for i: c[i] += f(o, i)); (y[:] = c[:])
    TVM: cache_inplace, with a place.
    """

    name: ClassVar[str] = "cache_inplace"

    loop: str

    def apply(self, program: Program) -> tuple[Func, tuple[str, str]]:
        program.loop(self.loop, self.name)
        buffer, fresh = program.buffer(self.buffer, self.name), program.namer()
        site = program.site(self.block, self.name)
        self._check(program, site)
        load, store = fresh(f"{self.buffer}_load"), fresh(f"{self.buffer}_store")
        moved, cache = self.cached(program, fresh, buffer)
        before = self._tile_copy(program, fresh, load, site, (cache, buffer))
        after = self._tile_copy(program, fresh, store, site, (buffer, cache))
        loop = Program(moved).loop(self.loop)
        moved = replace_statements(moved, {self.loop: loop.replace(body=seq(before, loop.body, after))})
        return moved, (load, store)

    def _check(self, program: Program, site: Site) -> None:
        if not site.under(self.loop):
            raise self.refuse(
                f"it is not under loop {self.loop}",
                f"its loops are {', '.join(item.var.name for item in site.loops)}",
                "name a loop around the block",
            )
        if site.block.init is not None or not reads_itself(site.block.body, self.buffer):
            raise self.refuse(
                f"it does not just update {self.buffer}",
                "a tile that is loaded has to hold the values so far",
                "use decompose_reduction first, or cache_write",
            )
        self.check_single(site.writes(self.buffer))
        for other in program.sites.values():
            if other.name != site.name and other.uses(self.buffer) and other.under(self.loop):
                raise self.refuse(
                    f"{other.name} uses {self.buffer} under {self.loop}, too",
                    "it would not see the cache",
                    "name a loop that only holds this block",
                )

    def _tile_copy(
        self, program: Program, fresh: Fresh, name: str, site: Site, ends: tuple[Buffer, Buffer]
    ) -> Stmt:
        """A nest that copies between the two buffers the box that one iteration of the loop updates."""
        region = site.writes(self.buffer)[0]
        outer = {item.var.name for item in program.loops_around(self.loop)} | {self.loop}
        known = site.known
        inner = Inner(
            {item.var.name: int_of(item.extent) or 1 for item in site.loops if item.var.name not in outer}
        )
        spans = site.box(self.buffer, inner, known, write=True)
        if any(item is None for item in spans) or not is_dense(region, site.values, inner, known):
            raise self.refuse(
                f"what one iteration of {self.loop} updates is not a box",
                "it cannot be loaded and stored by loops",
                "name another loop, or cache before fusing loops",
            )
        iters = fresh_iters(fresh, name, region.buffer.shape)
        copy = copying(name, iters, *ends, tuple(item.var for item in iters))
        boxed = {item.var.name: span for item, span in zip(iters, spans, strict=True) if span is not None}
        return make_nest(copy, boxed, known, str)[0]
