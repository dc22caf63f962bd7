"""Primitives for matrix units: blockize, tensorize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from compiler.core.diagnostics import did_you_mean
from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.types import INDEX
from compiler.loops.ir import (
    Alloc,
    Block,
    Expr,
    For,
    ForKind,
    Func,
    Indexed,
    Iter,
    Region,
    Stmt,
    Store,
    Var,
    const,
)
from compiler.loops.linear import Linear, conjuncts
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.match import Places, match
from compiler.schedule.nest import conjunction
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, inner_loops, outer_blocks, ranges
from compiler.schedule.regions import Inner, box, region_of
from compiler.schedule.rewriting import duplicate, nest, replace_statements, use_buffer, with_buffer
from compiler.schedule.tensor_intrinsics import TensorIntrinsic, find_tensor_intrinsic, flat_nest, names


@dataclass(frozen=True, slots=True)
class Blockize(Primitive[str]):
    """Make one block of all that runs in one iteration of the loops around a loop.

    loop: a loop around one block, nothing else under it. The new block iterates over what the outer loops
    contribute to each iteration variable; the old block runs inside it.
    Outputs: the new block.
    rewrite: for i: for j: B(4 i + j) -> for i: block B_o(vi = i): for j: B(4 vi + j)
    TVM: blockize.
    """

    name: ClassVar[str] = "blockize"

    loop: str

    def apply(self, program: Program) -> tuple[Func, str]:
        loop = program.loop(self.loop, self.name)
        block = self._only_block(loop)
        site, fresh = program.sites[block.name], program.namer()
        inner = [item for item in site.loops if item in inner_loops(loop)]
        known = site.known
        split = _Split(fresh, block, {item.var.name for item in inner}, known, self.refuse)
        before, inside = split.predicate()
        iters = tuple(item.replace(binding=split.values[item.var.name]) for item in block.iters)
        body = nest(inner, block.replace(iters=iters, predicate=inside))
        moving = Inner({item.var.name: int_of(item.extent) or 1 for item in inner})
        outer = Block(
            fresh(f"{block.name}_o"),
            tuple(split.outer),
            split.regions(block.reads, moving),
            split.regions(block.writes, moving),
            body,
            None,
            before,
        )
        return replace_statements(program.func, {self.loop: outer}), outer.name

    def _only_block(self, loop: For) -> Block:
        blocks = outer_blocks(loop)
        if len(blocks) != 1:
            raise self.refuse(
                f"{len(blocks)} blocks are under it",
                ", ".join(item.name for item in blocks),
                "name a loop around one block",
            )
        for item in inner_loops(loop):
            if item.kind not in {ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED}:
                raise self.refuse(
                    f"loop {item.var.name} is {item.kind.value}",
                    "it cannot be inside a block",
                    "name a loop inside of it",
                )
        return blocks[0]


class _Split:
    """Each iteration variable as an outer part, which the new block gets, and an inner part."""

    def __init__(
        self,
        fresh: Fresh,
        block: Block,
        inner: set[str],
        known: Simplifier,
        refuse: Callable[[str, str, str], ScheduleError],
    ) -> None:
        self.block, self.inner, self.known, self.refuse = block, inner, known, refuse
        self.outer: list[Iter] = []
        self.values: dict[str, Expr] = {}
        for item in block.iters:
            self._one(fresh, item)

    def _one(self, fresh: Fresh, item: Iter) -> None:
        value = self.known.linear(item.binding)
        inside: dict[Expr, int] = {}
        for atom, factor in value.terms.items():
            used = variables(atom)
            if used <= self.inner:
                inside[atom] = factor
            elif not used.isdisjoint(self.inner):
                raise self.refuse(
                    f"{item.var.name} mixes loops inside and outside",
                    "it is not an outer part plus an inner part",
                    "split so that the inner loops make whole tiles",
                )
        low, high = self.known.range(Linear(inside, 0))
        if low != 0:
            raise self.refuse(
                f"the inner part of {item.var.name} does not start at 0",
                "its tiles overlap",
                "split otherwise",
            )
        part = self.known.emit(Linear(inside, 0))
        rest = value.plus(Linear(inside, 0), -1)
        if not rest.terms and not rest.constant:
            self.values[item.var.name] = part
            return
        size = int(high) + 1
        even = all(number % size == 0 for number in (*rest.terms.values(), rest.constant))
        extent = int_of(item.extent)
        if extent is None or not even:
            size = 1
        var = Var(fresh(f"{item.var.name}_o"))
        binding = self.known.divide(rest, size)
        count = item.extent if extent is None else const(-(-extent // size))
        self.outer.append(Iter(var, count, item.kind, self.known.emit(binding)))
        self.known = self.known.bind(var.name, 0, (int_of(count) or 1) - 1)
        self.values[item.var.name] = self.known.simplify(var * size + part)

    def predicate(self) -> tuple[Expr | None, Expr | None]:
        """The conditions for the new block and for the old one."""
        before, inside = [], []
        for cond in conjuncts(self.block.predicate):
            used = variables(cond)
            if used.isdisjoint(self.inner):
                before.append(cond)
            elif used <= self.inner:
                inside.append(cond)
            else:
                raise self.refuse(
                    "its predicate mixes loops inside and outside",
                    "the block would only be half full in some iterations",
                    "use pad_einsum, or split without a tail",
                )
        return conjunction(before), conjunction(inside)

    def regions(self, declared: Sequence[Region], moving: Inner) -> tuple[Region, ...]:
        found: dict[Region, None] = {}
        for region in declared:
            spans = box(region, self.values, moving, self.known)
            found[region_of(region.buffer, spans, self.known)] = None
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Tensorize(Primitive[str]):
    """Let a tensor intrinsic do what a block does.

    target: a block made by blockize, or the loop to blockize. intrinsic: the name of a registered record. The
    loops have to have the extents of its description, in its order, and the block has to compute the same;
    dimensions that the intrinsic does not know have to stand still.
    Outputs: the block that now holds the implementation.
    rewrite: block B_o: (for i, j, k: c[i, j] += a[i, k] * b[k, j]) -> block B_o: mma(c, a, b)
    Opaque fragments get the lane map that the intrinsic names.
    TVM: tensorize.
    """

    name: ClassVar[str] = "tensorize"

    target: str
    intrinsic: str

    def apply(self, program: Program) -> tuple[Func, str]:
        if self.target not in program.loops and self.target not in program.blocks:
            known = [*program.loops, *program.blocks]
            raise ScheduleError(
                f"tensorize: no loop or block {self.target!r}",
                why="the program has none of that name: splitting, fusing and moving give loops new names",
                hint=did_you_mean(self.target, known) or f"there are {', '.join(known)}",
            )
        record = self._record()
        if self.target in program.loops:
            func, made = Blockize(self.target).apply(program)
            program = Program(func)
            block = program.block(made, self.name)
        else:
            block = program.block(self.target, self.name)
        places = self._match(block, record)
        body = _implementation(program.namer(), record, places, self.refuse)
        new = block.replace(body=body, annotations=(*block.annotations, ("tensorized", record.name)))
        func = replace_statements(program.func, {block.name: new})
        return self._laid_out(func, record, places), block.name

    def _laid_out(self, func: Func, record: TensorIntrinsic, places: Mapping[str, Places]) -> Func:
        """Buffers get the lane maps of the parameters whose part they take."""
        for param in record.description.params:
            buffer = places[param.name].buffer
            if param.lane_map is None or buffer.lane_map == param.lane_map:
                continue
            if buffer.lane_map is not None:
                raise self.refuse(
                    f"{buffer.name} is laid out as {buffer.lane_map}, the intrinsic wants {param.lane_map}",
                    f"it takes the part of {param.name}",
                    "use a fragment of its own",
                )
            func = with_buffer(func, buffer.replace(lane_map=param.lane_map))
        return func

    def _record(self) -> TensorIntrinsic:
        record = find_tensor_intrinsic(self.intrinsic)
        if record is None:
            known = list(names())
            raise self.refuse(
                f"no such intrinsic: {self.intrinsic}",
                "the target has not registered it",
                did_you_mean(self.intrinsic, known) or f"known: {', '.join(known) or 'none'}",
            )
        return record

    def _match(self, block: Block, record: TensorIntrinsic) -> dict[str, Places]:
        nest = flat_nest(block.body)
        wanted = flat_nest(record.description.body)
        assert wanted is not None
        if nest is None:
            raise self.refuse(
                "the block is not loops around one block with one store",
                "nothing else can be compared with the description",
                "blockize the innermost tile first",
            )
        loops, inner = nest
        if inner.init is not None or inner.predicate is not None:
            raise self.refuse(
                "its inner block has a start or a predicate",
                "the intrinsic does neither",
                "use decompose_reduction first; pad_einsum for tails",
            )
        theirs = [item for item in wanted[0] if int_of(item.extent) != 1]
        ours = [item for item in loops if int_of(item.extent) != 1]
        if [item.extent for item in theirs] != [item.extent for item in ours]:
            raise self.refuse(
                f"loops of {_extents(ours)}, the intrinsic has {_extents(theirs)}",
                "the loops have to have the extents of the description",
                "split and reorder them so",
            )
        rename: dict[str, Expr] = {a.var.name: b.var for a, b in zip(theirs, ours, strict=True)} | {
            item.var.name: const(0) for item in wanted[0] if int_of(item.extent) == 1
        }
        units: dict[str, Expr] = {item.var.name: const(0) for item in loops if int_of(item.extent) == 1}
        known = Simplifier({**ranges(loops), **ranges(block.iters)})
        moving = {item.var.name for item in ours}
        found = match(_scalar(wanted[1], rename, known), _scalar(inner, units, known), moving, known)
        if found is None:
            raise self.refuse(
                "it computes something else",
                f"{inner.name} does not have the form of {record.description.name}",
                "inline what is in between, and check the order of the loops",
            )
        self._check_buffers(record, found)
        return found

    def _check_buffers(self, record: TensorIntrinsic, found: Mapping[str, Places]) -> None:
        memories = {"global", "constant", "scratch", "shared"}
        for param in record.description.params:
            scope = found[param.name].buffer.scope
            if scope != param.scope and not (param.scope == "global" and scope in memories):
                raise self.refuse(
                    f"{found[param.name].buffer.name} is in {scope}, the intrinsic wants {param.scope}",
                    f"it takes the part of {param.name}",
                    "use set_scope, cache_read or cache_write",
                )


def _extents(loops: Sequence[For]) -> str:
    return " x ".join(str(int_of(item.extent)) for item in loops) or "one iteration"


def _scalar(block: Block, rename: Mapping[str, Expr], known: Simplifier) -> Store:
    """The store of a block in terms of loop variables."""
    values = {item.var.name: substitute(item.binding, rename) for item in block.iters}
    return cast(Store, _simple(substitute(block.body, values), known))


def _simple(item: IRNode, known: Simplifier) -> IRNode:
    if isinstance(item, Expr) and item.dtype == INDEX:
        return known.simplify(item)
    return item.map_children(lambda child: _simple(child, known))


def _implementation(
    fresh: Fresh,
    record: TensorIntrinsic,
    places: Mapping[str, Places],
    refuse: Callable[[str, str, str], ScheduleError],
) -> Stmt:
    """The implementation with the parameters replaced by the places that were found."""
    body = duplicate(record.implementation.body, fresh)
    allocs = []
    for item in record.implementation.allocs:
        own = item.replace(name=fresh(item.name))
        body = use_buffer(body, item.name, own)
        allocs.append(own)
    by_name: dict[str, Places] = {item.name: places[item.name] for item in record.implementation.params}

    def placed(item: IRNode) -> IRNode | None:
        if not isinstance(item, Indexed | Region) or item.buffer.name not in by_name:
            return None
        place = by_name[item.buffer.name]
        if isinstance(item, Region):
            return Region(place.buffer, place.at(item.begin), place.extended(item.extent, const(1)))
        if any(index.dtype.lanes > 1 for index in item.indices) and not place.keeps_last:
            raise refuse(
                f"{place.buffer.name} is not dense along the vectors of the intrinsic",
                f"the last dimension of {item.buffer.name} is not the last one of {place.buffer.name}",
                "use transform_layout",
            )
        return item.replace(buffer=place.buffer, indices=place.at(item.indices))

    result = rewrite_nodes(body, placed)
    for alloc in reversed(allocs):
        result = Alloc(alloc, result)
    return result
