"""Primitives that dissolve a block in its consumers or its producer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from compiler.core.diagnostics import UsageError
from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import (
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    Func,
    Indexed,
    Load,
    Region,
    Select,
    Stmt,
    Store,
    Var,
    all_of,
)
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.nest import own_conditions
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program, ranges
from compiler.schedule.rewriting import declared, replace_statements, without_block


@dataclass(frozen=True, slots=True)
class ComputeInline(Primitive[None]):
    """Put the computation of a block into all blocks that read its result.

    block: a block that computes each element of a local buffer from its indices, and is its only writer.
    Outputs: none.
    rewrite: T(i) = f(x(i)); C(j) = T(j + 1) * 2 -> C(j) = f(x(j + 1)) * 2
    Halide: compute_inline (the default); TVM: compute_inline.
    """

    name: ClassVar[str] = "compute_inline"

    block: str

    def apply(self, program: Program) -> tuple[Func, None]:
        block = program.block(self.block, self.name)
        store = _pointwise(self, block)
        _check_private(self, program, block, store.buffer)
        inverse = self._inverse(block, store)
        padded = prod(_sizes(store.buffer.shape)) != prod(_sizes(item.extent for item in block.iters))
        readers = _readers(program, store.buffer, self.block)
        if not readers:
            raise self.refuse(
                f"nothing reads {store.buffer.name}", where=f"block {self.block}", hint="leave the block out"
            )
        new: dict[str, Stmt] = {}
        for reader in readers:
            self._check_reader(reader, store.buffer)
            new[reader.name] = self._into(reader, block, store, inverse, padded=padded)
        func = replace_statements(program.func, new)
        return _without(func, self.block, store.buffer), None

    def _inverse(self, block: Block, store: Store) -> IndexMap:
        names = tuple(item.var.name for item in block.iters)
        try:
            return IndexMap(names, store.indices).inverse(tuple(_sizes(item.extent for item in block.iters)))
        except UsageError as error:
            raise self.refuse(
                f"it is not known which iteration of {self.block} makes which element",
                where=f"block {self.block}",
                why=error.why or error.what,
                hint="store to plain indices, or to whole digits of them (i // n, i % n)",
            ) from None

    def _check_reader(self, reader: Block, buffer: Buffer) -> None:
        parts = list(reader.body.walk())
        mentions = [item for item in parts if _mentions(item, buffer)]
        opaque = any(not isinstance(item, Load | Store) for item in mentions)
        masked = any(isinstance(item, Load) and item.mask is not None for item in mentions)
        if opaque or masked or any(isinstance(item, Block) for item in parts):
            raise self.refuse(
                f"block {reader.name} reads {buffer.name} in a way that cannot be replaced",
                where=f"block {reader.name}",
                why="its reads are hidden in an intrinsic, a mask or inner blocks",
                hint="inline before tensorize and blockize",
            )

    def _into(self, reader: Block, block: Block, store: Store, inverse: IndexMap, *, padded: bool) -> Block:
        known, value = Simplifier(ranges(reader.iters)), rounded(store.value, store.buffer)

        def swap(item: IRNode) -> IRNode | None:
            if not isinstance(item, Load) or item.buffer != store.buffer:
                return None
            indices = tuple(known.simplify(at) for at in inverse.apply(item.indices))
            if padded:
                self._check_inside(reader, block, store.buffer, indices, known)
            values = {it.var.name: index for it, index in zip(block.iters, indices, strict=True)}
            return known.simplify(substitute(value, values))

        init = None if reader.init is None else rewrite_nodes(reader.init, swap)
        return declared(reader.replace(body=rewrite_nodes(reader.body, swap), init=init))

    def _check_inside(
        self, reader: Block, block: Block, buffer: Buffer, indices: tuple[Expr, ...], known: Simplifier
    ) -> None:
        for item, index in zip(block.iters, indices, strict=True):
            if not _inside(index, item.extent, known):
                raise self.refuse(
                    f"block {reader.name} may read padding of {buffer.name}",
                    where=f"block {reader.name}",
                    why=f"{item.var.name} of block {self.block} would leave 0..{_sizes([item.extent])[0]}",
                    hint="inline before padding the buffer",
                )


@dataclass(frozen=True, slots=True)
class ReverseComputeInline(Primitive[None]):
    """Put a block that works on each element of its producer's result into the producer.

    block: the only reader of a local buffer, which it reads one to one. Its producer may not be a reduction.
    Outputs: none.
    rewrite: T(i) = f(i); C(i) = g(T(i)) -> C(i) = g(f(i))
    Halide: -; TVM: reverse_compute_inline.
    """

    name: ClassVar[str] = "reverse_compute_inline"

    block: str

    def apply(self, program: Program) -> tuple[Func, None]:
        block = program.block(self.block, self.name)
        store = _pointwise(self, block)
        if own_conditions(program.sites[self.block], set()) != []:
            raise self.refuse(
                f"block {self.block} leaves out some of its iterations",
                where=f"block {self.block}",
                why="its predicate says more than where its domain ends",
                hint="use compute_inline on the producer",
            )
        producer, load = self._producer(program, block)
        made = _pointwise(self, producer)
        _check_private(self, program, producer, made.buffer)
        self._check_order(program, block, producer)
        inverse = self._inverse(block, load)
        known = Simplifier(ranges(producer.iters))
        at = tuple(known.simplify(item) for item in inverse.apply(made.indices))
        values = {item.var.name: value for item, value in zip(block.iters, at, strict=True)}
        value = known.simplify(substitute(store.value, values))
        inner = rounded(made.value, made.buffer)
        value = rewrite_nodes(
            value, lambda item: inner if isinstance(item, Load) and item.buffer == made.buffer else None
        )
        indices = tuple(known.simplify(substitute(item, values)) for item in store.indices)
        body = Store(store.buffer, indices, value)
        predicate = all_of(producer.predicate, self._inside(program, block, producer, at))
        new = declared(producer.replace(body=body, predicate=predicate))
        func = replace_statements(program.func, {producer.name: new})
        return _without(func, self.block, made.buffer), None

    def _producer(self, program: Program, block: Block) -> tuple[Block, Load]:
        """The block whose result this one works on, and the one way in which it reads it."""
        loads: dict[Load, Block] = {}
        for item in block.body.walk():
            if isinstance(item, Load) and item.buffer in program.func.allocs:
                makers = program.writers(item.buffer.name)
                uses = sum(bool(site.reads(item.buffer.name)) for site in program.sites.values())
                if len(makers) == 1 and uses == 1:
                    loads[item] = makers[0].block
        candidates = {maker.name: maker for maker in loads.values()}
        if len(candidates) != 1:
            raise self.refuse(
                f"block {self.block} needs one producer that only it uses",
                where=f"block {self.block}",
                why=f"such producers: {', '.join(candidates) or 'none'}",
                hint="name a block that reads one local buffer which nothing else reads or writes",
            )
        if len(loads) > 1:
            raise self.refuse(
                f"block {self.block} reads several elements of its producer's result",
                where=f"block {self.block}",
                why="one iteration of the producer makes only one of them",
                hint="use compute_inline on the producer",
            )
        ((load, producer),) = loads.items()
        if producer.is_reduction:
            raise self.refuse(
                f"producer {producer.name} is a reduction",
                where=f"block {producer.name}",
                why="its result is complete only after its last iteration",
                hint="use reverse_compute_at",
            )
        return producer, load

    def _check_order(self, program: Program, block: Block, producer: Block) -> None:
        """What else the block touches must not change between the producer and the block."""
        blocks = list(program.blocks.values())
        touched = {region.buffer.name for region in (*block.reads, *block.writes)}
        for other in blocks[blocks.index(producer) + 1 : blocks.index(block)]:
            clash = touched & {region.buffer.name for region in other.writes}
            if clash:
                raise self.refuse(
                    f"block {other.name} writes {min(clash)} between {producer.name} and {self.block}",
                    where=f"block {self.block}",
                    why="it would then be too late",
                    hint=f"move or inline {other.name} first",
                )

    def _inverse(self, block: Block, load: Load) -> IndexMap:
        names = tuple(item.var.name for item in block.iters)
        why = "the indices do not reach every element once, or reach beyond them"
        try:
            forward = IndexMap(names, load.indices)
            inverse = forward.inverse(tuple(_sizes(item.extent for item in block.iters)))
            known = Simplifier(inverse.bounds(_sizes(load.buffer.shape)))
            there = forward.apply(inverse.outputs)
            reaches = Simplifier(ranges(block.iters))
            inside = (
                _inside(item, extent, reaches)
                for item, extent in zip(load.indices, load.buffer.shape, strict=True)
            )
            same = (
                known.simplify(item) == known.simplify(Var(name))
                for item, name in zip(there, inverse.inputs, strict=True)
            )
            if all(inside) and all(same):
                return inverse
        except UsageError as error:
            why = error.why or error.what
        raise self.refuse(
            f"block {self.block} does not read {load.buffer.name} one to one",
            where=f"block {self.block}",
            why=why,
            hint="use compute_inline on the producer",
        )

    def _inside(self, program: Program, block: Block, producer: Block, at: tuple[Expr, ...]) -> Expr | None:
        """The condition over loop variables that an iteration of the producer has one of the block."""
        known = Simplifier(program.bounds_at(producer.name))
        bindings = {item.var.name: item.binding for item in producer.iters}
        own = Simplifier(ranges(producer.iters))
        conditions: list[Expr] = []
        for item, index in zip(block.iters, at, strict=True):
            if not _inside(index, item.extent, own):
                value = substitute(index, bindings)
                conditions += [known.simplify(value.ge(0)), known.simplify(value.lt(item.extent))]
        return all_of(*conditions)


# ---------------------------------------------------------------- shared


def _inside(index: Expr, extent: Expr, known: Simplifier) -> bool:
    """Whether an index provably lies in 0..extent."""
    return known.prove(index.ge(0)) is True and known.prove(index.lt(extent)) is True


def rounded(value: Expr, buffer: Buffer) -> Expr:
    """What a load gives after `value` was stored to the buffer: narrow floats are rounded."""
    narrow = buffer.dtype.is_float and buffer.dtype.bits < 32 and not _is_kept(value)
    return Cast(buffer.dtype, value) if narrow or value.dtype != buffer.dtype else value


def _is_kept(value: Expr) -> bool:
    """Whether it is what memory holds, or zero, or rounded already: there is nothing to round."""
    if isinstance(value, Select):
        return _is_kept(value.a) and _is_kept(value.b)
    if isinstance(value, Cast):
        return value.value.dtype != value.type
    return isinstance(value, Load) or (isinstance(value, Const) and value.value == 0)


def _pointwise(primitive: Primitive[None], block: Block) -> Store:
    """The one store of a block that computes each element from its indices alone."""
    body = block.body
    why = ""
    if not isinstance(body, Store) or body.mask is not None:
        why = "it is more than one plain store"
    elif block.is_reduction or block.init is not None:
        why = "it is a reduction"
    elif len(block.writes) != 1 or any(_mentions(item, body.buffer) for item in body.value.walk()):
        why = "it reads what it writes"
    if why:
        raise primitive.refuse(
            f"block {block.name} cannot be put into another block",
            where=f"block {block.name}",
            why=why,
            hint="name a block that computes each element from its indices",
        )
    assert isinstance(body, Store)
    return body


def _check_private(primitive: Primitive[None], program: Program, block: Block, buffer: Buffer) -> None:
    if buffer not in program.func.allocs:
        raise primitive.refuse(
            f"{buffer.name} is a parameter of the kernel",
            where=f"block {block.name}",
            why="its content is visible outside and has to be written",
            hint="name a block that writes a local buffer",
        )
    others = [item.name for item in program.writers(buffer.name) if item.name != block.name]
    if others:
        raise primitive.refuse(
            f"block {others[0]} writes {buffer.name}, too",
            where=f"block {block.name}",
            why="one block has to make the whole buffer",
            hint="inline before partitioning",
        )
    aliases = [item.name for item in program.func.buffers if item.alias_of == buffer.name]
    if aliases or buffer.alias_of is not None:
        raise primitive.refuse(
            f"the memory of {buffer.name} has another name, too",
            where=f"block {block.name}",
            why=f"aliases: {', '.join(aliases) or buffer.alias_of}",
        )


def _readers(program: Program, buffer: Buffer, writer: str) -> tuple[Block, ...]:
    """Blocks that touch a buffer anywhere, other than the one that writes it."""
    return tuple(
        block
        for block in program.blocks.values()
        if block.name != writer
        and (
            any(region.buffer == buffer for region in block.reads)
            or any(
                _mentions(item, buffer) for part in (block.body, block.init) if part for item in part.walk()
            )
        )
    )


def _mentions(item: IRNode, buffer: Buffer) -> bool:
    return isinstance(item, Indexed | Region) and item.buffer == buffer


def _without(func: Func, block: str, buffer: Buffer) -> Func:
    return func.replace(
        body=without_block(func.body, block), allocs=tuple(item for item in func.allocs if item != buffer)
    )


def _sizes(items: Iterable[Expr]) -> list[int]:
    """Constant extents as numbers; symbolic ones count as 0, which no check takes for covered."""
    return [int(item.value) if isinstance(item, Const) else 0 for item in items]
