"""Primitives that change how buffers lie in memory and how blocks iterate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar, cast

from compiler.core.diagnostics import UsageError
from compiler.core.node import IRNode
from compiler.core.types import INDEX
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import (
    CONSTANT,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    Func,
    Indexed,
    Iter,
    Region,
    Stmt,
    Store,
    Var,
    all_of,
    const,
    seq,
)
from compiler.loops.queries import int_of, static_shape, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.loops.walk import AccessRewriter
from compiler.schedule.errors import ScheduleError
from compiler.schedule.layout_changes import LayoutChange, cannot_round_up, layouts_of, with_layouts
from compiler.schedule.nest import loop_name_of, own_loops
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, Site, ranges
from compiler.schedule.regions import Inner, region_of, relax
from compiler.schedule.rewriting import (
    declared,
    fresh_iters,
    name_of,
    nest_of,
    put_after,
    replace_statements,
    swap_buffer,
)


@dataclass(frozen=True, slots=True)
class TransformLayout(Primitive[tuple[str, ...]]):
    """Store a buffer in another order, or in tiles.

    buffer: a parameter or local buffer. index_map: `n, c -> n, c // 16, c % 16`, from old to new indices;
    it has to be invertible. pad: content of the elements that tiles add where an extent is no multiple; None
    leaves it open (constants: 0). A written buffer with a pad value gets blocks that write it.
    The map is recorded in the attribute `layout:BUFFER` of the Func. Outputs: the blocks that write padding.
    rewrite: x[i] -> x'[i // 16, i % 16] in every block; shape (n) -> (ceil(n / 16), 16)
    TVM: transform_layout.
    """

    name: ClassVar[str] = "transform_layout"

    buffer: str
    index_map: str
    pad: float | None = None

    @classmethod
    def of(cls, buffer: str, index_map: IndexMap | str, pad: float | None = None) -> TransformLayout:
        """The step for a map, which may be text."""
        return cls(buffer, _text(index_map), pad)

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        func, buffer = program.func, program.buffer(self.buffer, self.name)
        shape = self._shape(buffer)
        index_map = _checked_map(self.index_map, shape, f"{self.name} {self.buffer}")
        if buffer.strides or buffer.offset is not None or buffer.alias_of is not None:
            raise ScheduleError(
                f"transform_layout {self.buffer}: the buffer has its own strides, offset or alias",
                where=f"buffer {self.buffer}",
                why="the memory layout was fixed already",
                hint="transform the layout before lowering",
            )
        new = buffer.replace(shape=tuple(const(n) for n in index_map.shape(shape)))
        body = _Accesses(buffer, new, index_map).visit(func.body)
        changed = swap_buffer(func, new).replace(body=body)
        pad = 0.0 if buffer.scope == CONSTANT and self.pad is None else self.pad
        layout = LayoutChange(shape, index_map, pad)
        changed = with_layouts(changed, self.buffer, (*layouts_of(func, self.buffer), layout))
        if pad is None or not layout.padded or not program.writers(self.buffer):
            return changed, ()
        return _fill_padding(changed, new, layout)

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The shape of a buffer as numbers."""
        if any(int_of(item) is None for item in buffer.shape):
            raise self.refuse(
                "it has a symbolic extent",
                "a layout needs extents that are numbers",
                "compile for a fixed shape",
            )
        return static_shape(buffer)


def _text(index_map: IndexMap | str) -> str:
    return index_map if isinstance(index_map, str) else index_map.text


def _checked_map(text: str, shape: tuple[int, ...], asked: str) -> IndexMap:
    try:
        index_map = IndexMap.parse(text)
        _check_rank(index_map, shape)
        index_map.inverse(shape)
    except UsageError as error:
        raise ScheduleError(
            f"{asked}: {error.what}", where=error.where, why=error.why, hint=error.hint
        ) from error
    return index_map


def _check_rank(index_map: IndexMap, shape: tuple[int, ...]) -> None:
    if len(index_map.inputs) != len(shape):
        raise UsageError(
            f"the index map has {len(index_map.inputs)} inputs for {len(shape)} dimensions",
            where=index_map.text,
        )


