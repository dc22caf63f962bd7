"""Steps: arithmetic, comparisons, choices, bits and conversions, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.fuzz.grow import (
    BF16,
    BOOL,
    F8,
    F32,
    F64,
    FLOATS,
    INTEGERS,
    SMALL,
    Pool,
    Shape,
    Step,
    Tensor,
    code,
    is_float,
    is_number,
)

# Operator: attributes, and what bounds its results (None: the operand's own bound).
_UNARY: dict[str, tuple[dict[str, float], float | None]] = {
    "Relu": ({}, None), "Sigmoid": ({}, 1), "Tanh": ({}, 1), "LeakyRelu": ({"alpha": 0.25}, None),
    "Elu": ({}, None), "Abs": ({}, None), "Neg": ({}, None), "HardSwish": ({}, None), "HardSigmoid": ({}, 1),
    "Erf": ({}, 1), "Softsign": ({}, 1), "Identity": ({}, None), "Sin": ({}, 1), "Cos": ({}, 1),
    "Atan": ({}, 2), "Asinh": ({}, None), "Celu": ({"alpha": 0.75}, None), "Gelu": ({}, None),
    "ThresholdedRelu": ({"alpha": 0.5}, None), "Mish": ({}, None), "Floor": ({}, None), "Ceil": ({}, None),
    "Round": ({}, None), "Sign": ({}, 1), "Shrink": ({"lambd": 0.5}, None), "Swish": ({"alpha": 0.5}, None),
}  # fmt: skip
_IN_F32 = ("Erf", "Gelu", "HardSwish", "Shrink")
"""Of f64 too, by oracles, or with constants that are an f32."""
_INTEGER_UNARY = ("Abs", "Neg", "Sign", "Identity", "Relu")
# Operator: what its operand is clipped to, and what bounds its results.
_BOUNDED = {
    "Exp": (3.0, 21.0), "Sinh": (3.0, 11.0), "Cosh": (3.0, 11.0), "Tan": (1.0, 1.6), "Asin": (0.9, 1.2),
    "Acos": (0.9, 3.2), "Atanh": (0.9, 1.5), "Softplus": (20.0, 21.0), "Selu": (20.0, 36.0),
}  # fmt: skip
_OF_POSITIVE: dict[str, Callable[[float], float]] = {
    "Sqrt": lambda x: math.sqrt(x),
    "Log": lambda x: max(0.7, math.log(x)),
    "Reciprocal": lambda _: 2.0,
}
_MOST = {2: 1e3, 4: 1e6, 8: 1e6}
"""Magnitudes of floats, by their bytes, beyond which operands are clipped."""


def limited(g: Pool, x: Tensor) -> Tensor:
    """A value whose products do not overflow."""
    return g.within(x, _MOST[x.dtype.itemsize]) if is_float(x) else x


def unary(g: Pool) -> None:
    x = g.find(is_number)
    if x is None:
        return
    op = g.pick(*(_UNARY if is_float(x) else _INTEGER_UNARY))
    if g.takes(op, x.dtype) and not (x.dtype == F64 and op in _IN_F32):
        attrs, limit = _UNARY[op]
        g.add(op, [x], x.shape, x, limit=x.limit if limit is None else limit, **attrs)


def bounded(g: Pool) -> None:
    """Operators that need a restricted range get it."""
    x = g.find(is_float)
    if x is None:
        return
    op = g.pick(*_BOUNDED, *_OF_POSITIVE, "Acosh")
    if not g.takes(op, x.dtype):
        return
    if op in _BOUNDED:
        most, limit = _BOUNDED[op]
        g.add(op, [g.within(x, most)], x.shape, x, limit=limit)
    elif op == "Acosh":
        g.add(op, [g.positive(x, 1.5)], x.shape, x)
    else:
        y = g.positive(x)
        g.add(op, [y], x.shape, x, limit=_OF_POSITIVE[op](y.limit))


def operand(g: Pool, x: Tensor, scale: float = 1.0) -> tuple[str, float]:
    """Another value of the shape and type, or a constant that broadcasts to it; and what bounds it."""
    other = g.find(
        lambda one: one.dtype == x.dtype and (one.shape == x.shape or _fits(one.shape, x.shape, g.first))
    )
    if other is not None and g.chance(0.6):
        return limited(g, other).name, min(other.limit, _MOST.get(x.dtype.itemsize, 1e9))
    kept = x.shape[g.integer(g.first, x.rank) :] if x.rank >= g.first else ()
    return g.weights(x.dtype, *(n if g.chance(0.7) else 1 for n in kept), scale=scale), max(scale, 16)


def _fits(shape: Shape, whole: Shape, first: int) -> bool:
    """Whether a shape broadcasts to another one; a batch stays a batch."""
    if len(shape) > len(whole) or (first and len(shape) != len(whole)):
        return False
    tail = whole[len(whole) - len(shape) :]
    return all(n in (1, m) for n, m in zip(shape, tail, strict=True))


def binary(g: Pool) -> None:
    x = g.find(is_number)
    if x is None:
        return
    op = g.pick("Add", "Sub", "Mul", "Max", "Min", *(("Sum", "Mean") if is_float(x) else ()))
    if not g.takes(op, x.dtype):
        return
    x = limited(g, x)
    name, limit = operand(g, x)
    operands = [x.name, name]
    if g.chance(0.3):
        operands.reverse()
    if op in ("Max", "Min", "Sum", "Mean") and g.chance(0.3):
        operands.append(operand(g, x)[0])
    most = x.limit * limit if op == "Mul" else x.limit + 2 * max(limit, _MOST.get(x.dtype.itemsize, 1) * 0)
    g.add(op, operands, x.shape, x, limit=most)


def divide(g: Pool) -> None:
    """Divisors are kept away from 0; remainders have both signs."""
    x = g.find(is_number)
    if x is None or not g.takes("Div", x.dtype):
        return
    if is_float(x):
        other = g.find(lambda one: one.dtype == x.dtype and one.shape == x.shape)
        divisor = g.positive(other).name if other is not None else g.constant(np.asarray(1.5).astype(x.dtype))
        g.add("Div", [x, divisor], x.shape, x, limit=2 * x.limit)
        return
    shape = x.shape[g.integer(g.first, x.rank) :]
    signs = (1,) if x.dtype.name.startswith("u") else (1, -1)
    values = g.rng.integers(2, 8, shape) * g.rng.choice(signs, shape)
    op = g.pick("Div", "Mod", "Mod") if g.takes("Mod", x.dtype) else "Div"
    attrs = {"fmod": g.pick(0, 0, 0, 1)} if op == "Mod" else {}
    g.add(op, [x, g.constant(np.asarray(values).astype(x.dtype))], x.shape, x, **attrs)


def power(g: Pool) -> None:
    x = g.find(lambda one: one.dtype in (F32, F64) or one.dtype.name in ("int32", "int64"))
    if x is None or not g.since(13):
        return
    if is_float(x):
        exponent = g.pick(0.5, 1.3, 2.0, 3.0, -1.0)
        base = g.positive(g.within(x, 8.0))
        g.add("Pow", [base, g.constant(np.asarray(exponent, x.dtype))], x.shape, x, limit=700.0)
    else:
        y = g.within(x, 8) if g.takes("Clip", x.dtype) else None
        if y is not None:
            g.add("Pow", [y, g.constant(np.asarray(g.integer(0, 3), x.dtype))], x.shape, x, limit=512.0)


def compare(g: Pool) -> None:
    x = g.find(lambda one: is_number(one) or one.dtype == BOOL)
    if x is None:
        return
    op = g.pick("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
    if g.takes(op, x.dtype) and (not op.endswith("OrEqual") or g.since(16)):
        g.add(op, [x, operand(g, x)[0]], x.shape, x, dtype=BOOL, limit=1)


def logic(g: Pool) -> None:
    x = g.find(lambda one: one.dtype == BOOL)
    if x is None:
        return
    op = g.pick("Not", "And", "Or", "Xor")
    g.add(op, [x] if op == "Not" else [x, operand(g, x)[0]], x.shape, x)


def _truth(g: Pool, x: Tensor) -> str:
    """Truth values that broadcast to a shape."""
    found = g.find(lambda one: one.dtype == BOOL and _fits(one.shape, x.shape, g.first))
    if found is not None:
        return found.name
    if is_number(x) and g.takes("Greater", x.dtype):
        return g.add("Greater", [x, operand(g, x)[0]], x.shape, x, dtype=BOOL, limit=1).name
    return g.weights(BOOL, *x.shape[g.first :])


def choice(g: Pool) -> None:
    x = g.find(lambda one: g.takes("Where", one.dtype, 1))
    if x is not None:
        name, limit = operand(g, x)
        pair = [x.name, name] if g.chance(0.5) else [name, x.name]
        g.add("Where", [_truth(g, x), *pair], x.shape, x, limit=max(x.limit, limit))


def clip(g: Pool) -> None:
    x = g.find(lambda one: is_number(one) and g.takes("Clip", one.dtype))
    if x is None:
        return
    ends = g.pick((0, 6), (1, 3), (0, None), (None, 1), (-1, 1))
    if x.dtype.name.startswith("u"):
        ends = tuple(None if end is None else abs(end) for end in ends)
    names = ["" if end is None else g.constant(np.asarray(end).astype(x.dtype)) for end in ends]
    g.add("Clip", [x, *names], x.shape, x)


def bits(g: Pool) -> None:
    x = g.find(lambda one: one.dtype in INTEGERS)
    if x is None:
        return
    if x.dtype.name.startswith("u") and g.chance(0.5):
        by = g.constant(g.rng.integers(0, 5, x.shape[g.integer(g.first, x.rank) :]).astype(x.dtype))
        g.add("BitShift", [x, by], x.shape, x, limit=2.0**63, direction=g.pick("LEFT", "RIGHT"))
    elif g.since(18):
        op = g.pick("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot")
        g.add(op, [x] if op == "BitwiseNot" else [x, operand(g, x)[0]], x.shape, x, limit=2.0**63)


def cast(g: Pool) -> None:
    """To any type; floats are brought into the range of integers first."""
    x = g.find()
    if x is None:
        return
    likely = (*g.profile.types, *FLOATS, *INTEGERS, BOOL, F32, F32)
    to = g.pick(*likely, *(SMALL if any(kind in SMALL for kind in g.profile.types) else ()))
    if x.dtype in SMALL and to not in FLOATS:
        to = F32
    _cast(g, x, to)


def back_to_floats(g: Pool) -> None:
    """Values of other types come back, so that graphs go on."""
    x = g.find(lambda one: not is_float(one))
    if x is not None:
        _cast(g, x, g.pick(*(kind for kind in g.profile.types if kind in FLOATS), F32))


def _cast(g: Pool, x: Tensor, to: np.dtype) -> None:
    if to == x.dtype or not (g.takes("Cast", x.dtype) and _is_made(g, to)):
        return
    if is_float(x) and to not in FLOATS and to != BOOL:
        x = _ranged(g, x, to)
    if to.itemsize == 2 and to in FLOATS and x.dtype in INTEGERS and x.limit > 1e3:
        return
    limit = x.limit if to in FLOATS else float(min(x.limit, 448.0 if to in F8 else 2.0 ** (8 * to.itemsize)))
    g.add("Cast", [x], x.shape, x, dtype=to, limit=1 if to == BOOL else limit, to=code(to))


def _is_made(g: Pool, to: np.dtype) -> bool:
    """Whether Cast makes a type in this opset: it takes what it makes."""
    return g.takes("Cast", to)


def _ranged(g: Pool, x: Tensor, to: np.dtype) -> Tensor:
    """Floats that an integer type can hold, or an f8."""
    if to in F8:
        return g.within(x, 200.0)
    unsigned = to.name.startswith("u")
    x = g.within(x, {"int4": 7.0, "uint4": 15.0}.get(to.name, 100.0))
    if unsigned:
        x = g.add("Abs", [x], x.shape, x)
    return g.add("Floor", [x], x.shape, x) if to.name in ("int4", "uint4") and x.dtype != BF16 else x


def special(g: Pool) -> None:
    """Infinities and NaN among ordinary numbers, found again."""
    x = g.find(lambda one: one.dtype in (F32, F64) and one.rank > g.first)
    if x is None or not g.since(13):
        return
    op = g.pick("IsNaN", "IsInf")
    row = np.where(g.rng.random(x.shape[-1]) < 0.2, g.pick(np.nan, np.inf, -np.inf), 0.0).astype(x.dtype)
    y = g.add("Add", [x, g.constant(row)], x.shape, x)
    g.values.pop()  # for no other operator
    g.add(op, [y], x.shape, x, dtype=BOOL, limit=1)


STEPS: tuple[Step, ...] = (
    unary, unary, bounded, binary, binary, binary, divide, divide, power, compare, logic, choice, clip, bits,
    cast, cast, cast, back_to_floats, special,
)  # fmt: skip
