"""The primitive that weighs by a softmax part by part: online_softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.types import F32
from compiler.loops.build import identity_of
from compiler.loops.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Cast,
    Expr,
    For,
    Func,
    Iter,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    binary,
    const,
    seq,
)
from compiler.loops.queries import extent_of, int_of
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.errors import ScheduleError
from compiler.schedule.nest import own_loops
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Fresh, Program, Site
from compiler.schedule.rewriting import (
    declared,
    fresh_iters,
    nest,
    nest_of,
    replace_statements,
    update_of,
)

_LOWEST = const(-3.4028234663852886e38, F32)
"""Where largest values begin: less than that is no number, and its distance to itself none either."""

_ZERO, _ONE = const(0.0, F32), const(1.0, F32)

_EXP = ("exp", "exp_nonpositive")


class Rounds(NamedTuple):
    """What online_softmax makes beside the three blocks, which are those of parts then.

    tile: the loop over tiles of rows. first_row: the loop over rows of a tile that begins what they have so
    far; begin: the block that begins their products. round: the loop over parts. row: the one over rows that
    adds a part; add: the block that adds its products. quotient: the block that divides by the totals.
    """

    tile: str
    first_row: str
    begin: str
    round: str
    row: str
    add: str
    quotient: str


@dataclass(frozen=True, slots=True)
class OnlineSoftmax(Primitive[tuple[str, ...]]):
    """Look at the rows of a softmax part by part, and multiply by each while it is there.

    block: a product that adds up exp(element - largest) / total * x. largest: the block that finds the
    largest element of each row. total: the one that adds up exp(element - largest). Nobody else reads these.
    part: elements of a row that are looked at together. rows: of a tile; the last tile has fewer. Each part
    has a largest element, a total and products of its own. What a row has so far of them is multiplied by
    exp(its largest element - the larger one) when a part is added. As other rearrangements of sums do, it
    changes how results are rounded.
    Outputs: see `Rounds`.
    rewrite: for i: M(i); for i: T(i); for i, j: P(i, j) -> for p, i: M(p, i); for p, i: T(p, i);
    for p, i, j: P(p, i, j); for i: for p: M(i), T(i), P(i) by M(p, i), T(p, i), P(p, i); for i: P(i) / T(i)
    Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018); Dao et al., "FlashAttention"
    (2022). TVM: -.
    """

    name: ClassVar[str] = "online_softmax"

    block: str
    largest: str
    total: str
    part: int
    rows: int

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        softmax = _softmax(self, program)
        if not (1 <= self.part <= softmax.length and 1 <= self.rows <= softmax.shape[-1]):
            raise self.refuse(
                f"{self.rows} rows and parts of {self.part} are no tile",
                f"there are {softmax.shape[-1]} rows of {softmax.length} elements",
                "take fewer, but at least one",
                where=f"block {self.block}",
            )
        made = _Made(softmax, program.namer(), self.part, self.rows)
        func = replace_statements(program.func, made.statements())
        return func.replace(allocs=(*func.allocs, *made.buffers)), tuple(made.names)


# ---------------------------------------------------------------- what it is applied to


@dataclass(frozen=True, slots=True)
class _Softmax:
    """The three blocks, and what they compute.

    element: of a row, in the iterations of `largest`. power: of an element, in those of `total`. weighed:
    what `product` adds up, not divided by the total. at: the row of an element in the iterations of
    `product`, 0 for dimensions of extent 1.
    """

    largest: Site
    total: Site
    product: Site
    element: Expr
    power: Expr
    weighed: Expr
    at: tuple[Expr, ...]

    @property
    def length(self) -> int:
        """Elements of a row."""
        return extent_of(self.largest.reduce[0].extent)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the rows."""
        return tuple(extent_of(item.extent) for item in self.largest.spatial)


def _softmax(step: OnlineSoftmax, program: Program) -> _Softmax:
    """The blocks that the step names; refuses what is no softmax whose rows a product reads."""
    product, largest, total = (program.site(n, step.name) for n in (step.block, step.largest, step.total))
    element = _update(step, largest, "max")
    power, value = (_update(step, site, "add") for site in (total, product))
    for site, readers in ((largest, {total.name, product.name}), (total, {product.name})):
        if site.store.indices != tuple(item.var for item in site.spatial):
            raise _refusal(step, site, "its iterations are not the indices of its result")
        found = {reader.name for reader in program.readers(site.target)} - {site.name}
        if site.target in program.outputs or found != readers:
            raise _refusal(step, site, f"others than {' and '.join(sorted(readers))} see its result")
    if _power(step, total, largest, element) != power:
        raise _refusal(step, total, "it does not add up exp(element - largest)")
    if _row_of(step, total, largest.target) != tuple(_tidy(total, item.var) for item in total.spatial):
        raise _refusal(step, total, f"it does not read {largest.target} of its own row")
    weighed, at = _undivided(value, total.target), _row_of(step, product, largest.target)
    if weighed is None or _row_of(step, product, total.target) != at:
        raise _refusal(step, product, "it does not divide by the total of the same row")
    if not _multiplies(weighed, _power(step, product, largest, element)):
        raise _refusal(step, product, "it does not multiply exp(element - largest)")
    return _Softmax(largest, total, product, element, power, weighed, at)


