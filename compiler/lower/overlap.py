"""Dependence test: whether two threads of a block can meet in one element, and when that is surely not so.

An access is a box of a buffer whose corner is given by loop variables. Variables of loops around leaves have
one value for all threads; those of threads, and of loops within a leaf, have another one on each side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from compiler.core.node import IRNode
from compiler.loops.ir import (
    AddressOf,
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Let,
    Load,
    Ramp,
    Region,
    Stmt,
    Var,
    statements,
)
from compiler.loops.linear import Linear, divisor, is_division, operands, single
from compiler.loops.matrix_units.tile_calls import boxes_of
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import reads_of, writes_of
from compiler.loops.simplify import Simplifier, substitute

_OTHER = "'"
"""Ends the names of variables of the other side of a comparison."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """A box of a buffer that a leaf reads or writes; without corner and size where that is not known.

    limits: what the condition of the access says of single variables: below how much they are.
    """

    name: str
    write: bool
    corner: tuple[Expr, ...] | None = None
    size: tuple[int, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()

    def forgetting(self, names: Iterable[str]) -> Footprint:
        """The same for any value of some variables."""
        used = {name for index in self.corner or () for name in variables(index)}
        return self if used.isdisjoint(names) else replace(self, corner=None, size=())

    def at(self, values: Mapping[str, Expr]) -> Footprint:
        """The same with loop variables replaced."""
        if self.corner is None:
            return self
        return replace(self, corner=tuple(substitute(index, values) for index in self.corner))


def accesses(stmt: Stmt, shared: frozenset[str]) -> tuple[Footprint, ...]:
    """What a leaf touches of the buffers in `shared`; an alias has the name of what it aliases."""
    return tuple(dict.fromkeys(item for item in _accesses(stmt, {}) if item.name in shared))


def _accesses(item: IRNode, values: Mapping[str, Expr]) -> Iterator[Footprint]:
    if isinstance(item, Block):
        yield from _block(item, values)
        return
    if (tile := boxes_of(item)) is not None:
        for write, boxes in zip((False, True), tile, strict=True):
            yield from (_region(box, values, write=write) for box in boxes)
        return
    if isinstance(item, AddressOf):
        yield from (Footprint(_name(item.buffer), write) for write in (False, True))
    yield from (_region(box, values, write=False) for box in reads_of(item))
    yield from (_region(box, values, write=True) for box in writes_of(item))
    for child in item.children():
        if not isinstance(child, Buffer | Region):
            yield from _accesses(child, values)


def _block(block: Block, values: Mapping[str, Expr]) -> Iterator[Footprint]:
    """The regions that a block declares; what is missing there, without a place."""
    own = {item.var.name: substitute(item.binding, values) for item in block.iters}
    declared = [(False, item) for item in block.reads] + [(True, item) for item in block.writes]
    limits = _limits(block.predicate)
    for write, region in declared:
        yield replace(_region(region, own, write=write), limits=limits)
    for part in (block.init, block.body):
        for item in () if part is None else _accesses(part, {}):
            known = [w for w, region in declared if _name(region.buffer) == item.name]
            if item.write not in known and not (known and not item.write):
                yield Footprint(item.name, item.write)


def _limits(predicate: Expr | None) -> tuple[tuple[str, int], ...]:
    parts = [] if predicate is None else operands(predicate, "and")
    pairs = [(part.a, part.b) for part in parts if isinstance(part, Binary) and part.op == "lt"]
    return tuple((a.name, int(b.value)) for a, b in pairs if isinstance(a, Var) and isinstance(b, Const))


def _region(region: Region, values: Mapping[str, Expr], *, write: bool) -> Footprint:
    buffer = region.buffer
    corner, size = _scalar_box(region)
    known = buffer.alias_of is None and all(size) and all(item.dtype.lanes == 1 for item in corner)
    if not known or any(isinstance(item, Load) for index in corner for item in index.walk()):
        return Footprint(_name(buffer), write)
    return Footprint(buffer.name, write, tuple(substitute(index, values) for index in corner), size)


def _scalar_box(region: Region) -> tuple[tuple[Expr, ...], tuple[int, ...]]:
    """Corner and size; a run of lanes counts as the box around it."""
    corner, size = list[Expr](), list[int]()
    for begin, extent in zip(region.begin, region.extent, strict=True):
        if isinstance(begin, Ramp) and int_of(extent) == 1 and (int_of(begin.stride) or 0) > 0:
            corner.append(begin.base)
            size.append((begin.lanes - 1) * (int_of(begin.stride) or 0) + 1)
        else:
            corner.append(begin)
            size.append(int_of(extent) or 0)
    return tuple(corner), tuple(size)


def _name(buffer: Buffer) -> str:
    return buffer.alias_of or buffer.name


def distance(loop: For) -> Var:
    """How many iterations of a loop lie between two that are not neighbours."""
    return Var(f"{loop.var.name}~")


class Overlap:
    """Answers for one launch; `threads` are the variables that differ between threads, with their extents."""

    def __init__(self, stmt: Stmt, leaves: Iterable[Stmt], threads: Mapping[str, int]) -> None:
        bounds = {name: (0, extent - 1) for name, extent in threads.items()}
        for loop in statements(stmt):
            extent = int_of(loop.extent) if isinstance(loop, For) else None
            if isinstance(loop, For) and extent:
                bounds[loop.var.name] = (0, extent - 1)
                bounds[distance(loop).name] = (2, max(2, extent - 1))
        inside = {x.var.name for leaf in leaves for x in statements(leaf) if isinstance(x, For)}
        lets = {item.var.name for item in statements(stmt) if isinstance(item, Let)}
        self._apart = {name: Var(name + _OTHER) for name in {*threads, *inside, *lets}}
        more = {name + _OTHER: bounds[name] for name in self._apart if name in bounds}
        self._bounds = bounds
        self._known = Simplifier({**bounds, **more})
        self._done: dict[tuple[Footprint, Footprint], bool] = {}

    def may_meet(self, a: Footprint, b: Footprint) -> bool:
        """Whether two threads, one in each access, may touch the same element, and one of them writes it."""
        if a.name != b.name or not (a.write or b.write):
            return False
        if (a, b) not in self._done:
            self._done[a, b] = not self._disjoint(a, b)
        return self._done[a, b]

    def _disjoint(self, a: Footprint, b: Footprint) -> bool:
        if a.corner is None or b.corner is None or len(a.corner) != len(b.corner):
            return False
        ours, theirs = self._settled(a), self._settled(b).at(self._apart)
        dims = zip(ours.corner or (), a.size, theirs.corner or (), b.size, strict=True)
        return any(self._beside(*dim) for dim in dims)

    def _settled(self, access: Footprint) -> Footprint:
        """The same with its corner simplified by its condition."""
        if not access.limits:
            return access
        own = {name: (0, limit - 1) for name, limit in access.limits if name in self._bounds}
        known = Simplifier({**self._bounds, **own})
        return replace(access, corner=tuple(known.simplify(index) for index in access.corner or ()))

    def _beside(self, a: Expr, a_size: int, b: Expr, b_size: int) -> bool:
        """Whether [a, a + a_size) and [b, b + b_size) have nothing in common."""
        difference = self._known.linear(a).plus(self._known.linear(b), -1)
        return all(self._is_beside(case, a_size, b_size) for case in self._cases(difference))

    def _is_beside(self, difference: Linear, a_size: int, b_size: int) -> bool:
        """The same of a difference of their beginnings: by its range, or as it takes large steps only."""
        low, high = self._known.range(difference)
        if high <= -a_size or low >= b_size:
            return True
        constant, step = self._residue(difference)
        return step > 0 and (constant + a_size - 1) % step - (a_size - 1) >= b_size

    def _residue(self, value: Linear) -> tuple[int, int]:
        """A number and a step: the value is the number and some steps more; a step of 0 says nothing."""
        step = 0
        for atom, factor in [*value.terms.items()]:
            if is_division(atom, "floormod"):  # what it is a remainder of, less some divisors
                value = value.plus(single(atom), -factor).plus(self._known.linear(atom.a), factor)
                step = math.gcd(step, factor * divisor(atom))
        return value.constant, math.gcd(step, *value.terms.values())

    def _cases(self, value: Linear) -> list[Linear]:
        """A difference of two remainders of numbers a fixed distance apart has two values at most."""
        for atom, factor in value.terms.items():
            for other, opposite in value.terms.items():
                steps = self._turn(atom, other) if opposite == -factor and factor > 0 else None
                if steps is None:
                    continue
                rest = {x: n for x, n in value.terms.items() if x not in (atom, other)}
                return [Linear(rest, value.constant + factor * step) for step in steps]
        return [value]

    def _turn(self, a: Expr, b: Expr) -> tuple[int, ...] | None:
        """The values of a % n - b % n where a - b is a constant; what is below n already is its remainder."""
        if is_division(b, "floormod") and not is_division(a, "floormod"):
            turned = self._turn(b, a)
            return None if turned is None else tuple(-step for step in turned)
        if not is_division(a, "floormod"):
            return None
        size, other = divisor(a), b
        if is_division(b, "floormod"):
            if a.b != b.b:
                return None
            other = b.a
        elif not self._is_below(b, size):
            return None
        apart = self._known.linear(a.a).plus(self._known.linear(other), -1)
        if apart.terms:
            return None
        step = apart.constant % size
        return (step, step - size) if step else (0,)

    def _is_below(self, value: Expr, size: int) -> bool:
        low, high = self._known.range(self._known.linear(value))
        return low >= 0 and high < size
