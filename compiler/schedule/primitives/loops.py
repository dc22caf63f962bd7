"""Primitives that rearrange loops and say how they run: fuse, reorder, tile, parallel, vectorize, ..."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from compiler.loops.ir import PART, RANK, Binary, Block, Expr, For, ForKind, Func, Load, Store, Var, const
from compiler.loops.queries import variables
from compiler.loops.simplify import simplify
from compiler.schedule.primitives.base import Primitive, Value
from compiler.schedule.primitives.split import Split, check_serial
from compiler.schedule.program import (
    Program,
    inner_loops,
    iter_kinds,
    outer_blocks,
    reduce_blocks,
    trip_count,
)
from compiler.schedule.races import check_independent, check_reorder, is_virtual
from compiler.schedule.rewriting import nest, rebind, replace_statements

UNROLL_LIMIT = 1024
_ASSOCIATIVE = frozenset({"add", "mul", "min", "max"})
_AXES = (f"{unit}.{axis}" for unit in ("blockIdx", "threadIdx", "vthread") for axis in "xyz")
BIND_TAGS = (*_AXES, RANK, PART)


@dataclass(frozen=True, slots=True)
class Fuse(Primitive[str]):
    """Join directly nested loops into one.

    loops: the loops, outermost first; each holds nothing but the next.
    Outputs: the new loop.
    rewrite: for i in n: for j in m: B(i, j) -> for f in n * m: B(f // m, f % m)
    Halide, TVM: fuse.
    """

    name: ClassVar[str] = "fuse"

    loops: tuple[str, ...]

    @classmethod
    def of(cls, *loops: str) -> Fuse:
        """The step for these loops."""
        return cls(loops)

    def apply(self, program: Program) -> tuple[Func, str]:
        loops = [program.loop(name, self.name) for name in self.loops]
        if len(loops) == 1 or not loops:
            raise self.refuse("needs at least two loops", why=f"got {', '.join(self.loops) or 'none'}")
        self._check(loops)
        fused = Var(program.namer()(f"{self.loops[0]}_fused"))
        values: dict[str, Expr] = {}
        total: Expr = const(1)
        for loop in reversed(loops):
            index = fused // total
            values[loop.var.name] = index if loop is loops[0] else index % loop.extent
            total = total * loop.extent
        known = program.bounds_at(self.loops[0])
        total = simplify(total, known)
        inner = {**known, **program.bounds([For(fused, total, loops[-1].body)])}
        body = rebind(loops[-1].body, values, inner)
        new = For(fused, total, body, annotations=loops[0].annotations)
        return replace_statements(program.func, {self.loops[0]: new}), fused.name

    def _check(self, loops: list[For]) -> None:
        for loop in loops:
            check_serial(loop, self.name)
        for outer, inner in pairwise(loops):
            where = f"loops {outer.var.name} and {inner.var.name}"
            if outer.body is not inner:
                why = f"{outer.var.name} does not hold {inner.var.name} alone and directly"
                raise self.refuse(
                    "the loops are not directly nested", where=where, why=why, hint="reorder first"
                )
            if variables(inner.extent) & set(self.loops):
                why = f"how often {inner.var.name} runs depends on a loop around it"
                raise self.refuse("the loops do not form a box", where=where, why=why)
        for block in outer_blocks(loops[-1]):
            kinds = frozenset().union(*(iter_kinds(block, loop.var.name) for loop in loops))
            if len(kinds) > 1:
                raise self.refuse(
                    "a reduce loop and a spatial loop cannot become one",
                    where=f"block {block.name}",
                    why="one loop would be both summed over and kept apart",
                    hint="fuse loops of one kind, or make the reduction spatial with rfactor",
                )


@dataclass(frozen=True, slots=True)
class Reorder(Primitive[None]):
    """Change the order of nested loops.

    loops: the loops in their new order, outermost first; they take the places that they have together, other
    loops between them stay.
    Outputs: none.
    rewrite: for i: for j: B -> for j: for i: B
    Halide, TVM: reorder.
    """

    name: ClassVar[str] = "reorder"

    loops: tuple[str, ...]

    @classmethod
    def of(cls, *loops: str) -> Reorder:
        """The step for this order."""
        return cls(loops)

    def apply(self, program: Program) -> tuple[Func, None]:
        if len(set(self.loops)) != len(self.loops) or not self.loops:
            raise self.refuse("each loop has to be named once", why=f"got {', '.join(self.loops) or 'none'}")
        chain = self._chain(program)
        wanted = iter(self.loops)
        order = [program.loops[next(wanted)] if loop.var.name in self.loops else loop for loop in chain]
        if order == chain:
            return program.func, None
        self._check(chain, order)
        check_reorder(self.name, program, chain, order)
        new = nest(order, chain[-1].body)
        return replace_statements(program.func, {chain[0].var.name: new}), None

    def _chain(self, program: Program) -> list[For]:
        """The loops from the first to the last of the named ones."""
        found = [program.loop(name, self.name) for name in self.loops]
        deepest = max(found, key=lambda loop: len(program.path(loop.var.name)))
        around = [*program.loops_around(deepest.var.name), deepest]
        missing = [loop.var.name for loop in found if loop not in around]
        if missing:
            raise self.refuse(
                "the loops are not nested in each other",
                where=f"loops {', '.join(self.loops)}",
                why=f"{missing[0]} is not around {deepest.var.name}",
                hint="name loops around one block",
            )
        first = min(around.index(loop) for loop in found)
        chain = around[first:]
        for outer, inner in pairwise(chain):
            if outer.body is not inner:
                raise self.refuse(
                    "something else stands between the loops",
                    where=f"loops {outer.var.name} and {inner.var.name}",
                    why=f"{outer.var.name} holds more than {inner.var.name}",
                    hint="reorder before placing other blocks there",
                )
        return chain

    def _check(self, chain: list[For], order: list[For]) -> None:
        for old, new in zip(chain, order, strict=True):
            if old is not new and new.kind not in {ForKind.SERIAL, ForKind.UNROLLED}:
                check_serial(new, self.name)
        seen: set[str] = set()
        names = {loop.var.name for loop in chain}
        for loop in order:
            late = (variables(loop.extent) & names) - seen
            if late:
                why = f"how often {loop.var.name} runs depends on {min(late)}"
                raise self.refuse(f"{loop.var.name} cannot be moved out of {min(late)}", why=why)
            seen.add(loop.var.name)


@dataclass(frozen=True, slots=True)
class Tile(Primitive[tuple[str, ...]]):
    """Cut nested loops into tiles: split each, then put all inner loops inside all outer ones.

    loops: directly nested loops, outermost first. sizes: the tile in each of them. tail: as in split.
    Outputs: the outer loops, then the inner ones.
    rewrite: for i: for j: B -> for i_0: for j_0: for i_1: for j_1: B
    Halide: tile; TVM: split and reorder.
    """

    name: ClassVar[str] = "tile"

    loops: tuple[str, ...]
    sizes: tuple[int, ...]
    tail: str = "guard"

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        if len(self.loops) != len(self.sizes) or not self.loops:
            why = f"{len(self.loops)} loops, {len(self.sizes)} sizes"
            raise self.refuse("needs one size for each loop", why=why)
        if self.tail == "partition":
            why = "the rest of an outer loop would hold the untiled inner ones"
            raise self.refuse(
                "cannot partition", why=why, hint="split with the tail partition, innermost first"
            )
        outer: list[str] = []
        inner: list[str] = []
        for loop, size in zip(self.loops, self.sizes, strict=True):
            func, made = Split(loop, (None, size), self.tail).apply(program)
            program = Program(func)
            outer.append(made[0])
            inner.append(made[1])
        func, _ = Reorder((*outer, *inner)).apply(program)
        return func, (*outer, *inner)


# ---------------------------------------------------------------- how a loop runs


def _independent(primitive: Primitive[None], program: Program, name: str, *, private: bool = True) -> For:
    """A serial loop whose iterations may run at the same time."""
    loop = program.loop(name, primitive.name)
    check_serial(loop, primitive.name)
    reducing = reduce_blocks(loop)
    if reducing:
        raise primitive.refuse(
            f"loop {name} is a reduce loop",
            where=f"loop {name} of block {reducing[0].name}",
            why="its iterations update the same element",
            hint="use rfactor to make the reduction spatial first",
        )
    check_independent(primitive.name, program, loop, private=private)
    return loop


def _combines(block: Block) -> bool:
    """Whether a block has no start of its own and is C = C op x, with an operation that may be reordered."""
    body = block.body
    if block.init is not None or not isinstance(body, Store) or not isinstance(body.value, Binary):
        return False
    return body.value.op in _ASSOCIATIVE and body.value.a == Load(body.buffer, body.indices)


def _with_kind(func: Func, loop: For, kind: ForKind, tag: str | None = None) -> tuple[Func, None]:
    return replace_statements(func, {loop.var.name: loop.replace(kind=kind, tag=tag)}), None


def _around(primitive: Primitive[None], program: Program, loop: For, kinds: frozenset[ForKind]) -> None:
    """Refuse when a loop around or inside is of one of these kinds."""
    name = loop.var.name
    around, inside = program.loops_around(name), inner_loops(loop.body)
    for other in (*around, *inside):
        if other.kind in kinds:
            side = "around" if other in around else "inside"
            raise primitive.refuse(
                f"loop {other.var.name} {side} {name} is {other.kind.value}",
                where=f"loop {name}",
                why="these kinds of loops do not nest this way",
                hint="fuse the loops, or leave one of them serial",
            )


@dataclass(frozen=True, slots=True)
class Parallel(Primitive[None]):
    """Let the iterations of a loop run on several threads.

    loop: the loop, not a reduce loop.
    Outputs: none.
    rewrite: for i in n: B -> parallel i in n: B
    Halide, TVM: parallel.
    """

    name: ClassVar[str] = "parallel"

    loop: str

    def apply(self, program: Program) -> tuple[Func, None]:
        loop = _independent(self, program, self.loop)
        _around(self, program, loop, frozenset({ForKind.PARALLEL, ForKind.BOUND}))
        return _with_kind(program.func, loop, ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class Vectorize(Primitive[None]):
    """Let the iterations of an innermost loop run in the lanes of a vector.

    loop: an innermost loop with a constant extent. A reduce loop is allowed when the block only combines
    values into one element (C = C op x) and its start was decomposed: each lane then keeps a partial result.
    Outputs: none.
    rewrite: for j in 16: B(j) -> vectorized j in 16: B(j)
    Halide, TVM: vectorize.
    """

    name: ClassVar[str] = "vectorize"

    loop: str

    def apply(self, program: Program) -> tuple[Func, None]:
        loop = program.loop(self.loop, self.name)
        trip_count(loop, self.name)
        inside = inner_loops(loop.body)
        if inside:
            raise self.refuse(
                f"loop {self.loop} is not innermost",
                where=f"loop {self.loop}",
                why=f"loop {inside[0].var.name} is inside it",
                hint="reorder the loop inside, or split it and vectorise the inner part",
            )
        reducing = reduce_blocks(loop)
        if reducing and reducing == outer_blocks(loop) and all(map(_combines, reducing)):
            check_serial(loop, self.name)
        else:
            _independent(self, program, self.loop)
        return _with_kind(program.func, loop, ForKind.VECTORIZED)


@dataclass(frozen=True, slots=True)
class Unroll(Primitive[None]):
    """Write the iterations of a loop out one after the other.

    loop: a loop with a constant extent of at most 1024; it may be a reduce loop.
    Outputs: none.
    rewrite: for j in 4: B(j) -> unrolled j in 4: B(j)
    Halide, TVM: unroll.
    """

    name: ClassVar[str] = "unroll"

    loop: str

    def apply(self, program: Program) -> tuple[Func, None]:
        loop = program.loop(self.loop, self.name)
        check_serial(loop, self.name)
        extent = trip_count(loop, self.name)
        if extent > UNROLL_LIMIT:
            raise self.refuse(
                f"loop {self.loop} runs too often",
                where=f"loop {self.loop}",
                why=f"{extent} iterations, at most {UNROLL_LIMIT} are written out",
                hint="split the loop and unroll the inner part",
            )
        return _with_kind(program.func, loop, ForKind.UNROLLED)


@dataclass(frozen=True, slots=True)
class Bind(Primitive[None]):
    """Give the iterations of a loop to an axis of the hardware, or to virtual threads.

    loop: the loop, not a reduce loop. tag: blockIdx, threadIdx or vthread, with axis .x, .y or .z, or
    blockRank: the blocks of a cluster; or blockPart: blocks of which the last one does what follows.
    Outputs: none.
    rewrite: for i in n: B(i) -> bound(threadIdx.x) i in n: B(i)
    Halide: gpu_blocks, gpu_threads; TVM: bind.
    """

    name: ClassVar[str] = "bind"

    loop: str
    tag: str

    def apply(self, program: Program) -> tuple[Func, None]:
        if self.tag not in BIND_TAGS:
            why, hint = "it names no axis of the hardware", f"one of {', '.join(BIND_TAGS)}"
            raise self.refuse(f"unknown tag {self.tag!r}", why=why, hint=hint)
        loop = _independent(self, program, self.loop, private=not is_virtual(self.tag))
        self._check_tags(program, loop)
        return _with_kind(program.func, loop, ForKind.BOUND, self.tag)

    def _check_tags(self, program: Program, loop: For) -> None:
        around = program.loops_around(self.loop)
        root = around[0] if around else loop
        nested = {item.var.name for item in (*around, *inner_loops(loop.body))}
        for other in inner_loops(root):
            if other.tag != self.tag:
                continue
            where = f"loops {self.loop} and {other.var.name}"
            if other.var.name in nested:
                why = "one is inside the other, and both would follow the same axis"
                raise self.refuse(
                    f"{self.tag} is already bound", where=where, why=why, hint="use another axis"
                )
            if not self.tag.startswith("vthread") and other.extent != loop.extent:
                sizes = f"{trip_count(loop, self.name)} and {trip_count(other, self.name)}"
                why = f"one kernel has one size of {self.tag}, here {sizes}"
                raise self.refuse(
                    "inconsistent bindings", where=where, why=why, hint="split to equal extents"
                )


# ---------------------------------------------------------------- annotations


def _target(primitive: Primitive[None], program: Program, name: str) -> For | Block:
    return program.loops[name] if name in program.loops else program.block(name, primitive.name)


@dataclass(frozen=True, slots=True)
class Annotate(Primitive[None]):
    """Put a note for a later stage on a loop or block.

    target: the loop or block. key, value: the note.
    Outputs: none.
    rewrite: for i: B -> for i (key = value): B
    Halide: -; TVM: annotate.
    """

    name: ClassVar[str] = "annotate"

    target: str
    key: str
    value: Value

    def apply(self, program: Program) -> tuple[Func, None]:
        found = _target(self, program, self.target)
        notes = dict(found.annotations)
        if self.key in notes:
            raise self.refuse(
                f"{self.target} already has the note {self.key!r}",
                where=self.target,
                why=f"its value is {notes[self.key]!r}",
                hint="unannotate it first",
            )
        new = found.replace(annotations=(*found.annotations, (self.key, self.value)))
        return replace_statements(program.func, {self.target: new}), None


@dataclass(frozen=True, slots=True)
class Unannotate(Primitive[None]):
    """Take a note off a loop or block.

    target: the loop or block. key: the note.
    Outputs: none.
    rewrite: for i (key = value): B -> for i: B
    Halide: -; TVM: unannotate.
    """

    name: ClassVar[str] = "unannotate"

    target: str
    key: str

    def apply(self, program: Program) -> tuple[Func, None]:
        found = _target(self, program, self.target)
        kept = tuple(item for item in found.annotations if item[0] != self.key)
        if kept == found.annotations:
            known = ", ".join(key for key, _ in kept) or "none"
            raise self.refuse(
                f"{self.target} has no note {self.key!r}", where=self.target, why=f"its notes: {known}"
            )
        return replace_statements(program.func, {self.target: found.replace(annotations=kept)}), None