class _Accesses(AccessRewriter):
    """Rewrites the accesses of one buffer, with the ranges of the variables around each."""

    def __init__(self, old: Buffer, new: Buffer, index_map: IndexMap) -> None:
        super().__init__()
        self.old, self.new, self.map = old, new, index_map

    def place(self, item: Indexed | Region) -> IRNode:
        if item.buffer.name != self.old.name:
            return item
        if isinstance(item, Region):
            return self._box(item)
        indices = tuple(self.known.simplify(index) for index in self.map.apply(item.indices))
        return item.replace(buffer=self.new, indices=indices)

    def _box(self, region: Region) -> Region:
        """The box around the new places of a box."""
        known = self.known
        inside = [Var(f"@{number}") for number in range(len(region.begin))]
        sizes = [int_of(item) or 1 for item in region.extent]
        for var, size in zip(inside, sizes, strict=True):
            known = known.bind(var.name, 0, size - 1)
        moving = Inner({var.name: size for var, size in zip(inside, sizes, strict=True) if size > 1})
        at = tuple(
            begin + var if size > 1 else begin
            for begin, var, size in zip(region.begin, inside, sizes, strict=True)
        )
        spans = [relax(known.linear(index), moving, known) for index in self.map.apply(at)]
        return region_of(self.new, spans, known)


def _fill_padding(func: Func, buffer: Buffer, layout: LayoutChange) -> tuple[Func, tuple[str, ...]]:
    """Add blocks that write the pad value to the new elements of a written buffer."""
    program = Program(func)
    fresh = program.namer()
    inverse = layout.index_map.inverse(layout.shape)
    known = Simplifier(inverse.bounds(static_shape(buffer)))
    made: list[str] = []
    nests: list[Stmt] = []
    for axis, size in enumerate(layout.shape):
        if known.prove(inverse.outputs[axis].lt(size)):
            continue
        name = fresh(f"{buffer.name}_pad{axis}")
        made.append(name)
        nests.append(_fill(fresh, name, buffer, inverse, axis, layout))
    writers = {site.name for site in program.writers(buffer.name)}
    return func.replace(body=put_after(func.body, writers, seq(*nests))), tuple(made)


def _fill(
    fresh: Fresh,
    name: str,
    buffer: Buffer,
    inverse: IndexMap,
    axis: int,
    layout: LayoutChange,
) -> Stmt:
    iters = fresh_iters(fresh, name, buffer.shape)
    at = tuple(item.var for item in iters)
    outside = Simplifier(ranges(iters)).simplify(inverse.apply(at)[axis].ge(layout.shape[axis]))
    in_loops = substitute(outside, {item.var.name: item.binding for item in iters})
    body = Store(buffer, at, const(layout.pad or 0, buffer.dtype))
    return nest_of(declared(Block(name, iters, (), (), body, None, all_of(in_loops))))