def _update(step: OnlineSoftmax, site: Site, op: str) -> Expr:
    """What a block adds to its sums, or compares; refuses others, and those that were scheduled."""
    own_loops(site, step.refuse)
    found, value = (update_of(site.block.body) or ("", None)) if site.is_store else ("", None)
    init = site.block.init
    starts = isinstance(init, Store) and init.value == identity_of(op, init.buffer.dtype)
    if found != op or value is None or not starts or len(site.reduce) != 1 or value.dtype != F32:
        raise _refusal(step, site, f"it is not of the form C = {op}(C, x) over one iteration, in f32")
    return _tidy(site, value)


def _tidy(site: Site, value: Expr) -> Expr:
    """The value with iterations of extent 1 at 0, as they may be written either way."""
    single: dict[str, Expr] = {i.var.name: const(0) for i in site.block.iters if int_of(i.extent) == 1}
    return Simplifier(site.bounds).simplify(substitute(value, single))


def _power(step: OnlineSoftmax, site: Site, largest: Site, element: Expr) -> Expr:
    """What a block has that is `exp(element - largest)`."""
    at = _row_of(step, site, largest.target)
    places = dict(zip((item.var.name for item in largest.spatial), at, strict=True))
    places[largest.reduce[0].var.name] = site.reduce[0].var
    wanted = _tidy(site, substitute(element, places))
    for item in site.block.body.walk():
        if isinstance(item, Call) and item.name in _EXP and isinstance(item.args[0], Binary):
            shifted = item.args[0]
            alike = shifted.op == "sub" and _reads(shifted.b, largest.target)
            if alike and _tidy(site, shifted.a) == wanted:
                return _tidy(site, item)
    raise _refusal(step, site, "it has no exp(element - largest)")


def _row_of(step: OnlineSoftmax, site: Site, name: str) -> tuple[Expr, ...]:
    """The row that a block reads from a buffer: an iteration of its own for each dimension of several."""
    found = {
        item.indices for item in site.block.body.walk() if isinstance(item, Load) and item.buffer.name == name
    }
    if len(found) != 1:
        raise _refusal(step, site, f"it does not read one element of {name}")
    at = tuple(_tidy(site, index) for index in found.pop())
    shape = next(load.buffer.shape for load in site.loads if load.buffer.name == name)
    extents: dict[Expr, Expr] = {item.var: item.extent for item in site.spatial}
    used = [index for index in at if index != const(0)]
    whole = all(index == const(0) or extents.get(index) == n for index, n in zip(at, shape, strict=True))
    if not whole or len(set(used)) != len(used):
        raise _refusal(step, site, f"it does not run over the rows of {name}")
    return at


def _undivided(value: Expr, total: str) -> Expr | None:
    """A product without the division of one of its factors by a total; None where there is none."""
    if isinstance(value, Cast):
        inner = _undivided(value.value, total) if value.dtype.is_float else None
        return None if inner is None else value.replace(value=inner)
    if not isinstance(value, Binary) or value.op not in ("mul", "div"):
        return None
    if value.op == "div":
        return value.a if _reads(value.b, total) else None
    for one, other in ((value.a, value.b), (value.b, value.a)):
        if isinstance(one, Binary) and (one.op, one.a) == ("div", _ONE) and _reads(one.b, total):
            return other
    for side in ("a", "b"):
        inner = _undivided(getattr(value, side), total)
        if inner is not None:
            return value.replace(**{side: inner})
    return None


def _multiplies(value: Expr, power: Expr) -> bool:
    """Whether a value is in proportion to a power that it has once, but for how it is rounded."""
    if isinstance(value, Cast):
        return value.dtype.is_float and _multiplies(value.value, power)
    if not isinstance(value, Binary) or value.op != "mul":
        return value == power
    return [_multiplies(part, power) for part in (value.a, value.b)].count(True) == 1 and (
        sum(part == power for part in value.walk()) == 1
    )


def _reads(value: Expr, name: str) -> bool:
    return isinstance(value, Load) and value.buffer.name == name


def _refusal(step: OnlineSoftmax, site: Site, why: str) -> ScheduleError:
    return step.refuse(
        "these blocks are no softmax whose rows a product reads",
        why,
        "name the largest elements, the totals and the product before they are scheduled",
        where=f"block {site.name}",
    )


# ---------------------------------------------------------------- what it makes


