"""Sums of `coefficient * atom + constant` and ranges of integers: what `simplify` calculates with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, inf
from typing import TypeAlias, TypeGuard

from compiler.core.node import IRNode
from compiler.loops.ir import Binary, Const, Expr, Var

Range: TypeAlias = tuple[float, float]
"""Smallest and largest value: ints, or -inf and inf where nothing is known (Python compares them exactly)."""

OPEN: Range = (-inf, inf)


@dataclass(slots=True)
class Linear:
    """`sum of coefficient * atom + constant`; never changed after it was made."""

    terms: dict[Expr, int]
    constant: int

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """`self + factor * other`."""
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + factor * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Linear(terms, self.constant + factor * other.constant)

    def times(self, factor: int) -> Linear:
        """`factor * self`."""
        if factor == 1:
            return self
        if factor == 0:
            return Linear({}, 0)
        return Linear({atom: factor * c for atom, c in self.terms.items()}, factor * self.constant)

    def coefficient(self, name: str) -> int:
        """The coefficient of the index variable called `name`; 0 when it is not a term of its own."""
        return self.terms.get(Var(name), 0)


@lru_cache(maxsize=1 << 14)
def text_key(expr: IRNode) -> str:
    """A text that orders atoms the same way in every run."""
    if isinstance(expr, Var):
        return expr.name
    return f"~{type(expr).__name__}({','.join(_value_key(getattr(expr, name)) for name in expr.FIELDS)})"


def _value_key(value: object) -> str:
    if isinstance(value, IRNode):
        return text_key(value)
    return f"({','.join(map(_value_key, value))})" if isinstance(value, tuple) else str(value)


def constant_sum(value: float) -> Linear:
    """A sum without terms."""
    return Linear({}, int(value))


def single(atom: Expr) -> Linear:
    """The sum of one atom."""
    return Linear({atom: 1}, 0)


def split_multiples(a: Linear, q: int) -> tuple[Linear, Linear]:
    """(quotient, rest) with a = q * quotient + rest, coefficients of rest below q, its constant in 0..q-1."""
    quotient: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for atom, coefficient in a.terms.items():
        whole = abs(coefficient) // q * (1 if coefficient > 0 else -1)
        if whole:
            quotient[atom] = whole
        if coefficient != whole * q:
            rest[atom] = coefficient - whole * q
    return Linear(quotient, a.constant // q), Linear(rest, a.constant % q)


def split_exact(a: Linear, g: int) -> tuple[Linear, Linear]:
    """(coarse, fine) with a = g * coarse + fine; fine keeps the constant."""
    coarse = {atom: c // g for atom, c in a.terms.items() if c % g == 0}
    return Linear(coarse, 0), Linear({atom: c for atom, c in a.terms.items() if c % g}, a.constant)


def common_factors(a: Linear, q: int) -> list[int]:
    """Factors above 1 that q shares with a coefficient, largest first."""
    return sorted({gcd(c, q) for c in a.terms.values()} - {1}, reverse=True)


def same_multiple(low: float, high: float, q: int) -> bool:
    """Whether all values of the range have the same quotient by q."""
    return low > -inf and high < inf and low // q == high // q


def by_sign(a: Linear) -> tuple[Linear, Linear]:
    """(terms that are added, terms that are subtracted), both with positive coefficients, no constants."""
    plus = {atom: c for atom, c in a.terms.items() if c > 0}
    return Linear(plus, 0), Linear({atom: -c for atom, c in a.terms.items() if c < 0}, 0)


def is_division(atom: Expr, op: str) -> TypeGuard[Binary]:
    """Whether an atom is a floordiv or floormod by a literal."""
    return isinstance(atom, Binary) and atom.op == op and isinstance(atom.b, Const)


def divisor(atom: Binary) -> int:
    """The literal that a division divides by."""
    assert isinstance(atom.b, Const)
    return int(atom.b.value)


def is_masked(number: int) -> bool:
    """Whether a division by a number is shifts and masks: it is a power of two, or 0 for none."""
    return number & (number - 1) == 0


def operands(expr: Expr, op: str) -> Iterable[Expr]:
    """The operands of nested `and`s or `or`s, in order."""
    if isinstance(expr, Binary) and expr.op == op:
        yield from operands(expr.a, op)
        yield from operands(expr.b, op)
    else:
        yield expr


def conjuncts(condition: Expr | None) -> Iterable[Expr]:
    """The conditions that all have to hold for this one to hold; none where there is none."""
    return () if condition is None else operands(condition, "and")


def times(x: float, y: float) -> float:
    """The product of two bounds; nothing times infinity is nothing."""
    return 0 if x == 0 or y == 0 else x * y


def _floor(x: float, q: float) -> float:
    if x in {inf, -inf}:
        return x if q > 0 else -x
    if q in {inf, -inf}:
        return 0 if (x >= 0) == (q > 0) or x == 0 else -1
    return x // q


def combine_ranges(op: str, a: Range, b: Range) -> Range:
    """The range of `a op b`; open for operations that are not known here."""
    if op == "floordiv":
        return _divided(a, b)
    if op == "floormod":
        return _remainder(a, b)
    if op in {"truncdiv", "truncmod"}:
        return _truncated(op, a, b)
    if op == "mul":
        corners = [times(x, y) for x in a for y in b]
        return min(corners), max(corners)
    if op in {"min", "max"}:
        pick = min if op == "min" else max
        return pick(a[0], b[0]), pick(a[1], b[1])
    return OPEN


def _divided(a: Range, b: Range) -> Range:
    if b[0] <= 0 <= b[1]:
        return OPEN
    corners = [_floor(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _truncated(op: str, a: Range, b: Range) -> Range:
    if b[0] <= 0:
        return OPEN
    largest = max(abs(a[0]), abs(a[1])) if op == "truncdiv" else b[1] - 1
    return (0 if a[0] >= 0 else -largest), (0 if a[1] <= 0 else largest)


def _remainder(a: Range, b: Range) -> Range:
    if b[0] <= 0:
        return OPEN
    if b[0] == b[1] and same_multiple(*a, int(b[0])):
        return a[0] % b[0], a[1] % b[0]
    if a[0] >= 0 and a[1] < b[0]:
        return a
    return 0, min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1
