"""Digits that meet again: sums of quotients and remainders of one number that are that number.

The rows of a product over images are numbered through: row r is image r // 784, line r // 28 % 28, place
r % 28; where images lie one behind the other in memory, r alone says the place. Once r is a sum of loops, and
what its parts have in common is out of the divisions, no rule of arithmetic finds that. So it is tried: the
sum at 0 and one step along each loop makes a linear form, which holds if it agrees everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from compiler.loops.arith import Simplifier
from compiler.loops.ir import Binary, Const, Expr, Var
from compiler.loops.linear import Linear, text_key

_MOST_VALUES = 1 << 18
"""Combinations of loops up to which all are tried."""

Array = np.ndarray[Any, Any]

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "floormod": np.mod,
}


def recombined(total: Linear, known: Simplifier) -> Linear:
    """The same sum, in the ranges of its variables, with at most one of its divisions where that is possible.

    Divisions of a loop's number itself are left as they are: threads are numbered through.
    """
    parts = total.terms.items()
    divisions = {atom: f for atom, f in parts if isinstance(atom, Binary) and not _is_digit(atom)}
    grid = _grid(divisions, known) if len(divisions) > 1 else None
    if grid is None:
        return total
    values = {atom: _values(atom, grid) for atom in divisions}
    if any(value is None for value in values.values()):
        return total
    shape = tuple(array.size for array in grid.values())
    summed = sum((factor * values[atom] for atom, factor in divisions.items()), np.zeros(shape, np.int64))
    found = _linear(summed, list(grid))
    if found is None:
        quotients = [atom for atom in divisions if atom.op == "floordiv"]
        tried = (_with_one(summed, atom, values[atom], list(grid)) for atom in quotients)
        found = next((one for one in tried if one is not None), None)
    if found is None:
        return total
    return Linear({a: f for a, f in total.terms.items() if a not in divisions}, total.constant).plus(found)


def _is_digit(expr: Expr) -> bool:
    """Whether it is the number of a loop, or a digit of that."""
    while isinstance(expr, Binary) and expr.op in ("floordiv", "floormod"):
        expr = expr.a
    return isinstance(expr, Var)


def _digits(expr: Expr) -> set[Expr]:
    """The loops, and digits of them, that it is made of."""
    if _is_digit(expr):
        return {expr}
    return _digits(expr.a) | _digits(expr.b) if isinstance(expr, Binary) else set()


def _grid(atoms: Mapping[Binary, int], known: Simplifier) -> dict[Expr, Array] | None:
    """All values of each digit along an axis of its own; None where they are too many."""
    digits = sorted(set().union(*map(_digits, atoms)), key=text_key)
    ranges = [known.interval(item) for item in digits]
    if any(low != 0 or high is None for low, high in ranges):
        return None
    counts = [int(high or 0) + 1 for _, high in ranges]
    if np.prod(counts, dtype=np.float64) > _MOST_VALUES:
        return None
    return {
        item: _along(axis, count, len(digits))
        for axis, (item, count) in enumerate(zip(digits, counts, strict=True))
    }


def _along(axis: int, count: int, rank: int) -> Array:
    return np.arange(count).reshape([-1 if n == axis else 1 for n in range(rank)])


def _values(expr: Expr, grid: Mapping[Expr, Array]) -> Any:
    """The value for all digits; None for what is no sum, quotient or remainder of them."""
    if expr in grid:
        return grid[expr]
    if isinstance(expr, Const):
        return int(expr.value)
    if not isinstance(expr, Binary) or expr.op not in _OPERATORS:
        return None
    a, b = _values(expr.a, grid), _values(expr.b, grid)
    return None if a is None or b is None else _OPERATORS[expr.op](a, b)


def _linear(values: Array, digits: list[Expr]) -> Linear | None:
    """The linear form with these values at all places, if there is one."""
    origin = int(values[(0,) * values.ndim])
    terms: dict[Expr, int] = {}
    rest = values - origin
    for axis, (item, count) in enumerate(zip(digits, values.shape, strict=True)):
        if count > 1:
            step = int(values[tuple(int(n == axis) for n in range(values.ndim))]) - origin
            terms |= {item: step} if step else {}
            rest = rest - step * _along(axis, count, values.ndim)
    return None if rest.any() else Linear(terms, origin)


def _with_one(values: Array, atom: Binary, own: Any, digits: list[Expr]) -> Linear | None:
    """The linear form that remains beside a multiple of one quotient, with it."""
    own = np.broadcast_to(own, values.shape)
    for axis in range(values.ndim):
        changes = np.argwhere(np.diff(own, axis=axis))
        if len(changes):
            break
    else:
        return None
    # where the quotient grows, the sum does what it does elsewhere along that axis, and the multiple
    at = tuple(int(n) for n in changes[0])
    after = tuple(n + (k == axis) for k, n in enumerate(at))
    usual = tuple(int(k == axis) for k in range(values.ndim))
    step = int(values[usual]) - int(values[(0,) * values.ndim])
    grown = int(own[after]) - int(own[at])
    multiple, left = divmod(int(values[after]) - int(values[at]) - step, grown)
    found = None if left or not multiple else _linear(values - multiple * own, digits)
    return None if found is None else found.plus(Linear({atom: multiple}, 0))