class _Made:
    """The blocks for parts of rows, and those for what rows have so far.

    names: see `Rounds`. buffers: new ones. Each is over rows, or over products of rows; those of parts have a
    first dimension that numbers them.
    """

    def __init__(self, softmax: _Softmax, fresh: Fresh, part: int, rows: int) -> None:
        self.softmax, self.fresh, self.part, self.rows = softmax, fresh, part, rows
        self.count = const(-(-softmax.length // part))
        self.buffers: list[Buffer] = []
        largest, product = softmax.largest, softmax.product
        sites = largest, softmax.total, product
        self.parts = [self._buffer(f"{site.name}_part", site, self.count) for site in sites]
        self.largest, self.total, self.product = (self._buffer(f"{s.name}_so_far", s) for s in sites)
        self.grown, self.kept, self.added = (
            self._buffer(f"{largest.name}_{what}", largest) for what in ("grown", "kept", "added")
        )
        whats = ("tile", "first_row", "begin", "round", "row", "add", "quotient")
        self.names = Rounds(*(fresh(f"{product.name}_{what}") for what in whats))
        self.tile, self.round = Var(self.names.tile), Var(self.names.round)
        self.outer = [Var(fresh(f"{product.name}_o{n}")) for n in range(len(softmax.shape) - 1)]

    def _buffer(self, name: str, site: Site, *first: Expr) -> Buffer:
        made = Buffer(self.fresh(name), F32, (*first, *(item.extent for item in site.spatial)))
        self.buffers.append(made)
        return made

    def statements(self) -> dict[str, Stmt]:
        """New statements for the nests of the three blocks, by their outermost loops."""
        softmax = self.softmax
        sites = softmax.largest, softmax.total, softmax.product
        values = (softmax.element, softmax.power, softmax.weighed)
        starts = (_LOWEST, _ZERO, _ZERO)
        new = [nest_of(self._of_part(*one)) for one in zip(sites, values, self.parts, starts, strict=True)]
        new[2] = seq(new[2], self._rounds(), nest_of(self._quotient()))
        return {site.loops[0].var.name: nest for site, nest in zip(sites, new, strict=True)}

    # -- parts

    def _of_part(self, site: Site, value: Expr, buffer: Buffer, start: Expr) -> Block:
        """One of the three blocks for parts, which one more iteration numbers."""
        (step,) = site.reduce
        loop = Var(self.fresh(f"{site.name}_part"))
        number, inner = Var(self.fresh(f"v{loop.name}")), Var(self.fresh(step.var.name))
        new = self._by_part(self._inside(site, value, step.var, number * self.part + inner), number)
        at = (number, *(item.var for item in site.spatial))
        op = "max" if site is self.softmax.largest else "add"
        body = Store(buffer, at, binary(op, Load(buffer, at), new))
        first = Iter(number, self.count, "spatial", loop)
        iters = (first, *site.spatial, step.replace(var=inner, extent=const(self.part)))
        return declared(Block(site.name, iters, (), (), body, Store(buffer, at, start)))

    def _inside(self, site: Site, value: Expr, step: Var, place: Expr) -> Expr:
        """A value at a place that may be behind the end of its row, where elements are -inf.

        They weigh nothing. What is multiplied by that is the last one of the row again: it needs no condition
        to be read.
        """
        last = self.softmax.length - 1
        if self.softmax.length % self.part == 0:
            return substitute(value, {step.name: place})

        def element(item: Expr) -> Expr:
            new = substitute(item, {step.name: place})
            return Select(place.le(const(last)), new, identity_of("max", F32))

        def power(item: IRNode) -> Call | None:
            if not isinstance(item, Call) or item.name not in _EXP:
                return None
            (shifted,) = item.args
            if not isinstance(shifted, Binary) or not _reads(shifted.b, self.softmax.largest.target):
                return None
            return item.replace(args=(shifted.replace(a=element(shifted.a)),))

        if site is self.softmax.largest:
            return element(value)
        again = {step.name: binary("min", place, const(last))}
        return substitute(rewrite_nodes(value, power), again)

    def _by_part(self, value: Expr, number: Expr) -> Expr:
        """A value with the largest element of a part in the place of that of the row."""

        def own(item: IRNode) -> Load | None:
            if isinstance(item, Load) and item.buffer.name == self.softmax.largest.target:
                return Load(self.parts[0], (number, *item.indices))
            return None

        return rewrite_nodes(value, own)

    # -- what rows have so far

    def _rounds(self) -> Stmt:
        """Begin with nothing, and add part by part, for a tile of rows after the other."""
        top, part, products = self.parts
        largest, total, product = self.largest, self.total, self.product
        grown, kept, added = self.grown, self.kept, self.added
        first: list[tuple[Buffer, _Value]] = [(largest, lambda _: _LOWEST), (total, lambda _: _ZERO)]
        more: list[tuple[Buffer, _Value]] = [
            (grown, lambda at: binary("max", at(largest), at(top))),
            (kept, lambda at: _exp(at(largest) - at(grown))),
            (added, lambda at: _exp(at(top) - at(grown))),
            (total, lambda at: at(total) * at(kept) + at(part) * at(added)),
            (largest, lambda at: at(grown)),
        ]

        def sums(at: _At) -> Expr:
            return at(product) * at(kept) + at(products) * at(added)

        rounds = seq(
            self._rows(Var(self.names.row), more, self.round),
            self._products(self.names.add, sums, self.round),
        )
        body = seq(
            self._rows(Var(self.names.first_row), first),
            self._products(self.names.begin, lambda _: _ZERO),
            For(self.round, self.count, rounds),
        )
        *outer, last = self.softmax.shape
        pairs = zip((*self.outer, self.tile), (*outer, -(-last // self.rows)), strict=True)
        return nest([For(var, const(n), body) for var, n in pairs], body)

    def _rows(self, row: Var, blocks: Sequence[tuple[Buffer, _Value]], part: Var | None = None) -> Stmt:
        """Blocks that store an element for each row of a tile."""
        made = []
        for buffer, value in blocks:
            name = self.fresh(buffer.name)
            iters = self._row_iters(name, row)
            rows = tuple(item.var for item in iters)
            made.append(self._block(name, iters, rows, rows, buffer, value, row, part))
        return For(row, const(self.rows), seq(*made))

    def _row_iters(self, name: str, row: Var) -> list[Iter]:
        bindings: list[Expr] = [*self.outer, self.tile * self.rows + row]
        pairs = enumerate(zip(self.softmax.shape, bindings, strict=True))
        return [
            Iter(Var(self.fresh(f"v{name}_i{d}")), const(n), "spatial", binding) for d, (n, binding) in pairs
        ]

    def _products(self, name: str, value: _Value, part: Var | None = None) -> Stmt:
        """A block that stores an element for each product of each row of a tile."""
        at, row = self.softmax.at, Var(self.fresh(f"{name}_row"))
        of_rows = self._row_iters(name, row)
        loops: list[For] = []
        iters: list[Iter] = []
        for number, item in enumerate(self.softmax.product.spatial):
            if item.var in at:
                iters.append(of_rows[at.index(item.var)])
                continue
            loop = For(Var(self.fresh(f"{name}_i{number}")), item.extent, seq())
            loops.append(loop)
            iters.append(Iter(Var(self.fresh(f"v{loop.var.name}")), item.extent, "spatial", loop.var))
        own = tuple(item.var for item in iters)
        rows = tuple(item.var if item in iters else const(0) for item in of_rows)
        block = self._block(name, iters, own, rows, self.product, value, row, part)
        return nest([For(row, const(self.rows), block), *loops], block)

    def _block(
        self,
        name: str,
        iters: Sequence[Iter],
        own: tuple[Expr, ...],
        rows: tuple[Expr, ...],
        buffer: Buffer,
        value: _Value,
        row: Var,
        part: Var | None,
    ) -> Block:
        """A block of one store; own: its place among products; rows: that of its row."""
        number: tuple[Expr, ...] = ()
        if part is not None:
            iters = (*iters, Iter(Var(self.fresh(f"v{name}_{part.name}")), self.count, "reduce", part))
            number = (iters[-1].var,)

        def at(read: Buffer) -> Load:
            place = own if read in (self.product, self.parts[2]) else rows
            return Load(read, (*number, *place) if read in self.parts else place)

        last, place = self.softmax.shape[-1], self.tile * self.rows + row
        predicate = place.lt(const(last)) if last % self.rows else None
        body = Store(buffer, own, value(at))
        return declared(Block(name, tuple(iters), (), (), body, None, predicate))

    def _quotient(self) -> Block:
        """The product, divided by the totals: where it was before."""
        site = self.softmax.product
        name = self.names.quotient
        iters = fresh_iters(self.fresh, name, [item.extent for item in site.spatial])
        names: dict[str, Expr] = {o.var.name: n.var for o, n in zip(site.spatial, iters, strict=True)}
        place = tuple(substitute(index, names) for index in site.store.indices)
        at = tuple(substitute(index, names) for index in self.softmax.at)
        product = Load(self.product, tuple(item.var for item in iters))
        body = Store(site.store.buffer, place, binary("div", product, Load(self.total, at)))
        return declared(Block(name, iters, (), (), body))


_At = Callable[[Buffer], Expr]
"""The element of a buffer that belongs to a row, to a product of it, or to a part of either."""

_Value = Callable[[_At], Expr]


def _exp(value: Expr) -> Expr:
    return Call("exp_nonpositive", (value,), F32)
