"""Injectivity of index sums: which variables follow from the places that mixed-radix digits of them lead to.

An index such as `p // 7 % 5` is a digit of `p`. Where a box of places has all digits of a variable, and
none of them is mixed up with what else moves, the variable follows from the place: different values never
meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, inf

from compiler.loops.ir import Binary, Block, Const, Expr, Region, Var, const
from compiler.loops.linear import Linear, conjuncts, divisor, is_division, single
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier
from compiler.schedule.program import ranges


def determined(moving: IterDomain, spans: Sequence[tuple[Expr, int]]) -> set[Expr]:
    """The atoms that have one value only for each combination of places in a box."""
    known = moving.known
    forms = [(known.linear(begin), length) for begin, length in spans]
    found: set[Expr] = set()
    taken: set[Expr] = set()  # remainders whose dividend is among the forms
    size = -1
    while size != len(found) + len(forms):
        size = len(found) + len(forms)
        for form, length in forms:
            found |= {atom for atom in form.terms if moving.is_digit(atom, form, length, found)}
        for atom in found - taken:
            if is_division(atom, "floormod"):
                quotient = known.linear(Binary("floordiv", atom.a, atom.b))
                if all(part in found or not moving.moves(part) for part in quotient.terms):
                    taken.add(atom)
                    forms.append((known.linear(atom.a), 1))
    return found


def is_injective(block: Block, region: Region, names: frozenset[str]) -> bool:
    """Whether a box that a block writes tells the values of some variables, whatever the others are."""
    spatial = _moving(block)
    bounds = tuple(ranges(block.iters).items())
    return {Var(name) for name in names & spatial} <= _told(spatial, bounds, block.predicate, region)


@lru_cache(maxsize=1 << 12)  # primitives ask for the same box of a block again and again
def _told(
    spatial: frozenset[str],
    bounds: tuple[tuple[str, tuple[int, int]], ...],
    predicate: Expr | None,
    region: Region,
) -> frozenset[Expr]:
    """The atoms that a box which a block writes tells."""
    lengths = [int_of(length) or 1 << 30 for length in region.extent]
    moving = IterDomain(predicate, spatial, Simplifier(dict(bounds)))
    return frozenset(determined(moving, list(zip(region.begin, lengths, strict=True))))


def is_circular(block: Block, region: Region) -> bool:
    """Whether elements that a block writes may hold several values in turn, of different work of it."""
    spatial = _moving(block)
    plain = {begin.name for begin in region.begin if isinstance(begin, Var)}
    parts = [part for begin in region.begin for part in begin.walk() if isinstance(part, Binary)]
    if spatial <= plain or not any(part.op in ("floordiv", "floormod") for part in parts):
        return False  # sums of variables never come back to an element
    return not is_injective(block, region, spatial)


def _moving(block: Block) -> frozenset[str]:
    """The spatial variables of more than one value."""
    return frozenset(i.var.name for i in block.iters if i.kind == "spatial" and i.extent != const(1))


@dataclass(frozen=True, slots=True)
class IterDomain:
    """Variables that move while a loop runs, and up to where the predicate of a block, if any, lets them."""

    predicate: Expr | None
    names: frozenset[str]
    known: Simplifier

    def moves(self, atom: Expr) -> bool:
        return not self.names.isdisjoint(variables(atom))

    def is_digit(self, atom: Expr, form: Linear, length: int, fixed: set[Expr]) -> bool:
        """Whether sums that differ in one atom differ, whatever the others that move and are not `fixed` are.

        Those are finer, and together below one step of the atom; or they are multiples of more than the atom
        and the finer ones can add up to.
        """
        own = form.terms[atom]
        free = (item for item in form.terms if item == atom or item not in fixed)
        terms = {item: form.terms[item] for item in free if self.moves(item)}
        if min(terms.values(), default=-1) < 0 or any(self._low(item) < 0 for item in terms):
            return False
        finer = {item: factor for item, factor in terms.items() if factor <= own and item != atom}
        if own < self._most(finer) + length:
            return False
        coarser = [factor for factor in terms.values() if factor > own]
        return not coarser or self._most({atom: own, **finer}) + length <= gcd(*coarser)

    def _low(self, atom: Expr) -> float:
        return self.known.range(single(atom))[0]

    def _high(self, atom: Expr) -> float:
        high = self.known.range(single(atom))[1]
        if not is_division(atom, "floordiv"):
            return high
        base = self.known.linear(atom.a)
        if any(factor < 0 or self._low(part) < 0 for part, factor in base.terms.items()):
            return high
        return min(high, (self._most(base.terms) + base.constant) // divisor(atom))

    def _most(self, terms: dict[Expr, int]) -> float:
        """The largest value of a sum of terms that are never negative."""
        found: float = sum(factor * self._high(atom) for atom, factor in terms.items())
        for part in conjuncts(self.predicate):
            if isinstance(part, Binary) and part.op == "lt" and isinstance(part.b, Const):
                found = min(found, self._most_below(terms, self.known.linear(part.a), int(part.b.value)))
        return found

    def _most_below(self, terms: dict[Expr, int], limited: Linear, bound: int) -> float:
        """The same from `limited < bound`, where that sum is the terms and others that are not negative."""
        same = all(limited.terms.get(atom) == factor for atom, factor in terms.items())
        if not same or any(factor < 0 or self._low(atom) < 0 for atom, factor in limited.terms.items()):
            return inf
        return bound - 1 - limited.constant
