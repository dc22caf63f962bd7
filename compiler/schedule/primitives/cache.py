"""Primitives that put a cache between a block and a buffer: cache_read, cache_write, cache_inplace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler.core.types import INDEX
from compiler.loops.ir import Block, Buffer, Expr, For, Func, Iter, Load, Stmt, Store, Var, const, seq
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.layout_changes import layouts_of, with_layouts
from compiler.schedule.nest import conjunction, executed_box, make_nest, own_conditions
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, Site, ranges, reads_itself
from compiler.schedule.regions import Inner, Span, clip, is_dense
from compiler.schedule.rewriting import (
    declared,
    holds,
    nest_of,
    put_after,
    put_before,
    replace_statements,
    use_buffer,
)

# ---------------------------------------------------------------- caches


def _cache_of(func: Func, fresh: Fresh, buffer: Buffer, scope: str) -> tuple[Func, Buffer]:
    """A new local buffer of the same shape and layout; lowering makes it as small as its uses."""
    name = fresh(f"{buffer.name}_{scope.replace('.', '_')}")
    cache = Buffer(name, buffer.dtype, buffer.shape, scope)
    func = func.replace(allocs=(*func.allocs, cache))
    return with_layouts(func, name, layouts_of(func, buffer.name)), cache


def _copy(
    fresh: Fresh,
    name: str,
    domain: Sequence[tuple[str, Expr]],
    target: tuple[Buffer, tuple[Expr, ...]],
    source: tuple[Buffer, tuple[Expr, ...]],
    known: Simplifier,
) -> Block:
    """A block that copies; indices are over the names in `domain`, which become its iteration variables."""
    iters, values = [], {}
    for number, (old, extent) in enumerate(domain):
        loop = Var(fresh(f"{name}_i{number}"))
        var = Var(fresh(f"v{loop.name}"))
        iters.append(Iter(var, extent, "spatial", loop))
        values[old] = var
    for bound_name, (low, high) in ranges(iters).items():
        known = known.bind(bound_name, low, high)

    def at(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(known.simplify(substitute(item, values)) for item in indices)

    body = Store(target[0], at(target[1]), Load(source[0], at(source[1])))
    return declared(Block(name, tuple(iters), (), (), body))


@dataclass(frozen=True, slots=True)
class CacheWrite(Primitive[str]):
    """Let a block write a cache, and copy from there.

    block: the block. buffer: what it writes. scope: where the cache lives. The copy runs over the spatial
    iterations of the block, so it writes exactly what the block wrote; move it with reverse_compute_at. A
    reduction accumulates in the cache. Outputs: the block that copies.
    rewrite: y[i] = f(i) -> c[i] = f(i); y[i] = c[i]
    TVM: cache_write.
    """

    name: ClassVar[str] = "cache_write"

    block: str
    buffer: str
    scope: str

    def apply(self, program: Program) -> tuple[Func, str]:
        buffer, fresh = program.buffer(self.buffer, self.name), program.namer()
        site = program.site(self.block, self.name)
        indices = self._indices(site)
        self._check(program, site, indices)
        name = fresh(f"{self.buffer}_write")
        func, cache = _cache_of(program.func, fresh, buffer, self.scope)
        nest = self._copy(site, name, (buffer, cache), indices, fresh)
        moved = replace_statements(func, {self.block: use_buffer(site.block, self.buffer, cache)})
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
        iters, values = [], {}
        for number, item in enumerate(item for item in site.block.iters if item.kind == "spatial"):
            loop = Var(fresh(f"{name}_i{number}"))
            var = Var(fresh(f"v{loop.name}"))
            iters.append(Iter(var, item.extent, "spatial", const(0)))
            values[item.var.name] = var
        if conditions is None or runs is None or any(not variables(c) <= values.keys() for c in conditions):
            raise self.refuse(
                "its loops do not run over a box of iterations",
                "the copy could not run over the same ones",
                "cache before splitting and fusing its loops",
            )
        known = Simplifier(ranges(iters))
        at = tuple(known.simplify(substitute(item, values)) for item in indices)
        body = Store(ends[0], at, Load(ends[1], at))
        copy = declared(Block(name, tuple(iters), (), (), body))
        own = [substitute(item, values) for item in conditions]

        def checks(bindings: dict[str, Expr], known: Simplifier) -> list[Expr]:
            return [known.simplify(substitute(item, bindings)) for item in own]

        spans = {values[old].name: span for old, span in runs.items()}
        return make_nest(
            copy, spans, checks, known, Program(Func(name, (), seq())).namer(), unit_loops=True
        ).stmt

    def _indices(self, site: Site) -> tuple[Expr, ...]:
        """Where the block writes the buffer, with literal extents of 1."""
        found = site.writes(self.buffer)
        if not found:
            written = ", ".join(item.buffer.name for item in site.block.writes)
            raise self.refuse(f"it does not write {self.buffer}", f"it writes {written}", f"one of {written}")
        if len(found) > 1 or any(int_of(item) != 1 for item in found[0].extent):
            raise self.refuse(
                f"it writes more than one element of {self.buffer} at a time",
                "a copy needs one place for each iteration",
                "cache before blockize and tensorize",
            )
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
        spatial = {item.var.name for item in site.block.iters if item.kind == "spatial"}
        if any(not variables(item) <= spatial for item in indices):
            raise self.refuse(
                "it writes at places that depend on a reduction",
                "the copy runs over the spatial iterations only",
                "make that variable spatial in the block",
            )
        top = _top_level(program.func, self.block)
        for other in program.sites.values():
            if other.name != site.name and other.reads(self.buffer) and holds(top, {other.name}):
                raise self.refuse(
                    f"{other.name} reads {self.buffer} in the same loops",
                    "it would read before the copy",
                    f"cache before moving {other.name} there",
                )


def _top_level(func: Func, block: str) -> Stmt:
    """The outermost statement that holds a block."""
    parts = func.body.stmts if hasattr(func.body, "stmts") else (func.body,)
    return next(item for item in parts if holds(item, {block}))


@dataclass(frozen=True, slots=True)
class CacheRead(Primitive[str]):
    """Let a block read a copy of a buffer.

    block: the block. buffer: what it reads. scope: where the copy lives. The copy holds the box that the
    block reads in all its iterations; move it with compute_at. Other readers keep the buffer. Outputs: the
    block that copies.
    rewrite: y[i] = f(x[i]) -> c[i] = x[i]; y[i] = f(c[i])
    TVM: cache_read.
    """

    name: ClassVar[str] = "cache_read"

    block: str
    buffer: str
    scope: str

    def apply(self, program: Program) -> tuple[Func, str]:
        buffer, fresh = program.buffer(self.buffer, self.name), program.namer()
        site = program.site(self.block, self.name)
        self._check(program, site)
        name = fresh(f"{self.buffer}_read")
        spans = self._box(site, buffer)
        func, cache = _cache_of(program.func, fresh, buffer, self.scope)
        axes = [f"@{number}" for number in range(len(spans))]
        at = tuple(Var(axis) + const(span.begin.constant) for axis, span in zip(axes, spans, strict=True))
        domain = [(axis, const(span.extent)) for axis, span in zip(axes, spans, strict=True)]
        copy = _copy(fresh, name, domain, (cache, at), (buffer, at), Simplifier())
        moved = replace_statements(func, {self.block: use_buffer(site.block, self.buffer, cache)})
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
        top = _top_level(program.func, self.block)
        for other in program.sites.values():
            if other.name != site.name and other.writes(self.buffer) and holds(top, {other.name}):
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
class CacheInplace(Primitive[tuple[str, str]]):
    """Load a tile of an accumulator into a cache, update it there, and store it back, under a loop.

    block: a block that updates what another one initialised (after decompose_reduction). buffer: the
    accumulator. scope: where the cache lives. loop: a loop around the block; each of its iterations loads and
    stores the box that it updates. So an outer part of the reduction can run outside of spatial loops.
    Outputs: the blocks that load and store.
    rewrite: for o: for i: y[i] += f(o, i) -> for o: (c[:] = y[:]); (for i: c[i] += f(o, i)); (y[:] = c[:])
    TVM: cache_inplace, with a place.
    """

    name: ClassVar[str] = "cache_inplace"

    block: str
    buffer: str
    scope: str
    loop: str

    def apply(self, program: Program) -> tuple[Func, tuple[str, str]]:
        program.loop(self.loop, self.name)
        buffer, fresh = program.buffer(self.buffer, self.name), program.namer()
        site = program.site(self.block, self.name)
        self._check(program, site)
        load, store = fresh(f"{self.buffer}_load"), fresh(f"{self.buffer}_store")
        func, cache = _cache_of(program.func, fresh, buffer, self.scope)
        before = self._tile_copy(program, fresh, load, site, (cache, buffer))
        after = self._tile_copy(program, fresh, store, site, (buffer, cache))
        moved = replace_statements(func, {self.block: use_buffer(site.block, self.buffer, cache)})
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
        region = site.writes(self.buffer)
        if len(region) != 1 or any(int_of(item) != 1 for item in region[0].extent):
            raise self.refuse(
                f"it writes more than one element of {self.buffer} at a time",
                "a copy needs one place for each iteration",
                "cache before blockize and tensorize",
            )
        for other in program.sites.values():
            touched = other.writes(self.buffer) or other.reads(self.buffer)
            if other.name != site.name and touched and other.under(self.loop):
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
        iters, loops, checks = [], [], []
        for number, (span, extent) in enumerate(zip(spans, region.buffer.shape, strict=True)):
            assert span is not None
            begin, var = known.emit(span.begin), Var(fresh(f"v{name}_i{number}"))
            binding: Expr = begin
            if span.extent > 1:
                loop = Var(fresh(f"{name}_i{number}"))
                known = known.bind(loop.name, 0, span.extent - 1)
                loops.append((loop, span.extent))
                binding = known.simplify(begin + loop)
            checks.append(known.simplify(binding.ge(const(0, INDEX))))
            checks.append(known.simplify(binding.lt(extent)))
            iters.append(Iter(var, extent, "spatial", binding))
        at = tuple(item.var for item in iters)
        body = Store(ends[0], at, Load(ends[1], at))
        stmt: Stmt = declared(Block(name, tuple(iters), (), (), body, None, conjunction(checks)))
        for loop, count in reversed(loops):
            stmt = For(loop, const(count), stmt)
        return stmt
