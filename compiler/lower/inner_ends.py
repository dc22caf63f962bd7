"""Where loops inside a kernel end: a sum along an axis of which a run has a part ends with that part.

The attribute OPERANDS says how much of each axis of its operands a run has. From there it follows through the
blocks of a kernel which iterations are about places beyond the end. A sum over an axis has, at the run's own
size, no such places: what it adds there is nothing, as experiments have shown for each operator. Nor does
anybody need what is computed for these places alone. Tiles are computed whole. What a selection puts behind
the end may be relied upon there: its readers may not go beyond the tiles that are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.loops.exprs import Indexed
from compiler.loops.ir import (
    Block,
    Expr,
    For,
    ForKind,
    Func,
    Load,
    Select,
    Stmt,
    Store,
    binary,
    const,
    statements,
)
from compiler.loops.queries import extent_of, int_of, variables
from compiler.loops.simplify import Simplifier, simplify, substitute

Ends = Mapping[tuple[str, int], Expr]
"""How many places of an axis of a parameter a run has."""
_FEWEST = 8
"""Iterations that are worth a condition."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where a buffer has the places of an axis that ends: along one dimension, or in tiles along two.

    filled: what is beyond the end may be read, and is to be what the program says.
    """

    dims: tuple[int, ...]
    tile: int
    end: Expr
    filled: bool = False

    def place(self, indices: Sequence[Expr]) -> Expr:
        """The place that an access is about."""
        first = indices[self.dims[0]]
        if len(self.dims) == 1:
            return simplify(first)
        return simplify(binary("add", binary("mul", first, const(self.tile)), indices[self.dims[1]]))


@dataclass(frozen=True, slots=True)
class _Place:
    """A place that all iterations of a block are about, by its own variables and by the loops around."""

    own: Expr
    outer: Expr
    end: Expr


@dataclass(frozen=True, slots=True)
class InnerEnd:
    """A loop ends where the first place that an iteration is about is not before the end."""

    first: Expr
    end: Expr


@dataclass(slots=True)
class _Analysis:
    func: Func
    axes: dict[str, list[_Axis]]
    around: dict[str, tuple[For, ...]] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    places: dict[str, list[_Place]] = field(default_factory=dict)
    barred: set[tuple[str, Expr]] = field(default_factory=set)

    def run(self) -> dict[str, InnerEnd]:
        self._enter(self.func.body, ())
        while sum(self._follow(block) for block in self.blocks.values()):
            pass
        ends = self._loops()
        while self._bar(ends):
            ends = self._loops()
        return ends

    def _enter(self, item: Stmt, around: tuple[For, ...]) -> None:
        if isinstance(item, Block):
            self.blocks[item.name], self.around[item.name] = item, around
            self.places[item.name] = []
            return
        for child in item.bodies():
            self._enter(child, (*around, item) if isinstance(item, For) else around)

    # ------------------------------------------------------------ what places there are

    def _follow(self, block: Block) -> bool:
        """Learn the places of a block, and from them those of what it makes; whether anything was new."""
        before = len(self.places[block.name]), sum(map(len, self.axes.values()))
        for item in _accesses(block):
            for axis in self.axes.get(item.buffer.name, ()):
                self._add_place(block, axis.place(item.indices), axis.end)
        for store in (item for item in _accesses(block) if isinstance(item, Store)):
            if store.buffer not in self.func.params:
                self._add_axes(block, store)
        return before != (len(self.places[block.name]), sum(map(len, self.axes.values())))

    def _add_place(self, block: Block, own: Expr, end: Expr) -> None:
        iters = {item.var.name: item for item in block.iters}
        known = any(item.own == own and item.end == end for item in self.places[block.name])
        if known or not variables(own) or not variables(own) <= iters.keys():
            return
        if any(isinstance(item, Load) for item in own.walk()):
            return
        outer = simplify(substitute(own, {name: item.binding for name, item in iters.items()}))
        self.places[block.name].append(_Place(own, outer, end))

    def _add_axes(self, block: Block, store: Store) -> None:
        """Along which dimensions of what is written the places of a block lie that it reads."""
        for place in self.places[block.name]:
            read = [
                item for item in _accesses(block) if isinstance(item, Load) and item.buffer != store.buffer
            ]
            if not any(self._at(item, place.own) for item in read):
                continue
            dims = _dims(store, place.own)
            known = self.axes.setdefault(store.buffer.name, [])
            if dims is not None and all(axis.dims != dims[0] for axis in known):
                filled = not self._is_part(store.value, place.own, store)
                known.append(_Axis(*dims, place.end, filled))

    def _at(self, item: Indexed, own: Expr) -> list[_Axis]:
        """The axes along which an access is about a place."""
        return [axis for axis in self.axes.get(item.buffer.name, ()) if axis.place(item.indices) == own]

    def _is_part(self, expr: Expr, own: Expr, store: Store) -> bool:
        """Whether a value has no meaning where what is read at a place has none."""
        if isinstance(expr, Load):
            return expr.buffer != store.buffer and any(not axis.filled for axis in self._at(expr, own))
        if isinstance(expr, Select) and variables(expr.cond) & variables(own):
            return all(self._is_part(item, own, store) for item in (expr.a, expr.b))
        return any(self._is_part(item, own, store) for item in expr.children() if isinstance(item, Expr))

    # ------------------------------------------------------------ which loops end

    def _loops(self) -> dict[str, InnerEnd]:
        found = {}
        for item in statements(self.func.body):
            if isinstance(item, For) and item.kind in (ForKind.SERIAL, ForKind.PARALLEL):
                end = self._end(item) if (int_of(item.extent) or 0) >= _FEWEST else None
                if end is not None:
                    found[item.var.name] = end
        return found

    def _end(self, loop: For) -> InnerEnd | None:
        """The end that all blocks in a loop have in common; where sums begin in it, at the first place."""
        inner = {item.var.name: const(0) for item in statements(loop.body) if isinstance(item, For)}
        blocks = [item for item in statements(loop.body) if isinstance(item, Block)]
        common: set[InnerEnd] | None = None
        for block in blocks:
            ends = {
                InnerEnd(simplify(substitute(place.outer, inner)), place.end)
                for place in self._usable(block)
                if loop.var.name in variables(place.outer)
            }
            common = ends if common is None else common & ends
        if any(block.init is not None for block in blocks):
            start = {loop.var.name: const(0)}
            common = {end for end in common or () if simplify(substitute(end.first, start)) == const(0)}
        return min(common, key=repr) if common else None

    def _usable(self, block: Block) -> Iterator[_Place]:
        """Places that are summed over, or of what is written for other blocks in the kernel alone."""
        kinds = {item.var.name: item.kind for item in block.iters}
        stores = [item for item in _accesses(block) if isinstance(item, Store)]
        for place in self.places[block.name]:
            if (block.name, place.own) in self.barred:
                continue
            summed = all(kinds[name] == "reduce" for name in variables(place.own))
            if summed or all(
                item.buffer not in self.func.params and self._at(item, place.own) for item in stores
            ):
                yield place

    # ------------------------------------------------------------ what is relied upon

    def _bar(self, ends: Mapping[str, InnerEnd]) -> bool:
        """Find what is read beyond the tiles that are computed; whether there was any."""
        before = len(self.barred)
        for block in self.blocks.values():
            for store in (item for item in _accesses(block) if isinstance(item, Store)):
                for axis in (
                    self.axes.get(store.buffer.name, ()) if store.buffer not in self.func.params else ()
                ):
                    own = axis.place(store.indices)
                    span = self._span(block, own, ends)
                    if axis.filled and span and not self._all_within(store, axis, span, ends):
                        self.barred.add((block.name, own))
        return len(self.barred) > before

    def _all_within(self, store: Store, axis: _Axis, span: int, ends: Mapping[str, InnerEnd]) -> bool:
        """Whether all readers of what is written in tiles of `span` places read such, or parts of them."""
        for block in self.blocks.values():
            for item in (one for one in _accesses(block) if isinstance(one, Load)):
                if item.buffer != store.buffer:
                    continue
                read = self._span(block, axis.place(item.indices), ends)
                if not read or span % read:
                    return False
        return True

    def _span(self, block: Block, own: Expr, ends: Mapping[str, InnerEnd]) -> int:
        """How many places an iteration of the innermost loop that ends is about; 0 where none ends."""
        place = next((item for item in self.places[block.name] if item.own == own), None)
        if place is None or (block.name, own) in self.barred:
            return 0
        loops = self.around[block.name]
        for at in reversed(range(len(loops))):
            end = ends.get(loops[at].var.name)
            if end is None or end.end != place.end or loops[at].var.name not in variables(place.outer):
                continue
            inner = {loop.var.name: (0, extent_of(loop.extent) - 1) for loop in loops[at + 1 :]}
            low, high = Simplifier(inner).interval(binary("sub", place.outer, end.first))
            return high - low + 1 if low is not None and high is not None else 0
        return 0


def inner_ends(func: Func, operands: Ends) -> dict[str, InnerEnd]:
    """By the variables of loops, where they end."""
    axes: dict[str, list[_Axis]] = {}
    for (name, dim), end in operands.items():
        axes.setdefault(name, []).append(_Axis((dim,), 1, end))
    return _Analysis(func, axes).run()


def _accesses(block: Block) -> Iterator[Load | Store]:
    for part in (block.body, block.init):
        if part is not None:
            yield from (item for item in part.walk() if isinstance(item, Load | Store))


def _dims(store: Store, own: Expr) -> tuple[tuple[int, ...], int] | None:
    """The dimension of a buffer that a place lies along, or the two of tiles and within them."""
    for at, index in enumerate(store.indices):
        if simplify(index) == own:
            return (at,), 1
    for at, tile in enumerate(map(int_of, store.buffer.shape)):
        for before in range(at):
            made = _Axis((before, at), tile or 1, const(0)).place(store.indices)
            if made == own and variables(own) & variables(store.indices[before]):
                return (before, at), tile or 1
    return None
