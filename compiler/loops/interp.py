"""The slow interpreter that defines what a loop program means, at every stage.

>>> interpret(func, {"x": x, "w": w})["y"]

What it fixes:

- Narrow floats (f16, bf16, f8) are computed with in f32; a store or a cast rounds to nearest even. Other
  types compute in themselves; integers wrap in two's complement. `min` and `max` of floats give NaN when
  one is NaN.
- `and`, `or` and scalar `select` evaluate only what they need; lanes that a vector `select` or a mask
  leaves out are not accessed.
- Memory starts poisoned: NaN for floats, bytes 0xA5 for integers. Outputs, too.
- Every access is checked against the shape of its buffer, each dimension by itself.
- A block runs where its predicate holds; its iteration variables must then lie in their domains; `init` runs
  when all reduce iterations are 0.
- Parallel and block-bound iterations run in order, or in a random order when asked. Threads bound to
  `threadIdx.*` run in lock-step from barrier to barrier; one `shared` allocation belongs to all of them.
- Asynchronous copies arrive at the wait; until then their target is poison.
- The memory of an alias is that of the named buffer, from its first byte on; `offset` counts elements of
  the alias.
- Intrinsics mean what `loops/intrinsics.py` says.

The function is compiled to Python text once (cached by structure) and run from there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from compiler.core.diagnostics import BadInputError, did_you_mean
from compiler.loops import ir
from compiler.loops.interp_emit import FILE, Code, compile_func, location_of
from compiler.loops.interp_races import Monitor
from compiler.loops.interp_values import PACKED, STORAGE, Array, ProgramError, View, allocate
from compiler.loops.ir import Buffer, Expr, Func

__all__ = ["ProgramError", "interpret"]


def interpret(
    func: Func,
    inputs: Mapping[str, Any],
    *,
    shuffle: int | None = None,
    subgroup: int = 32,
    races: bool = False,
) -> dict[str, Array]:
    """Run a function and return its outputs by name.

    inputs: an array per input buffer (of its type; its shape, or any shape of the same size for a flat
    buffer), a number per `dim` that no input's shape tells; the name of an output or of workspace gives its
    first content (counters of blocks have zeros). i4
    and u4 are taken and returned as int8 and uint8.
    shuffle: a seed: parallel iterations run in a random order, which shows races that depend on it.
    races: watch memory, and refuse parallel iterations that touch what another one writes (slower).
    subgroup: lanes of a sub-group.
    Raises ProgramError for what no program may do, BadInputError for wrong inputs.
    """
    dims = _bind_dims(func, inputs)
    views = {item.name: _parameter(func, item, inputs, dims) for item in func.params}
    code = _compiled(func, races=races)
    monitor = Monitor() if races else None
    if monitor is not None:
        views = {name: monitor.watch(view) for name, view in views.items()}
    order = range if shuffle is None else _random_order(shuffle)
    with np.errstate(all="ignore"):
        _enter(func, code, (views, dims, order, subgroup, monitor))
    for item in func.counters:
        if np.any(views[item.name].array()):
            raise ProgramError(f"the counters `{item.name}` of function `{func.name}` are not left at zero")
    return {item.name: views[item.name].array() for item in func.results}


def _compiled(func: Func, *, races: bool) -> Code:
    try:
        return compile_func(func, races=races)
    except RecursionError:
        raise ProgramError(f"function `{func.name}` is nested too deeply to be interpreted") from None


def _random_order(seed: int) -> Callable[[int], Sequence[int]]:
    source = random.Random(seed)  # noqa: S311 - an order of loops

    def order(count: int) -> Sequence[int]:
        return source.sample(range(count), count)

    return order


def _enter(func: Func, code: Code, args: tuple[Any, ...]) -> None:
    try:
        code.entry(*args)
    except ZeroDivisionError as error:
        raise ProgramError("an integer is divided by zero", where=_where(func, code, error)) from None
    except ProgramError as error:
        error.where = error.where or _where(func, code, error)
        raise


def _where(func: Func, code: Code, error: BaseException) -> str:
    """The statement that ran when the error was raised."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            found = trace.tb_lineno
        trace = trace.tb_next
    return location_of(func, code.lines.get(found) if found is not None else None)


# ---------------------------------------------------------------- parameters


def _bind_dims(func: Func, inputs: Mapping[str, Any]) -> dict[str, int]:
    known = {item.name for item in func.params} | {item.var.name for item in func.dims}
    for name in inputs:
        if name not in known:
            raise BadInputError(
                f"function `{func.name}` has no input `{name}`", hint=did_you_mean(name, sorted(known))
            )
    values: dict[str, int] = {}
    for dim in func.dims:
        value = inputs.get(dim.var.name)
        if value is None:
            value = _dim_from_shapes(func, dim.var, inputs)
        value = int(value)
        if not dim.minimum <= value <= dim.maximum or value % dim.divisor:
            raise BadInputError(
                f"{dim.var.name} cannot be {value}",
                why=f"it lies in {dim.minimum}..{dim.maximum} and is a multiple of {dim.divisor}",
            )
        values[dim.var.name] = value
    return values


def _dim_from_shapes(func: Func, var: ir.Var, inputs: Mapping[str, Any]) -> int:
    for item in func.params:
        if item.name in inputs and var in item.shape:
            shape = np.shape(inputs[item.name])
            if len(shape) == len(item.shape):
                return int(shape[item.shape.index(var)])
    raise BadInputError(f"the value of `{var.name}` is not known", hint=f"give a number for {var.name}")


def _parameter(func: Func, buffer: Buffer, inputs: Mapping[str, Any], dims: Mapping[str, int]) -> View:
    shape = tuple(_value(item, dims) for item in buffer.shape)
    strides = tuple(_value(item, dims) for item in buffer.strides) if buffer.strides else None
    offset = 0 if buffer.offset is None else _value(buffer.offset, dims)
    view = allocate(buffer, shape, strides, offset)
    if buffer.name in inputs:
        view.fill(_checked_array(buffer, shape, inputs[buffer.name]))
    elif buffer in func.counters:
        view.fill(np.zeros(shape, STORAGE[buffer.dtype.name]))
    elif buffer not in (*func.results, *func.workspace):
        raise BadInputError(f"input `{buffer.name}` of function `{func.name}` is missing")
    return view


def _value(expr: Expr, dims: Mapping[str, int]) -> int:
    if isinstance(expr, ir.Const):
        return int(expr.value)
    if isinstance(expr, ir.Var) and expr.name in dims:
        return dims[expr.name]
    if isinstance(expr, ir.Binary):
        fold = ir.binary(expr.op, ir.const(_value(expr.a, dims)), ir.const(_value(expr.b, dims)))
        if isinstance(fold, ir.Const):
            return int(fold.value)
    raise ProgramError("the extent of a parameter is not a sum or product of dims and numbers")


def _checked_array(buffer: Buffer, shape: tuple[int, ...], given: Any) -> Array:
    array = np.asarray(given)
    kind = buffer.dtype
    whole = shape if kind.lanes == 1 else (*shape, kind.lanes)
    if array.shape != whole and (array.size != int(np.prod(whole)) or len(shape) > 1):
        raise BadInputError(
            f"input `{buffer.name}` has the wrong shape", why=f"{array.shape} was given, {whole} is needed"
        )
    expected = np.dtype(STORAGE[kind.name])
    if kind.name not in PACKED and array.dtype != expected:
        raise BadInputError(
            f"input `{buffer.name}` has the wrong type", why=f"{array.dtype} was given, {kind} is needed"
        )
    return array.reshape(whole)
