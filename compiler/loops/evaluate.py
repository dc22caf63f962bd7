"""Compute a Func whole block by whole block with numpy: fast enough for the weights of a network.

The interpreter defines what a Func means; this gives the same for Funcs as forms write them (one store per
block, loops straight from the builder), with floats in f64 all the way and rounded once at the outputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from compiler.core.diagnostics import InternalError
from compiler.core.node import IRNode
from compiler.loops.interp_math import FLOAT_FUNCTIONS
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Binary, Block, Call, Cast, Const, Expr, Func, Load, Select, Store, Unary, Var
from compiler.loops.queries import extent_of, static_shape

Array = np.ndarray[Any, Any]

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "pow": np.power, "floordiv": np.floor_divide, "floormod": np.mod,
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
    "ne": np.not_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


def evaluate_func(func: Func, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of `func` for its inputs; raises InternalError for what is no plain form."""
    held: dict[str, Array] = {}
    for buffer, array in zip(func.inputs, inputs, strict=True):
        held[buffer.name] = array.astype(np.float64) if buffer.dtype.is_float else array
    for buffer in (*func.results, *func.allocs):
        kind = np.float64 if buffer.dtype.is_float else STORAGE[buffer.dtype.name]
        held[buffer.name] = np.zeros(static_shape(buffer), kind)
    for block in func.blocks():
        _Evaluation(block, held).run()
    return tuple(held[item.name].astype(STORAGE[item.dtype.name]) for item in func.results)


class _Evaluation:
    """One block; spatial iterations are axes of arrays, reductions run one after the other."""

    def __init__(self, block: Block, held: dict[str, Array]) -> None:
        if not isinstance(block.body, Store) or block.predicate is not None:
            raise InternalError("only blocks of one store can be computed at compile time", where=block.name)
        self.block, self.store, self.held = block, block.body, held
        spatial = [item for item in block.iters if item.kind == "spatial"]
        self.axes = {item.var.name: axis for axis, item in enumerate(spatial)}
        self.shape = tuple(extent_of(item.extent) for item in spatial)
        self.fixed: dict[str, int] = {}

    def run(self) -> None:
        if isinstance(self.block.init, Store):
            self.write(self.block.init)
        reduce = [item for item in self.block.iters if item.kind == "reduce"]
        for point in itertools.product(*(range(extent_of(item.extent)) for item in reduce)):
            self.fixed = {item.var.name: value for item, value in zip(reduce, point, strict=True)}
            self.write(self.store)

    def write(self, store: Store) -> None:
        value = np.broadcast_to(self(store.value), self.shape)
        target = self.held[store.buffer.name]
        axes = self._axes(store.indices)
        if axes is not None and sorted(axes) == list(range(len(self.shape))):
            target[self._box(store.indices)] = value.transpose(axes)
        else:
            target[tuple(np.broadcast_to(self(item), self.shape) for item in store.indices)] = value

    def _axes(self, indices: tuple[Expr, ...]) -> list[int] | None:
        """The axes that indices run over, each once, where the others are numbers; None for other indices."""
        axes = [self.axes[i.name] for i in indices if isinstance(i, Var) and i.name in self.axes]
        numbers = sum(isinstance(i, Const) or (isinstance(i, Var) and i.name in self.fixed) for i in indices)
        return axes if len(axes) + numbers == len(indices) and len(set(axes)) == len(axes) else None

    def _box(self, indices: tuple[Expr, ...]) -> tuple[slice | int, ...]:
        """The basic index for indices that `_axes` knows."""
        return tuple(
            slice(0, self.shape[self.axes[item.name]])
            if isinstance(item, Var) and item.name in self.axes
            else int(self(item))
            for item in indices
        )

    # ------------------------------------------------------------ expressions

    def __call__(self, expr: Expr) -> Any:
        rule = self._RULES.get(type(expr))
        if rule is None:
            raise InternalError(f"{type(expr).__name__} cannot be computed at compile time")
        return rule(self, expr)

    def _load(self, expr: Load) -> Any:
        array = self.held[expr.buffer.name]
        axes = self._axes(expr.indices)
        if axes is None:
            return array[tuple(self(item) for item in expr.indices)]
        order = sorted(range(len(axes)), key=axes.__getitem__)
        spread = [slice(None) if axis in axes else None for axis in range(len(self.shape))]
        return array[self._box(expr.indices)].transpose(order)[tuple(spread)]

    def _var(self, expr: Var) -> Any:
        if expr.name in self.fixed:
            return self.fixed[expr.name]
        axis = self.axes[expr.name]
        return np.arange(self.shape[axis]).reshape([-1 if n == axis else 1 for n in range(len(self.shape))])

    def _const(self, expr: Const) -> Any:
        return expr.value

    def _binary(self, expr: Binary) -> Any:
        a, b = self(expr.a), self(expr.b)
        if expr.op == "div" and expr.a.dtype.is_float:
            return np.true_divide(a, b)
        if expr.op not in _BINARY:
            raise InternalError(f"{expr.op} cannot be computed at compile time")
        return _BINARY[expr.op](a, b)

    def _unary(self, expr: Unary) -> Any:
        value = self(expr.a)
        return np.negative(value) if expr.op == "neg" else np.invert(value)

    def _select(self, expr: Select) -> Any:
        cond = np.asarray(self(expr.cond))
        if cond.all() or not cond.any():
            return self(expr.a if cond.all() else expr.b)
        return np.where(cond, self(expr.a), self(expr.b))

    def _cast(self, expr: Cast) -> Any:
        value = np.asarray(self(expr.value))
        return value.astype(np.float64 if expr.type.is_float else STORAGE[expr.type.name])

    def _call(self, expr: Call) -> Any:
        if expr.name not in FLOAT_FUNCTIONS:
            raise InternalError(f"{expr.name} cannot be computed at compile time")
        return np.asarray(FLOAT_FUNCTIONS[expr.name](*(self(item) for item in expr.args)), np.float64)

    _RULES: ClassVar[Mapping[type[IRNode], Callable[..., Any]]] = {
        Load: _load,
        Var: _var,
        Const: _const,
        Binary: _binary,
        Unary: _unary,
        Select: _select,
        Cast: _cast,
        Call: _call,
    }
