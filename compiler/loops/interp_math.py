"""Math functions of the interpreter: computed in f64, rounded to the type of the result."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.core.types import DType
from compiler.loops.interp_values import COMPUTE, STORAGE, wrapper

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


def _fma(a: Any, b: Any, c: Any) -> Any:
    """Exact for f32: the product of two f32 fits into f64; the sum is then rounded twice at worst."""
    return a * b + c


def _softplus(x: Any) -> Any:
    return np.logaddexp(0.0, x)


FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "pow": np.power, "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / x, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh,
    "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": _erf, "erfc": _erfc, "exp_nonpositive": np.exp,
    "sigmoid": _sigmoid, "softplus": _softplus, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "abs": np.abs, "sign": np.sign, "fma": _fma, "fmod": np.fmod,
    "copysign": np.copysign, "hypot": np.hypot, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
"""Functions of floats with a result of the same type; `round` rounds halves to even."""

TESTS: dict[str, Callable[[Any], Any]] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
"""Functions of floats that answer bool."""

INT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs, "sign": np.sign, "min": np.minimum, "max": np.maximum, "fma": _fma,
    "floor": lambda x: x, "ceil": lambda x: x, "round": lambda x: x, "trunc": lambda x: x,
    "pow": lambda a, b: a**b,
}  # fmt: skip
"""Functions of integers with a result of the same type, wrapped."""


def _float_function(fn: Callable[..., Any], target: DType) -> Callable[..., Any]:
    compute = COMPUTE[target.name]

    def apply(*args: Any) -> Any:
        wide = [np.asarray(item, np.float64) for item in args]
        result = np.asarray(fn(*wide), np.float64)
        return result.astype(compute) if result.ndim else compute(result)

    return apply


def _int_function(fn: Callable[..., Any], target: DType) -> Callable[..., Any]:
    wrap, compute = wrapper(target.scalar), COMPUTE[target.name]

    def apply(*args: Any) -> Any:
        if not any(isinstance(item, np.ndarray) for item in args):
            return wrap(int(fn(*(int(item) for item in args))))
        return np.asarray(fn(*args)).astype(compute)

    return apply


def _bitcast(source: DType, target: DType) -> Callable[[Any], Any]:
    def apply(value: Any) -> Any:
        raw = np.atleast_1d(np.asarray(value)).astype(STORAGE[source.name]).view(STORAGE[target.name])
        wide = raw.astype(COMPUTE[target.name])
        if target.lanes > 1:
            return wide
        return wide[0] if target.is_float else wide[0].item()

    return apply


@functools.cache
def function(name: str, sources: tuple[DType, ...], target: DType) -> Callable[..., Any] | None:
    """The function called `name` for these argument types, or None when there is no such function."""
    first = sources[0] if sources else target
    if name == "bitcast" and len(sources) == 1:
        return _bitcast(first, target)
    if name in TESTS and first.is_float:
        test = TESTS[name]
        return lambda value: test(value) if isinstance(value, np.ndarray) else bool(test(value))
    if first.is_float and name in FLOAT_FUNCTIONS:
        return _float_function(FLOAT_FUNCTIONS[name], target)
    if first.is_int and name in INT_FUNCTIONS:
        return _int_function(INT_FUNCTIONS[name], target)
    return None


def larger(a: Any, b: Any) -> Any:
    """Maximum of two scalars; NaN when one is NaN."""
    return a if a > b or a != a else b


def smaller(a: Any, b: Any) -> Any:
    """Minimum of two scalars; NaN when one is NaN."""
    return a if a < b or a != a else b


REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": smaller,
    "max": larger,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
}


def reduce_lanes(op: str, dtype: DType) -> Callable[[Any], Any]:
    """Combine all lanes, first to last, into a scalar of the type."""
    wrap = wrapper(dtype.scalar) if dtype.is_int else None

    def apply(vector: Any) -> Any:
        items = list(vector) if dtype.is_float else vector.tolist()
        result = functools.reduce(REDUCERS[op], items)
        return wrap(result) if wrap is not None else result

    return apply
