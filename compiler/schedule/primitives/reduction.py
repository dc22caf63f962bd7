"""Primitives about reductions: decompose_reduction and rfactor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from compiler.loops.build import COMBINING, identity_of
from compiler.loops.ir import (
    Block,
    Buffer,
    Expr,
    For,
    ForKind,
    Func,
    Iter,
    Load,
    Store,
    Var,
    all_of,
    binary,
    const,
    seq,
)
from compiler.loops.linear import conjuncts
from compiler.loops.queries import variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, Site, iter_kinds, outer_blocks, trip_count
from compiler.schedule.races import repeated_work, unfinished_use
from compiler.schedule.rewriting import declared, map_blocks, nest, replace_statements, update_of


@dataclass(frozen=True, slots=True)
class _Reduction:
    """A block that reduces, the loops around it, and which of them it reduces over."""

    program: Program
    fresh: Fresh
    site: Site

    @property
    def block(self) -> Block:
        return self.site.block

    @property
    def loops(self) -> tuple[For, ...]:
        return self.site.loops

    @property
    def reduce_loops(self) -> tuple[For, ...]:
        return tuple(loop for loop in self.loops if "reduce" in iter_kinds(self.block, loop.var.name))

    def at_start(self, cond: Expr, keep: str = "") -> Expr:
        """A condition where all reduce loops (but `keep`) are at 0."""
        zeros: dict[str, Expr] = {
            loop.var.name: const(0) for loop in self.reduce_loops if loop.var.name != keep
        }
        return Simplifier(self.program.bounds_at(self.block.name)).simplify(substitute(cond, zeros))

    def spatial_copies(
        self, first: int, block: Block, suffix: str, *, keep_kinds: bool
    ) -> tuple[list[For], Block]:
        """Fresh copies of the loops from number `first` on that a block uses, and the block over them."""
        used = variables(block.predicate) if block.predicate is not None else frozenset()
        used = used.union(*(variables(item.binding) for item in block.iters))
        copied = [loop for loop in self.loops[first:] if loop.var.name in used]
        names = {loop.var.name: Var(self.fresh(f"{loop.var.name}_{suffix}")) for loop in copied}
        loops = []
        for loop in copied:
            new = loop.replace(var=names[loop.var.name], extent=substitute(loop.extent, names))
            loops.append(new if keep_kinds else new.replace(kind=ForKind.SERIAL, tag=None, annotations=()))
        iters = tuple(item.replace(binding=substitute(item.binding, names)) for item in block.iters)
        predicate = None if block.predicate is None else substitute(block.predicate, names)
        return loops, block.replace(iters=iters, predicate=predicate)


def _reduction(primitive: Primitive[Any], program: Program, name: str) -> _Reduction:
    site = program.site(name, primitive.name)
    block = site.block
    if block.init is None or not block.is_reduction:
        why = "it has no init" if block.is_reduction else "it has no reduce iterations"
        hint = "it was decomposed before" if block.is_reduction else "name a block that sums or compares"
        raise primitive.refuse(f"block {name} is no reduction", where=f"block {name}", why=why, hint=hint)
    found = _Reduction(program, program.namer(), site)
    for item in block.iters:
        if item.kind == "reduce" and found.at_start(item.binding) != const(0):
            raise primitive.refuse(
                f"block {name} does not start its sum",
                where=f"block {name}, iteration {item.var.name}",
                why="it goes on with what another block began (the rest of a partition)",
                hint="decompose the block that starts it, or partition afterwards",
            )
    return found


def _around(primitive: Primitive[Any], work: _Reduction, loop: str) -> int:
    """The number of a loop among those around the block."""
    primitive_loop = work.program.loop(loop, primitive.name)
    names = [item.var.name for item in work.loops]
    if primitive_loop.var.name not in names:
        raise primitive.refuse(
            f"loop {loop} is not around block {work.block.name}",
            where=f"loop {loop}",
            why=f"around the block are {', '.join(names) or 'no loops'}",
            hint="name one of these",
        )
    return names.index(loop)


@dataclass(frozen=True, slots=True)
class DecomposeReduction(Primitive[str]):
    """Make the start of a reduction a block of its own, just before a loop.

    block: a reduction. loop: a loop around it, with all its reduce loops at or inside it.
    Outputs: the block that starts the reduction.
    rewrite: for i: for k: C(i) = 0 at k == 0, then C(i) += x -> for i: C(i) = 0; for i: for k: C(i) += x
    Halide: update definitions; TVM: decompose_reduction.
    """

    name: ClassVar[str] = "decompose_reduction"

    block: str
    loop: str

    def apply(self, program: Program) -> tuple[Func, str]:
        work = _reduction(self, program, self.block)
        first = _around(self, work, self.loop)
        self._check(work, first)
        start = self._start(work)
        loops, before = work.spatial_copies(first, start, "init", keep_kinds=True)
        loop = _with_block(program.loops[self.loop], self.block, work.block.replace(init=None))
        return replace_statements(program.func, {self.loop: seq(nest(loops, before), loop)}), start.name

    def _check(self, work: _Reduction, first: int) -> None:
        for loop in work.loops[:first]:
            if loop in work.reduce_loops:
                raise self.refuse(
                    f"reduce loop {loop.var.name} is outside of {self.loop}",
                    where=f"block {self.block}",
                    why="the sum would start again in each of its iterations",
                    hint=f"decompose at {loop.var.name} or a loop outside of it",
                )
        for loop in work.loops[first:]:
            if loop not in work.reduce_loops:
                why = repeated_work(work.program, work.block, loop)
                if why:
                    raise self.refuse(
                        f"the sums inside {loop.var.name} would be added more than once",
                        where=f"block {self.block}",
                        why=why,
                        hint="decompose at a loop inside of it",
                    )

        found = unfinished_use(work.program, work.block, work.loops[first])
        if found is not None:
            raise self.refuse(
                f"block {found[0].name} uses {found[1].name} before the sums of the same iteration are done",
                where=f"block {self.block}, loop {self.loop}",
                why="starting all sums before the loop would destroy what it still needs",
                hint="decompose at a loop inside of it",
            )

    def _start(self, work: _Reduction) -> Block:
        fresh, block = work.fresh, work.block
        name = fresh(f"{block.name}_init")
        spatial = work.site.spatial
        names: dict[str, Expr] = {item.var.name: Var(fresh(f"{item.var.name}_init")) for item in spatial}
        iters = tuple(item.replace(var=names[item.var.name]) for item in spatial)
        assert block.init is not None
        body = substitute(block.init, names)
        predicate = all_of(*(work.at_start(cond) for cond in conjuncts(block.predicate)))
        return declared(Block(name, iters, (), (), body, None, predicate))


@dataclass(frozen=True, slots=True)
class RFactor(Primitive[tuple[str, str]]):
    """Make one reduce loop spatial: partial results first, then their reduction.

    block: a reduction of the form C = C op x. loop: one of its reduce loops. axis: where the loop becomes a
    dimension of the buffer of partial results.
    Outputs: the block that makes the partial results, and their buffer.
    rewrite: for i, k0, k1: C(i) += x -> for i, k0, k1: P(k1, i) += x; for i, k1: C(i) += P(k1, i)
    Halide, TVM: rfactor.
    """

    name: ClassVar[str] = "rfactor"

    block: str
    loop: str
    axis: int = 0

    def apply(self, program: Program) -> tuple[Func, tuple[str, str]]:
        work = _reduction(self, program, self.block)
        number = _around(self, work, self.loop)
        target, value, op = self._update(work.block)
        self._check(work, number, len(target.indices))
        extent = trip_count(work.loops[number], self.name)
        buffer = Buffer(
            work.fresh(f"{self.block}_rf"),
            target.buffer.dtype,
            self._with_axis(target.buffer.shape, const(extent)),
        )
        partial = self._partial(work, buffer, value, op)
        top = self._top(work)
        loops, final = work.spatial_copies(top, self._final(work), "final", keep_kinds=False)
        last = For(Var(work.fresh(f"{self.loop}_final")), const(extent), final)
        factor = Iter(Var(work.fresh(f"v{self.loop}")), last.extent, "reduce", last.var)
        final = self._add_up(final, target, factor, buffer, op)
        first = _with_block(work.loops[top], self.block, partial)
        after = nest((*loops, last), final)
        new = replace_statements(program.func, {first.var.name: seq(first, after)})
        return new.replace(allocs=(*program.func.allocs, buffer)), (partial.name, buffer.name)

    def _with_axis(self, items: tuple[Expr, ...], new: Expr) -> tuple[Expr, ...]:
        return (*items[: self.axis], new, *items[self.axis :])

    def _update(self, block: Block) -> tuple[Store, Expr, str]:
        """The store `C = C op value` of the block: (store, value, op)."""
        body, (op, value) = block.body, update_of(block.body) or ("", None)
        if isinstance(body, Store) and body.mask is None and op in COMBINING and value is not None:
            return body, value, op
        raise self.refuse(
            f"block {self.block} is not of the form C = C op x",
            where=f"block {self.block}",
            why=f"op has to be one of {', '.join(sorted(COMBINING))}, and x may not use C",
            hint="rfactor takes sums, products, minima and maxima",
        )

    def _check(self, work: _Reduction, number: int, rank: int) -> None:
        loop = work.loops[number]
        where = f"block {self.block}, loop {self.loop}"
        if loop not in work.reduce_loops:
            raise self.refuse(
                f"loop {self.loop} is not a reduce loop of block {self.block}",
                where=where,
                why="its iterations already make different elements",
                hint=f"reduce loops: {', '.join(item.var.name for item in work.reduce_loops)}",
            )
        if not 0 <= self.axis <= rank:
            raise self.refuse(f"axis {self.axis} is out of range", where=where, why=f"0..{rank} is possible")
        inner = {item.var.name for item in work.reduce_loops}
        for cond in conjuncts(work.block.predicate):
            if variables(cond) & inner and all_of(work.at_start(cond, keep=self.loop)) is not None:
                raise self.refuse(
                    f"some iterations of {self.loop} have nothing to start with",
                    where=where,
                    why=f"the predicate of block {self.block} leaves out their first iteration",
                    hint="split by a smaller factor, or by one that divides",
                )

    def _top(self, work: _Reduction) -> int:
        """The outermost loop that holds this block alone; the final block goes after it."""
        top = len(work.loops)
        for number in reversed(range(len(work.loops))):
            if outer_blocks(work.loops[number]) != (work.block,):
                break
            top = number
        outside = [loop.var.name for loop in work.loops[:top] if loop in work.reduce_loops]
        if outside:
            raise self.refuse(
                f"reduce loop {outside[0]} holds other blocks, too",
                where=f"block {self.block}",
                why="the results would be complete only after that loop",
                hint="use rfactor before placing other blocks there",
            )
        return top

    def _partial(self, work: _Reduction, buffer: Buffer, value: Expr, op: str) -> Block:
        """The block of partial results: the loop is spatial, other loops that fed the same index reduce."""
        fresh, block = work.fresh, work.block
        factor = Iter(
            Var(fresh(f"v{self.loop}")),
            const(trip_count(work.program.loops[self.loop], self.name)),
            "spatial",
            Var(self.loop),
        )
        values: dict[str, Expr] = {}
        spatial: list[Iter] = []
        kept: list[Iter] = []
        split: dict[str, Iter] = {}
        for item in block.iters:
            if self.loop not in variables(item.binding):
                new = item.replace(var=Var(fresh(f"{item.var.name}_rf")))
                (spatial if item.kind == "spatial" else kept).append(new)
                values[item.var.name] = new.var
                continue
            for loop in work.reduce_loops:
                name = loop.var.name
                if name in variables(item.binding) and name != self.loop and name not in split:
                    split[name] = Iter(Var(fresh(f"v{name}")), loop.extent, "reduce", Var(name))
            inner: dict[str, Expr] = {name: it.var for name, it in split.items()}
            values[item.var.name] = substitute(item.binding, {**inner, self.loop: factor.var})
        at = self._with_axis(work.site.body.indices, factor.var)
        simplifier = Simplifier({})
        indices = tuple(simplifier.simplify(substitute(item, values)) for item in at)
        new_value = substitute(value, values)
        reduce = (*kept, *split.values())
        start = Store(buffer, indices, identity_of(op, buffer.dtype)) if reduce else None
        total = binary(op, Load(buffer, indices), new_value) if reduce else new_value
        iters, body = (*spatial, factor, *reduce), Store(buffer, indices, total)
        made = Block(buffer.name, iters, (), (), body, start, block.predicate, block.annotations)
        return declared(made)

    def _final(self, work: _Reduction) -> Block:
        """The block that will add up the partial results, still without the iteration that does it."""
        block, inner = work.block, {item.var.name for item in work.reduce_loops}
        kept = [cond for cond in conjuncts(block.predicate) if not variables(cond) & inner]
        return Block(block.name, work.site.spatial, (), (), block.body, block.init, all_of(*kept))

    def _add_up(self, final: Block, target: Store, factor: Iter, buffer: Buffer, op: str) -> Block:
        part = Load(buffer, self._with_axis(target.indices, factor.var))
        body = Store(target.buffer, target.indices, binary(op, Load(target.buffer, target.indices), part))
        return declared(final.replace(iters=(*final.iters, factor), body=body))


def _with_block(loop: For, name: str, block: Block) -> For:
    """The loop with the block called `name` exchanged."""
    new = map_blocks(loop, lambda item: block if item.name == name else item)
    assert isinstance(new, For)
    return new
