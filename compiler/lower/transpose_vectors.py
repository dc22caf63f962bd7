"""Transposes in registers: strided vectors that lie side by side are moved as rows of whole vectors.

    for u in 0..8 unrolled: y[ramp(8 * u, 1, 8)] = x[ramp(u, 100, 8)]
    for u in 0..8 unrolled: y[ramp(u, 100, 8)] = f(u)

Element by element the first loads eight columns of a tile, and the second stores so. The tile's rows are
vectors in memory: they are loaded or stored, and turned in between, four by four elements in 128 bits first,
then blocks of four among the vectors, as shuffles do it in one instruction each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compiler.core.node import rewrite_nodes
from compiler.core.target import TargetFacts
from compiler.loops.ir import (
    REGISTER,
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Load,
    Ramp,
    Shuffle,
    Stmt,
    Store,
    const,
    seq,
)
from compiler.loops.names import fresh, names_in
from compiler.loops.queries import int_of
from compiler.loops.simplify import Simplifier, substitute
from compiler.loops.walk import N, Rewriter, bind_loop, replace_buffers, with_body

_BLOCK = 4
"""Lanes of 128 bits, which are turned first; fewer vectors are not worth it."""

_BITS, _LANES = 32, (4, 8, 16)
"""Of the elements and vectors that this is for."""


def transpose_vectors(func: Func, facts: TargetFacts) -> Func:
    """Load and store tiles by rows where vectors are their columns."""
    if facts.binds_threads:
        return func
    return with_body(func, _Turn(names_in(func.body)).visit(func.body))


@dataclass(frozen=True, slots=True)
class _Nest:
    """Unrolled loops around one store, under a condition or none.

    side: the loop whose iterations are neighbours in memory; columns: the strided places that it moves by
    one; count: its iterations, without those that the condition leaves out.
    """

    loops: tuple[For, ...]
    side: For
    store: Store
    cond: Expr | None
    columns: tuple[Store | Load, ...]
    count: int

    def at(self, item: N, number: int) -> N:
        """What something is in one iteration of the side."""
        return substitute(item, {self.side.var.name: const(number)})


@dataclass(eq=False)
class _Turn(Rewriter):
    names: set[str]

    def visit_for(self, item: For) -> Stmt:
        nest = _nest(item, self.known)
        pieces = [] if nest is None else _pieces(nest.count, _lanes(nest.store))
        if nest is None or not pieces:
            return self.parts(item)
        result = seq(*(self._piece(nest, piece) for piece in pieces))
        for loop in reversed([loop for loop in nest.loops if loop is not nest.side]):
            result = loop.replace(body=result)
        return result

    def _piece(self, nest: _Nest, numbers: range) -> Stmt:
        """Some iterations of the side: one tile, or as they were where they are too few."""
        if len(numbers) < _BLOCK:
            return seq(*(_when(nest.cond, nest.at(nest.store, number)) for number in numbers))
        lanes = _lanes(nest.store)
        kind = nest.store.buffer.dtype.scalar.with_lanes(lanes)
        tile = _Tile(Buffer(fresh("turned", self.names), kind, (const(0),), REGISTER))
        strided = [place for place in nest.columns if isinstance(place, Load)]
        loads = {load: self._rows(nest, load, numbers, tile) for load in strided}
        stores = [nest.at(nest.store, number) for number in numbers]
        for step, number in enumerate(numbers):
            value = _with_loads(nest.store.value, {load: made[step] for load, made in loads.items()})
            stores[step] = stores[step].replace(value=nest.at(value, number))
        if nest.store in nest.columns:
            stores = self._by_rows(nest, stores, tile)
        return _when(nest.cond, tile.around(stores))

    def _rows(self, nest: _Nest, load: Load, numbers: range, tile: _Tile) -> list[Expr]:
        """A strided load of each iteration: rows are loaded and turned."""
        at, on = nest.at(_ramp(load), numbers[0]), _lanes_on(load.mask, self.known)
        assert on is not None
        zero = Broadcast(const(0, load.buffer.dtype), len(numbers))
        rows: list[Expr] = []
        for lane in range(at.lanes):
            row = Ramp(self.known.simplify(at.base + at.stride * lane), const(1), len(numbers))
            rows.append(load.replace(indices=(row,), mask=None, other=None) if lane < on else zero)
        return tile.from_rows(rows)

    def _by_rows(self, nest: _Nest, stores: Sequence[Store], tile: _Tile) -> list[Store]:
        """The strided stores of all iterations: values are turned and stored as rows."""
        at, on = _ramp(stores[0]), _lanes_on(nest.store.mask, self.known)
        columns = tile.to_rows([tile.put(store.value) for store in stores])
        done = []
        for lane, value in enumerate(columns[:on]):
            row = Ramp(self.known.simplify(at.base + at.stride * lane), const(1), len(stores))
            done.append(nest.store.replace(indices=(row,), value=value, mask=None))
        return done


# ---------------------------------------------------------------- what is turned


def _nest(item: For, known: Simplifier) -> _Nest | None:
    """The nest that begins with a loop, if it moves strided vectors that are neighbours."""
    loops: list[For] = []
    stmt: Stmt = item
    while isinstance(stmt, For) and stmt.kind is ForKind.UNROLLED:
        loops.append(stmt)
        known = bind_loop(known, stmt)
        stmt = stmt.body
    cond, store = (stmt.cond, stmt.then) if isinstance(stmt, If) and stmt.orelse is None else (None, stmt)
    if not loops or not isinstance(store, Store) or _lanes(store) not in _LANES:
        return None
    if store.buffer.dtype.bits != _BITS or _reads(store.value, store.buffer):
        return None
    for loop in loops:
        columns = tuple(place for place in _strided(store) if _beside(place, loop, known))
        count = _count(loop, cond, known)
        if columns and count is not None and all(_turnable(place, loop, known) for place in columns):
            outside = None if cond is None or _uses(cond, loop) else cond
            return _Nest(tuple(loops), loop, store, outside, columns, count)
    return None


def _strided(store: Store) -> Iterator[Store | Load]:
    """The places of a statement that are vectors with elements apart."""
    for item in (store, *store.value.walk()):
        index = item.indices[0] if isinstance(item, Store | Load) else None
        if isinstance(index, Ramp) and isinstance(index.stride, Const) and index.stride.value != 1:
            assert isinstance(item, Store | Load)
            yield item


def _beside(place: Store | Load, loop: For, known: Simplifier) -> bool:
    """Whether the next iteration's vector lies one element further."""
    return known.linear(_ramp(place).base).coefficient(loop.var.name) == 1


