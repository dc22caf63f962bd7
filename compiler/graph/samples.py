"""A free batch dimension: proof that a model does the same with every sample, each by itself.

The model is imported for one sample and for several. Its operators as loops show what each result depends
on: where the batch is the extent of one loop alone, whose variable picks the sample in everything that is
read and written and stands nowhere else, an iteration of that loop is the work on one sample. It has to be
the very work that the operator does in the model of one sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest

import numpy as np

from compiler.core.node import IRNode, rewrite_nodes
from compiler.graph.dtypes import Array
from compiler.graph.ir import Graph, Node, NodeInfo, TensorType, Value
from compiler.graph.op import Kind, Op
from compiler.loops.build import Builder
from compiler.loops.ir import (
    CONSTANT,
    Block,
    Buffer,
    Expr,
    For,
    Func,
    Indexed,
    Iter,
    Stmt,
    Var,
    const,
    statements,
)
from compiler.loops.queries import extent_of, int_of, variables
from compiler.loops.simplify import simplify_stmt, substitute


class NotSeparateError(Exception):
    """Why samples cannot be told apart; `str` of it is for the user."""


def check_samples(one: Graph, several: Graph, count: int) -> None:
    """Raise NotSeparateError unless `several` does with each of `count` samples what `one` does with one.

    Both are the same model in canonical form.
    """
    _check_operators(one, several, count)
    for value, array in one.constants.items():
        if not _same_array(array, several.constants[value]):
            raise NotSeparateError(f"a constant ({value.name or value}) depends on the batch")
    for a, b in zip(one.inputs, several.inputs, strict=True):
        _check_type(a, b, count, "input")
    for mine, theirs in zip(one.nodes, several.nodes, strict=True):
        _check_node(one, mine, theirs, count)
    for a, b in zip(one.outputs, several.outputs, strict=True):
        if a in one.constants:
            raise NotSeparateError(f"output {a.name!r} is a constant")
        _check_type(a, b, count, "output")
        if a.type.shape[0] != 1:
            raise NotSeparateError(f"output {a.name!r} has {a.type.shape[0]} rows for each sample")


def _check_operators(one: Graph, several: Graph, count: int) -> None:
    """The same, on the same values."""
    for mine, theirs in zip_longest(one.nodes, several.nodes):
        if mine is None or theirs is None or mine.op is not theirs.op or mine.inputs != theirs.inputs:
            extra = theirs or mine
            raise NotSeparateError(f"for {count} it has another operator than for one: {extra.op.name}")
    if one.constants.keys() != several.constants.keys():
        raise NotSeparateError(f"for {count} it has other constants than for one")


def _same_array(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return (
        bool(np.array_equal(a, b)) or a.tobytes() == b.tobytes()
    )  # the same number where none is equal to itself


def _check_type(one: Value, several: Value, count: int, what: str) -> None:
    """Samples lie one behind the other in memory: whole bytes, along the first dimension."""
    if one.type.dtype.bits % 8:
        raise NotSeparateError(f"{what} {one.name!r} has elements that are no bytes")
    if one != several or not _holds(one.type, several.type, count):
        raise NotSeparateError(f"{what} {one.name!r} is {several.type} for {count} and {one.type} for one")


def _holds(one: TensorType, several: TensorType, count: int) -> bool:
    """Whether a tensor's first dimension is that of `count` samples, and the others are a sample's."""
    if one.dtype != several.dtype or not 0 < one.rank == several.rank:
        return False
    return (one.shape[0] * count, *one.shape[1:]) == several.shape


def _check_node(one: Graph, mine: Node, theirs: Node, count: int) -> None:
    name = mine.origin[0] if mine.origin else str(mine.output)
    for a, b in zip(mine.outputs, theirs.outputs, strict=True):
        _check_type(a, b, count, f"the result of {name!r} ({mine.op.name}),")
    if mine.op.kind is Kind.VIEW and mine.output.type.size == mine.inputs[0].type.size:
        return  # samples are runs of the same memory, whatever shape they have
    if mine.info == theirs.info or len(mine.outputs) != 1 or not mine.op.forms:
        raise NotSeparateError(f"{name!r} ({mine.op.name}) has a form that is not looked into")
    given = tuple(value in one.constants for value in mine.inputs)
    if not _same_work(mine.op, mine.info, theirs.info, given, count):
        raise NotSeparateError(f"{name!r} ({mine.op.name}) mixes the samples of a batch")


@lru_cache(maxsize=1 << 10)
def _same_work(op: Op, one: NodeInfo, several: NodeInfo, given: tuple[bool, ...], count: int) -> bool:
    """Whether an operator does with each sample what it does with one. given: which operands are constants.

    All forms compute the same, so that one of them tells.
    """
    for form in op.forms_for(one):
        sample = sample_of(_func(op, form, several, given), count)
        if sample is not None and _comparable(sample) == _comparable(_func(op, form, one, given)):
            return True
    return False


def _func(op: Op, form: str, info: NodeInfo, given: tuple[bool, ...]) -> Func:
    """An operator as loops."""
    b = Builder("node")
    operands = [
        (b.constant if constant else b.input)(f"x{number}", kind.shape, kind.dtype)
        for number, (kind, constant) in enumerate(zip(info.in_types, given, strict=True))
    ]
    return b.finish([op.forms[form].build(b, operands, info)])


# ---------------------------------------------------------------- one sample of a loop function


def sample_of(func: Func, count: int) -> Func | None:
    """What `func` does with one of `count` samples, all of whose tensors but constants hold as many.

    None where it does not do the same with each, apart from the others.
    """
    samples = {item: part for item in func.buffers if (part := _sample(item, count)) is not None}
    if any(samples.get(item, item) is item for item in func.buffers if item.scope != CONSTANT):
        return None
    batched = {item.name for item in samples}
    loops: dict[str, int] = {}
    for block in func.blocks():
        picks = _picks(block, batched)
        if picks is None or not isinstance(picks.binding, Var) or int_of(picks.extent) is None:
            return None
        loops[picks.var.name] = loops[picks.binding.name] = (int_of(picks.extent) or 0) // count

    def step(item: IRNode) -> IRNode | None:
        if isinstance(item, For | Iter) and item.var.name in loops:
            return item.replace(extent=const(loops[item.var.name]))
        return samples.get(item) if isinstance(item, Buffer) else None

    return rewrite_nodes(func, step)


def _sample(buffer: Buffer, count: int) -> Buffer | None:
    """The buffer of one sample; None for constants, and where the first dimension is not that of all."""
    first = int_of(buffer.shape[0]) if buffer.shape else None
    if buffer.scope == CONSTANT or first is None or first % count:
        return None
    return buffer.replace(shape=(const(first // count), *buffer.shape[1:]))


def _picks(block: Block, batched: set[str]) -> Iter | None:
    """The iteration variable that is the first index of all batched buffers and does nothing else."""
    accesses = [item for item in _accesses(block) if item.buffer.name in batched]
    first = {item.indices[0] for item in accesses}
    found = [item for item in block.iters if {item.var} == first and item.kind == "spatial"]
    if not found or block.predicate is not None:
        return None
    pick = found[0]
    if any(item.buffer.shape[0] != pick.extent for item in accesses):
        return None

    def without(item: IRNode) -> IRNode | None:
        if isinstance(item, Indexed) and item.buffer.name in batched:
            return item.replace(indices=(const(0), *item.indices[1:]))
        return None

    left = [rewrite_nodes(body, without) for body in (block.body, block.init) if body is not None]
    return None if any(pick.var.name in variables(item) for item in left) else pick


def _accesses(block: Block) -> Iterator[Indexed]:
    for body in (block.body, block.init):
        yield from (item for item in body.walk() if isinstance(item, Indexed)) if body is not None else ()


def _comparable(func: Func) -> tuple[tuple[Buffer, ...], tuple[Stmt | tuple[Expr, ...] | None, ...]]:
    """What a function of plain blocks does, whichever way it says that there is one of something."""
    parts: list[Stmt | tuple[Expr, ...] | None] = []
    for block in (item for item in statements(func.body) if isinstance(item, Block)):
        units: dict[str, Expr] = {item.var.name: const(0) for item in block.iters if int_of(item.extent) == 1}
        ranges = {item.var.name: (0, extent_of(item.extent) - 1) for item in block.iters}
        for body in (block.body, block.init):
            plain = None if body is None else _first_of_one(substitute(body, units))
            parts.append(None if plain is None else simplify_stmt(plain, ranges))
        parts.append(tuple(item.extent for item in block.iters if item.var.name not in units))
    return func.buffers, tuple(parts)


def _first_of_one(body: Stmt) -> Stmt:
    """A dimension of one element has one index."""

    def step(item: IRNode) -> IRNode | None:
        if not isinstance(item, Indexed):
            return None
        sizes = zip(item.indices, item.buffer.shape, strict=True)
        return item.replace(indices=tuple(const(0) if int_of(size) == 1 else index for index, size in sizes))

    return rewrite_nodes(body, step)
