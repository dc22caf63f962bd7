"""The arithmetic behind `simplify`: intervals, canonical sums, division with bounds, conditions.

An integer expression is kept as a sum of `coefficient * atom` plus a constant. Atoms are what a sum cannot
take apart: variables, loads, divisions, remainders, minima. Two expressions that are the same sum simplify
to the same text, whatever order they were written in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd, inf
from typing import ClassVar, TypeAlias

from compiler.core.types import BOOL, INDEX
from compiler.loops.ir import (
    COMPARISONS,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    Var,
    const,
)
from compiler.loops.linear import (
    OPEN,
    Linear,
    Range,
    by_sign,
    combine_ranges,
    common_factors,
    conjuncts,
    constant_sum,
    divisor,
    is_division,
    operands,
    same_multiple,
    single,
    split_exact,
    split_multiples,
    text_key,
)

Bounds: TypeAlias = Mapping[str, tuple[int, int]]
"""Variable name -> smallest and largest value, both included."""

Interval: TypeAlias = tuple[int | None, int | None]
"""Smallest and largest value; None where nothing is known."""

_INT_RANGE: dict[str, Range] = {
    **{f"i{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (4, 8, 16, 32)},
    **{f"u{bits}": (0, 2**bits - 1) for bits in (4, 8, 16, 32)},
    "bool": (0, 1),
}
_TRUE, _FALSE = const(1, BOOL), const(0, BOOL)
_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}


class Simplifier:
    """Simplification under fixed bounds; keeps its results, so use one for many expressions.

    `bounds` may grow by `bind` as long as each variable has one meaning.
    """

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds: dict[str, tuple[int, int]] = dict(bounds or {})
        self._simple: dict[Expr, Expr] = {}
        self._linear: dict[Expr, Linear] = {}
        self._ranges: dict[Expr, Range] = {}
        self._narrowed: dict[tuple[Expr, int], Simplifier] = {}

    def bind(self, name: str, low: int, high: int) -> Simplifier:
        """This simplifier with one more variable; another one when `name` was known with other bounds."""
        known = self._bounds.get(name)
        if known == (low, high):
            return self
        if known is not None or Var(name) in self._simple or Var(name) in self._linear:
            return Simplifier({**self._bounds, name: (low, high)})
        self._bounds[name] = (low, high)
        return self

    def where(self, cond: Expr) -> Simplifier:
        """What is known where a condition holds: variables that it compares with numbers have less room."""
        key = (cond, len(self._bounds))
        done = self._narrowed.get(key)
        if done is None:
            done = self._narrowed[key] = self._where(cond)
        return done

    def _where(self, cond: Expr) -> Simplifier:
        bounds = dict(self._bounds)
        for part in conjuncts(self.simplify(cond)):
            if not (isinstance(part, Binary) and isinstance(part.a, Var) and isinstance(part.b, Const)):
                continue
            low, high = bounds.get(part.a.name, OPEN)
            if part.op == "lt":
                high = min(high, part.b.value - 1)
            if part.op == "ge":
                low = max(low, part.b.value)
            if -inf < low <= high < inf:  # else nothing is known, or the branch is never taken
                bounds[part.a.name] = (int(low), int(high))
        return self if bounds == self._bounds else Simplifier(bounds)

    # ------------------------------------------------------------ public questions

    def simplify(self, expr: Expr) -> Expr:
        """The canonical form of an expression of any type."""
        done = self._simple.get(expr)
        if done is None:
            done = self._simplified(expr)
            self._simple[expr] = done
            self._simple.setdefault(done, done)
        return done

    def interval(self, expr: Expr) -> Interval:
        """Bounds of an integer expression."""
        low, high = self.range(self.linear(expr)) if expr.dtype == INDEX else self._range_of(expr)
        return (None if low == -inf else int(low), None if high == inf else int(high))

    def prove(self, cond: Expr) -> bool | None:
        """Whether a condition always or never holds; None when it depends, or nothing is known."""
        known = self.simplify(cond)
        return bool(known.value) if isinstance(known, Const) else None

    def linear(self, expr: Expr) -> Linear:
        """The sum that an index expression is."""
        done = self._linear.get(expr)
        if done is None:
            done = self._linear_of(expr)
            self._linear[expr] = done
        return done

    # ------------------------------------------------------------ intervals

    def range(self, value: Linear) -> Range:
        """Bounds of a sum, with -inf and inf where nothing is known."""
        low: float = value.constant
        high: float = value.constant
        for atom, coefficient in value.terms.items():
            a, b = self._range_of(atom)
            if coefficient < 0:
                a, b = b, a
            low += coefficient * a
            high += coefficient * b
        return low, high

    def _range_of(self, atom: Expr) -> Range:
        done = self._ranges.get(atom)
        if done is None:
            done = self._atom_range(atom)
            self._ranges[atom] = done
        return done

    def _atom_range(self, atom: Expr) -> Range:
        if isinstance(atom, Var):
            return self._bounds.get(atom.name, _INT_RANGE.get(atom.type.name, OPEN))
        if isinstance(atom, Const):
            return (atom.value, atom.value)
        if isinstance(atom, Cast) and not atom.value.dtype.is_float:
            low, high = self._any_range(atom.value)
            kept_low, kept_high = _INT_RANGE.get(atom.type.name, OPEN)
            return (low, high) if kept_low <= low and high <= kept_high else (kept_low, kept_high)
        if isinstance(atom, Select):
            (a, b), (c, d) = self._any_range(atom.a), self._any_range(atom.b)
            return min(a, c), max(b, d)
        if isinstance(atom, Binary) and atom.dtype == INDEX:
            return combine_ranges(atom.op, self._any_range(atom.a), self._any_range(atom.b))
        return _INT_RANGE.get(atom.dtype.name, OPEN)

    def _any_range(self, expr: Expr) -> Range:
        return self.range(self.linear(expr)) if expr.dtype == INDEX else self._range_of(expr)

    # ------------------------------------------------------------ sums

    def _linear_of(self, expr: Expr) -> Linear:
        if isinstance(expr, Const):
            return constant_sum(expr.value)
        if isinstance(expr, Var):
            expr = self._variable(expr)
            return constant_sum(expr.value) if isinstance(expr, Const) else single(expr)
        if isinstance(expr, Unary) and expr.op == "neg":
            return self.linear(expr.a).times(-1)
        if isinstance(expr, Binary):
            rule = self._SUMS.get(expr.op)
            if rule is not None:
                return rule(self, expr.op, self.linear(expr.a), self.linear(expr.b))
        if isinstance(expr, Select):
            cond = self.simplify(expr.cond)
            if isinstance(cond, Const):
                return self.linear(expr.a if cond.value else expr.b)
            a, b = self.simplify(expr.a), self.simplify(expr.b)
            return self.linear(a) if a == b else single(Select(cond, a, b))
        return single(self._children(expr))

    def _add(self, op: str, a: Linear, b: Linear) -> Linear:
        return self._recombine(a.plus(b, 1 if op == "add" else -1))

    def _multiply(self, _op: str, a: Linear, b: Linear) -> Linear:
        if not b.terms:
            return a.times(b.constant)
        if not a.terms:
            return b.times(a.constant)
        total = Linear({}, a.constant * b.constant)
        total = total.plus(Linear(dict(a.terms), 0), b.constant) if b.constant else total
        total = total.plus(Linear(dict(b.terms), 0), a.constant) if a.constant else total
        for left, c in a.terms.items():
            for right, d in b.terms.items():
                first, second = sorted((left, right), key=text_key)
                total = total.plus(single(Binary("mul", first, second)), c * d)
        return total

    def _floor(self, op: str, a: Linear, b: Linear) -> Linear:
        """Quotient or remainder, rounded down."""
        quotient = op == "floordiv"
        if not b.terms and b.constant > 0 and not self._opaque(a):
            return self.divide(a, b.constant) if quotient else self.modulo(a, b.constant)
        low, high = self.range(a)
        if low >= 0 and high < self.range(b)[0]:
            return constant_sum(0) if quotient else a
        if a == b and self.range(b)[0] > 0:
            return constant_sum(1 if quotient else 0)
        return single(Binary(op, self.emit(a), self.emit(b)))

    def _truncate(self, op: str, a: Linear, b: Linear) -> Linear:
        """Quotient or remainder, rounded to zero."""
        if self.range(a)[0] >= 0 and self.range(b)[0] > 0:
            return self._floor(op.replace("trunc", "floor"), a, b)
        return single(Binary(op, self.emit(a), self.emit(b)))

    def _extremum(self, op: str, a: Linear, b: Linear) -> Linear:
        low, high = self.range(a.plus(b, -1) if op == "min" else b.plus(a, -1))
        if high <= 0:
            return a
        if low >= 0:
            return b
        first, second = sorted(
            (self.emit(a), self.emit(b)), key=lambda e: (isinstance(e, Const), text_key(e))
        )
        return single(Binary(op, first, second))

    def _opaque(self, value: Linear) -> bool:
        """Whether a term may be so large that sums wrap around: data that was loaded or computed."""
        return any(not isinstance(atom, Var) and self._is_data(atom) for atom in value.terms)

    def _is_data(self, atom: Expr) -> bool:
        if self._range_of(atom) != OPEN or isinstance(atom, Var | Const):
            return False
        if isinstance(atom, Binary):
            return self._is_data(atom.a) or self._is_data(atom.b)
        return not isinstance(atom, Select) or self._is_data(atom.a) or self._is_data(atom.b)

    # ------------------------------------------------------------ division and remainder by a positive number

    def divide(self, a: Linear, q: int) -> Linear:
        """`floor(a / q)`."""
        quotient, rest = split_multiples(a, q)
        low, high = self.range(rest)
        if same_multiple(low, high, q):
            return quotient.plus(constant_sum(low // q))
        for g in common_factors(rest, q):
            coarse, fine = split_exact(rest, g)
            low, high = self.range(fine)
            if same_multiple(low, high, g):
                return self._recombine(
                    quotient.plus(self.divide(coarse.plus(constant_sum(low // g)), q // g))
                )
        nested = self._divide_nested(rest, q)
        if nested is None:
            nested = single(Binary("floordiv", self.emit(rest), const(q)))
        return self._recombine(quotient.plus(nested))

    def _divide_nested(self, a: Linear, q: int) -> Linear | None:
        if len(a.terms) != 1:
            return None
        ((atom, coefficient),) = a.terms.items()
        if coefficient != 1 or not isinstance(atom, Binary) or not isinstance(atom.b, Const):
            return None
        inner = int(atom.b.value)
        if atom.op == "floordiv" and inner > 0:  # (x // m + c) // q = (x + c m) // (m q)
            return self.divide(self.linear(atom.a).plus(constant_sum(a.constant * inner)), inner * q)
        if atom.op == "floormod" and a.constant == 0 and inner % q == 0:  # x % n // q = x // q % (n / q)
            return self.modulo(self.divide(self.linear(atom.a), q), inner // q)
        return None

    def modulo(self, a: Linear, q: int) -> Linear:
        """`a - q * floor(a / q)`."""
        rest = self._drop_inner_modulo(split_multiples(a, q)[1], q)
        low, high = self.range(rest)
        if same_multiple(low, high, q):
            return rest.plus(constant_sum(low // q), -q)
        for g in common_factors(rest, q):
            coarse, fine = split_exact(rest, g)
            low, high = self.range(fine)
            if same_multiple(low, high, g):
                count = low // g
                high_part = self.modulo(coarse.plus(constant_sum(count)), q // g).times(g)
                return self._recombine(high_part.plus(fine).plus(constant_sum(count), -g))
        return single(Binary("floormod", self.emit(rest), const(q)))

    def _drop_inner_modulo(self, a: Linear, q: int) -> Linear:
        """Without remainders `x % m` where m times as much is nothing modulo q, alone or with `x // m`."""
        for atom, coefficient in a.terms.items():
            if not is_division(atom, "floormod"):
                continue
            x, turns = self.linear(atom.a), coefficient * divisor(atom)
            quotient = self.divide(x, divisor(atom)) if turns % q else constant_sum(0)
            if all(t in a.terms and (a.terms[t] - turns * k) % q == 0 for t, k in quotient.terms.items()):
                wider = a.plus(single(atom), -coefficient).plus(quotient, -turns).plus(x, coefficient)
                if turns % q == 0 or quotient.terms:
                    return self._drop_inner_modulo(split_multiples(wider, q)[1], q)
        return a

    def _recombine(self, a: Linear) -> Linear:
        """Undo `x // m * m + x % m`, and join the digits of `x % (m * p)`."""
        remainders = [atom for atom in a.terms if is_division(atom, "floormod")]
        if not remainders or len(a.terms) == 1:
            return a
        for atom in remainders:
            joined = self._join(a, atom, remainders)
            if joined is not None:
                return self._recombine(joined)
        return a

    def _join(self, a: Linear, atom: Binary, remainders: list[Binary]) -> Linear | None:
        x, m, c = self.linear(atom.a), divisor(atom), a.terms[atom]
        quotient = self.divide(x, m)
        if quotient.terms and all(a.terms.get(t) == c * m * k for t, k in quotient.terms.items()):
            return a.plus(single(atom), -c).plus(quotient, -c * m).plus(x, c)
        for other in remainders:
            if a.terms[other] == c * m and self.linear(other.a) == quotient:
                joined = self.modulo(x, m * divisor(other))
                return a.plus(single(atom), -c).plus(single(other), -c * m).plus(joined, c)
        return None

    # ------------------------------------------------------------ conditions

    def _compare(self, op: str, a: Linear, b: Linear) -> Expr:
        if op in {"eq", "ne"}:
            return self._compare_equal(op, a.plus(b, -1))
        difference = a.plus(b, -1) if op in {"lt", "le"} else b.plus(a, -1)
        if op in {"le", "ge"}:
            difference = difference.plus(constant_sum(-1))
        return self._negative(difference)

    def _negative(self, d: Linear) -> Expr:
        """`d < 0`, with equal factors divided out."""
        low, high = self.range(d)
        if high < 0:
            return _TRUE
        if low >= 0:
            return _FALSE
        limit = -d.constant
        terms = Linear(d.terms, 0)
        for g in sorted({abs(c) for c in d.terms.values()}, reverse=True):
            coarse, fine = split_exact(terms, g)
            low, high = self.range(fine)
            if g > 1 and low > -inf and high < inf and -((low - limit) // g) == -((high - limit) // g):
                bound = -int((low - limit) // g)
                return self._negative(coarse.plus(constant_sum(-bound)))
        plus, minus = by_sign(d)
        if not minus.terms:
            return Binary("lt", self.emit(plus), const(limit))
        if not plus.terms:
            return Binary("ge", self.emit(minus), const(d.constant + 1))
        return Binary(
            "lt",
            self.emit(plus.plus(constant_sum(max(-limit, 0)))),
            self.emit(minus.plus(constant_sum(max(limit, 0)))),
        )

    def _compare_equal(self, op: str, d: Linear) -> Expr:
        low, high = self.range(d)
        if low > 0 or high < 0:
            return _FALSE if op == "eq" else _TRUE
        if not d.terms:
            return _TRUE if op == "eq" else _FALSE
        g = gcd(*d.terms.values())
        if d.constant % g:
            return _FALSE if op == "eq" else _TRUE
        d = Linear({atom: c // g for atom, c in d.terms.items()}, d.constant // g)
        plus, minus = by_sign(d)
        if not plus.terms or (
            minus.terms and min(map(text_key, minus.terms)) < min(map(text_key, plus.terms))
        ):
            plus, minus, d = minus, plus, d.times(-1)
        left = plus.plus(constant_sum(max(d.constant, 0) if minus.terms else 0))
        right = minus.plus(constant_sum(max(-d.constant, 0) if minus.terms else -d.constant))
        return Binary(op, self.emit(left), self.emit(right))

    def _logical(self, expr: Binary) -> Expr:
        absorbing, neutral = (_FALSE, _TRUE) if expr.op == "and" else (_TRUE, _FALSE)
        kept: dict[Expr, None] = {}
        for item in operands(expr, expr.op):
            for part in operands(self.simplify(item), expr.op):
                if part == absorbing:
                    return absorbing
                if part != neutral:
                    kept[part] = None
        result: Expr | None = None
        for part in kept:
            result = part if result is None else Binary(expr.op, result, part)
        return neutral if result is None else result

    def _negate(self, cond: Expr) -> Expr:
        if isinstance(cond, Const):
            return _FALSE if cond.value else _TRUE
        if isinstance(cond, Unary) and cond.op == "not":
            return cond.a
        if isinstance(cond, Binary) and cond.op in _NEGATED and cond.a.dtype == INDEX:
            return self._compare(_NEGATED[cond.op], self.linear(cond.a), self.linear(cond.b))
        return Unary("not", cond)

    # ------------------------------------------------------------ expressions of any type

    def _simplified(self, expr: Expr) -> Expr:
        if isinstance(expr, Var | Const):
            return self._variable(expr) if isinstance(expr, Var) and expr.type == INDEX else expr
        if expr.dtype == INDEX:
            return self.emit(self.linear(expr))
        if isinstance(expr, Binary) and expr.dtype.is_bool and expr.dtype.lanes == 1:
            return self._condition(expr)
        if isinstance(expr, Unary) and expr.op == "not" and expr.dtype.lanes == 1:
            return self._negate(self.simplify(expr.a))
        if isinstance(expr, Select):
            cond = self.simplify(expr.cond)
            if isinstance(cond, Const):
                return self.simplify(expr.a if cond.value else expr.b)
        return self._children(expr)

    def _variable(self, var: Var) -> Expr:
        low, high = self._bounds.get(var.name, OPEN)
        return const(int(low)) if low == high else var

    def _condition(self, expr: Binary) -> Expr:
        if expr.op in {"and", "or"}:
            return self._logical(expr)
        if expr.op in COMPARISONS and expr.a.dtype == INDEX:
            a, b = self.linear(expr.a), self.linear(expr.b)
            if not (self._opaque(a) or self._opaque(b)):
                return self._compare(expr.op, a, b)
        return self._children(expr)

    def _children(self, expr: Expr) -> Expr:
        return expr.map_children(lambda child: self.simplify(child) if isinstance(child, Expr) else child)

    def emit(self, value: Linear) -> Expr:
        """The expression of a sum: large coefficients first, what is subtracted last."""
        ordered = sorted(
            value.terms.items(), key=lambda item: (item[1] < 0, -abs(item[1]), text_key(item[0]))
        )
        result: Expr | None = None
        for atom, coefficient in ordered:
            size = abs(coefficient)
            term = atom if size == 1 else Binary("mul", atom, const(size))
            if result is None:
                result = term if coefficient > 0 else Binary("mul", atom, const(coefficient))
            else:
                result = Binary("add" if coefficient > 0 else "sub", result, term)
        if result is None:
            return const(value.constant)
        if value.constant == 0:
            return result
        op = "add" if value.constant > 0 else "sub"
        return Binary(op, result, const(abs(value.constant)))

    _SUMS: ClassVar[dict[str, Callable[[Simplifier, str, Linear, Linear], Linear]]] = {
        "add": _add,
        "sub": _add,
        "mul": _multiply,
        "floordiv": _floor,
        "floormod": _floor,
        "truncdiv": _truncate,
        "truncmod": _truncate,
        "min": _extremum,
        "max": _extremum,
    }