def _turnable(place: Store | Load, loop: For, known: Simplifier) -> bool:
    """Whether it is known which lanes are on, the same in each iteration."""
    mask = place.mask
    return mask is None or (not _uses(mask, loop) and _lanes_on(mask, known) is not None)


def _count(loop: For, cond: Expr | None, known: Simplifier) -> int | None:
    """How many iterations from the first run; None where the condition is not decided by them."""
    extent = int_of(loop.extent)
    if extent is None or cond is None or not _uses(cond, loop):
        return extent
    runs = [known.prove(substitute(cond, {loop.var.name: const(n)})) for n in range(extent)]
    count = runs.count(True)
    return count if runs == [True] * count + [False] * (extent - count) else None


def _pieces(count: int, lanes: int) -> list[range]:
    """Iterations that are turned together; the last ones may be among those before, too. Empty: too few."""
    pieces, start, size = [], 0, lanes
    while size >= _BLOCK:
        while count - start >= size:
            pieces.append(range(start, start + size))
            start += size
        size //= 2
    if pieces and start < count:
        alone = count - start == 1
        pieces.append(range(start, count) if alone else range(count - _BLOCK, count))
    return pieces


def _lanes_on(mask: Expr | None, known: Simplifier) -> int | None:
    """How many lanes from the first a mask has on; None where that is no number. Without a mask: all."""
    if mask is None:
        return max(_LANES)
    if not isinstance(mask, Binary) or mask.op != "lt" or not isinstance(mask.a, Ramp):
        return None
    if mask.a.stride != const(1) or not isinstance(mask.b, Broadcast):
        return None
    on = int_of(known.simplify(mask.b.value - mask.a.base))
    return None if on is None else max(on, 0)


def _lanes(store: Store) -> int:
    """Lanes of what is stored."""
    return store.value.dtype.lanes


def _ramp(place: Store | Load) -> Ramp:
    index = place.indices[0]
    assert isinstance(index, Ramp)
    return index


def _uses(expr: Expr, loop: For) -> bool:
    return any(item == loop.var for item in expr.walk())


def _reads(expr: Expr, buffer: Buffer) -> bool:
    return any(isinstance(item, Load) and item.buffer == buffer for item in expr.walk())


def _with_loads(value: Expr, made: dict[Load, Expr]) -> Expr:
    return rewrite_nodes(value, lambda item: made.get(item) if isinstance(item, Load) else None)


def _when(cond: Expr | None, stmt: Stmt) -> Stmt:
    return stmt if cond is None else If(cond, stmt)


# ---------------------------------------------------------------- how it is turned