@dataclass(frozen=True, slots=True)
class TransformBlockLayout(Primitive[tuple[str, ...]]):
    """Iterate a block over other variables.

    block: a block alone in its loops, each of which gives one iteration variable its value. index_map: from
    the old to the new iteration variables, `n, k -> n, k // 16, k % 16`; no output mixes spatial and reduce
    inputs. Where tiles stick out, the block runs over them when it touches only padding there, else it gets a
    predicate.
    Outputs: the new loops, outermost first, one for each output of the map.
    rewrite: for k in 32: B(k) -> for k_0 in 2: for k_1 in 16: B(k_0 * 16 + k_1)
    TVM: transform_block_layout.
    """

    name: ClassVar[str] = "transform_block_layout"

    block: str
    index_map: str

    @classmethod
    def of(cls, block: str, index_map: IndexMap | str) -> TransformBlockLayout:
        """The step for a map, which may be text."""
        return cls(block, _text(index_map))

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        site = program.site(self.block, self.name)
        own = own_loops(site, self.refuse)
        shape = tuple(self._extent(item) for item in site.block.iters)
        index_map = _checked_map(self.index_map, shape, f"{self.name} {self.block}")
        kinds = self._kinds(index_map, site.block)
        extents = index_map.shape(shape)
        names = _new_names(index_map, site.block, program.namer())
        loops = tuple(Var(name) for name, _ in names)
        iters = tuple(
            Iter(Var(var), const(extent), kind, loop)
            for (_, var), extent, kind, loop in zip(names, extents, kinds, loops, strict=True)
        )
        block = self._rewritten(program.func, site, index_map, shape, iters)
        place = name_of(own[0] if own else site.block)
        changed = replace_statements(program.func, {place: nest_of(block)})
        return changed, tuple(loop.name for loop in loops)

    def _extent(self, item: Iter) -> int:
        extent = int_of(item.extent)
        if extent is None:
            raise self.refuse(
                f"the extent of {item.var.name} is symbolic",
                "an index map needs extents that are numbers",
                "compile for a fixed shape",
            )
        return extent

    def _kinds(self, index_map: IndexMap, block: Block) -> list[str]:
        of = {name: item.kind for name, item in zip(index_map.inputs, block.iters, strict=True)}
        kinds = []
        for output in index_map.outputs:
            used = {of[name] for name in variables(output)}
            if len(used) > 1:
                raise self.refuse(
                    "an output of the map mixes spatial and reduction variables",
                    index_map.text,
                    "keep them in different outputs",
                )
            kinds.append(next(iter(used), "spatial"))
        if block.init is not None and "reduce" not in kinds:
            raise self.refuse(
                "the map drops the reduction", index_map.text, "keep its variables, also those of extent 1"
            )
        return kinds

    def _rewritten(
        self, func: Func, site: Site, index_map: IndexMap, shape: tuple[int, ...], iters: tuple[Iter, ...]
    ) -> Block:
        back = index_map.inverse(shape).apply([item.var for item in iters])
        known = Simplifier(ranges(iters))
        values = {old.var.name: new for old, new in zip(site.block.iters, back, strict=True)}
        to_loops = {item.var.name: item.binding for item in iters}
        checks: list[Expr] = []
        for old, value, size in zip(site.block.iters, back, shape, strict=True):
            high = known.interval(value)[1]
            if high is None or (high >= size and cannot_round_up(func, site.block, old.var.name, high + 1)):
                checks.append(known.simplify(Binary("lt", value, const(size))))
        predicate = all_of(*(item for item in checks if not isinstance(item, Const)))
        return site.block.replace(
            iters=iters,
            body=_tidy(site.block.body, values, known),
            init=None if site.block.init is None else _tidy(site.block.init, values, known),
            reads=tuple(_tidy(item, values, known) for item in site.block.reads),
            writes=tuple(_tidy(item, values, known) for item in site.block.writes),
            predicate=None if predicate is None else substitute(predicate, to_loops),
        )


T = TypeVar("T", bound=IRNode)


def _tidy(item: T, values: Mapping[str, Expr], known: Simplifier) -> T:
    """With iteration variables replaced, and the indices that change simplified."""
    if isinstance(item, Expr) and (item.dtype == INDEX or item.dtype.is_bool):
        changes = not variables(item).isdisjoint(values)
        return cast(T, known.simplify(substitute(item, values)) if changes else item)
    return item.map_children(lambda child: _tidy(child, values, known))


def _new_names(index_map: IndexMap, block: Block, fresh: Fresh) -> list[tuple[str, str]]:
    """(loop, iteration variable) names for the outputs: the old ones where an output is just an input."""
    of = dict(zip(index_map.inputs, block.iters, strict=True))
    parts = {name: sum(name in variables(item) for item in index_map.outputs) for name in index_map.inputs}
    seen: dict[str, int] = {}
    names = []
    for output in index_map.outputs:
        if isinstance(output, Var) and parts[output.name] == 1:
            item = of[output.name]
            assert isinstance(item.binding, Expr)
            loop = item.binding.name if isinstance(item.binding, Var) else fresh(item.var.name[1:])
            names.append((loop, item.var.name))
            continue
        used = [name for name in index_map.inputs if name in variables(output)]
        base = "_".join(loop_name_of(of[name]) for name in used) or f"{block.name}_u"
        if len(used) == 1 and parts[used[0]] > 1:
            seen[base] = seen.get(base, -1) + 1
            base = f"{base}_{seen[base]}"
        loop = fresh(base)
        names.append((loop, fresh(f"v{loop}")))
    return names