@dataclass(eq=False)
class _Tile:
    """Vectors in registers, one after the other, and the statements that make them."""

    buffer: Buffer
    stmts: list[Stmt] = field(default_factory=list)
    places: dict[Expr, Load] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        return self.buffer.dtype.lanes

    def around(self, stores: Sequence[Store]) -> Alloc:
        """The statements, and those that use what they make."""
        whole = self.buffer.replace(shape=(const(len(self.stmts)),))
        return Alloc(whole, replace_buffers(seq(*self.stmts, *stores), {self.buffer: whole}))

    def put(self, value: Expr) -> Load:
        """A value in a register; the same value in the same one."""
        if value not in self.places:
            place = (const(len(self.stmts)),)
            self.stmts.append(Store(self.buffer, place, value))
            self.places[value] = Load(self.buffer, place)
        return self.places[value]

    def to_rows(self, columns: Sequence[Expr]) -> list[Expr]:
        """From n vectors of all lanes to a vector of n for each lane."""
        turned = self._turned([self.put(column) for column in columns])
        return [self._joined(among, [block]) for block in range(self.lanes // _BLOCK) for among in turned]

    def from_rows(self, rows: Sequence[Expr]) -> list[Expr]:
        """From a vector of n for each lane to n vectors of all lanes."""
        size = rows[0].dtype.lanes
        turned = self._turned([self.put(_concatenated(rows[first::size])) for first in range(size)])
        blocks, step = self.lanes // _BLOCK, size // _BLOCK
        found = []
        for block in range(step):
            found += [self._joined(among, range(block, blocks, step)) for among in turned]
        return [self.put(column) for column in found]

    def _turned(self, vectors: Sequence[Expr]) -> list[list[Expr]]:
        """Four by four elements turned in each block of four vectors; the k-th of all fours for each k."""
        fours = [self._turned_four(vectors[at : at + _BLOCK]) for at in range(0, len(vectors), _BLOCK)]
        return [list(among) for among in zip(*fours, strict=True)]

    def _turned_four(self, four: Sequence[Expr]) -> list[Expr]:
        """[a0 b0 c0 d0], [a1 b1 c1 d1], ... of the lanes of each block."""
        a, b, c, d = four
        low = (self._shuffled(a, b, (0, 4, 1, 5)), self._shuffled(c, d, (0, 4, 1, 5)))
        high = (self._shuffled(a, b, (2, 6, 3, 7)), self._shuffled(c, d, (2, 6, 3, 7)))
        pairs = ((0, 1, 4, 5), (2, 3, 6, 7))
        return [self._shuffled(*two, pair) for two in (low, high) for pair in pairs]

    def _shuffled(self, a: Expr, b: Expr, pattern: Sequence[int]) -> Load:
        """The same lanes picked in each block of two vectors: 0 to 3 of the first, 4 to 7 of the second."""
        lanes = [
            number % _BLOCK + block + (self.lanes if number >= _BLOCK else 0)
            for block in range(0, self.lanes, _BLOCK)
            for number in pattern
        ]
        return self.put(Shuffle((a, b), tuple(lanes)))

    def _joined(self, among: Sequence[Expr], blocks: Sequence[int]) -> Expr:
        """For each number in `blocks` the blocks with this number of all vectors, one after the other."""
        if len(among) > 2:
            (number,) = blocks
            pairs = zip(among[::2], among[1::2], strict=True)
            among = [self._every_other(*pair, number % 2) for pair in pairs]
            blocks = [number // 2, number // 2 + self.lanes // _BLOCK // 2]
            return self._picked(among, [(vector, block) for vector in range(2) for block in blocks])
        return self._picked(among, [(vector, block) for block in blocks for vector in range(len(among))])

    def _every_other(self, a: Expr, b: Expr, first: int) -> Expr:
        """The even or the odd blocks of two vectors."""
        blocks = range(first, self.lanes // _BLOCK, 2)
        return self.put(self._picked((a, b), [(vector, block) for vector in range(2) for block in blocks]))

    def _picked(self, among: Sequence[Expr], blocks: Sequence[tuple[int, int]]) -> Expr:
        """Blocks, each as the number of its vector and its own, in one vector."""
        lanes = [v * self.lanes + block * _BLOCK + lane for v, block in blocks for lane in range(_BLOCK)]
        if lanes == list(range(self.lanes)):
            return among[0]
        return Shuffle((among[0], among[-1]), tuple(lanes))


def _concatenated(vectors: Sequence[Expr]) -> Expr:
    """All lanes of vectors, one after the other."""
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    low, high = _concatenated(vectors[:half]), _concatenated(vectors[half:])
    return Shuffle((low, high), tuple(range(2 * low.dtype.lanes)))
