"""Reductions over whole axes: ReduceSum and its kin, ArgMax, ArgMin.

Only Sum, Max, Min and Prod are computed as such; the others expand into one of these with elementwise
operators before or after, which fuse with it. Attributes: `axes` (sorted, from the front) and `keepdims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.core.types import BOOL, F64, I64, INDEX, U8, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, accumulate_type
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Build,
    Emitter,
    Expand,
    Form,
    Imported,
    Infer,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Reference,
    Sign,
    Signature,
    Types,
    UnsupportedError,
    Values,
    everywhere,
    input_size,
    normal_axes,
    normal_axis,
    rounded_once,
)
from compiler.graph.ops.at_run import over_axes
from compiler.graph.ops.elementwise import emit_scalar, narrow, widen
from compiler.loops.build import Builder, identity_of
from compiler.loops.ir import Buffer, Expr, ExprLike, Select, maximum, minimum


def reduce_block(
    b: Builder,
    name: str,
    shape: Sequence[int],
    extents: Sequence[int],
    fn: Callable[..., ExprLike],
    combiner: str,
    dtype: DType,
) -> Buffer:
    """A reduction in the accumulate type of `dtype`, rounded once at the end where that differs."""
    found = b.reduce(name, shape, extents, fn, combiner, accumulate_type(dtype))
    if found.dtype == dtype:
        return found
    return b.compute(f"{name}_round", shape, lambda *i: narrow(found[i], dtype), dtype)


def reduced_shape(shape: Sequence[int], axes: Sequence[int], *, keep: bool) -> tuple[int, ...]:
    """The shape without some axes, or (`keep`) with extent 1 in their place."""
    if keep:
        return tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    return tuple(extent for axis, extent in enumerate(shape) if axis not in axes)


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    if types[0].dtype.is_bool:
        raise UnsupportedError("reductions of bool are not supported but for ReduceMax and ReduceMin")
    return _infer_extreme(types, attrs)


def _infer_extreme(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    shape = reduced_shape(types[0].shape, attrs.integers("axes"), keep=attrs.flag("keepdims"))
    return (types[0].with_shape(shape),)


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, rank = Attrs(attrs), inputs[0].type.rank
    axes = normal_axes(given.integers("axes", ()), rank)
    if not axes and not given.flag("noop_with_empty_axes", default=False):
        axes = tuple(range(rank))
    return inputs, {"axes": axes, "keepdims": given.flag("keepdims")}


def _form(combiner: str) -> Build:
    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        axes, source, out = info.attrs.integers("axes"), info.in_types[0].shape, info.out_types[0]
        keep = info.attrs.flag("keepdims")

        def at(*index: Expr) -> Expr:
            spatial = (i for at, i in enumerate(index[: out.rank]) if not (keep and at in axes))
            inner = iter(index[out.rank :])
            place = (next(inner if axis in axes else spatial) for axis in range(len(source)))
            return widen(inputs[0][tuple(place)])

        extents = [source[axis] for axis in axes]
        return reduce_block(b, f"reduce_{combiner}", out.shape, extents, at, combiner, out.dtype)

    return form


def _nothing_reduced(e: Emitter, item: Node) -> Values | None:
    source = item.inputs[0]
    if any(source.type.shape[axis] != 1 for axis in item.attrs.integers("axes")):
        return None
    return (e.emit("Reshape", source, shape=item.output.type.shape),)


def _extreme_expand(e: Emitter, item: Node) -> Values | None:
    """Truth values as numbers: false is less than true."""
    source = item.inputs[0]
    if not source.type.dtype.is_bool:
        return _nothing_reduced(e, item)
    axes, keep = item.attrs.integers("axes"), item.attrs.flag("keepdims")
    found = e.emit(item.op.name, e.emit("Cast", source, to=U8), axes=axes, keepdims=keep)
    return (e.emit("Cast", found, to=BOOL),)


def _signatures(name: str, axes_input_since: int) -> tuple[Signature, ...]:
    return (
        Signature(1, {"axes": None, "keepdims": 1}, adapt=_import),
        Signature(axes_input_since, {"keepdims": 1, "noop_with_empty_axes": 0}, {1: "axes"},
                  optional=frozenset({1}), adapt=_import, at_run=over_axes(name)),
    )  # fmt: skip


Fold = Callable[..., Array]


def _fold_reference(fn: Fold) -> Reference:
    @rounded_once
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
        with np.errstate(all="ignore"):
            return fn(arrays[0], axis=attrs.integers("axes"), keepdims=attrs.flag("keepdims"))

    return reference


def _extreme(fn: Fold, sign: int) -> Fold:
    """The extreme of each row; that of an empty one is the least, or greatest, that the type has."""

    def fold(x: Array, **how: Any) -> Array:
        if x.dtype.kind == "b":
            return fn(x, initial=sign < 0, **how)
        limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
        least = -sign * np.inf if limits is None else limits.max if sign < 0 else limits.min
        return fn(x, initial=x.dtype.type(least), **how)

    return fold


_max, _min = _extreme(np.max, 1), _extreme(np.min, -1)


def _keeps_channels(info: NodeInfo) -> bool:
    return info.in_types[0].shape[1:2] == info.out_types[0].shape[1:2]


def _reduce(
    name: str,
    fn: Fold,
    expand: Expand,
    sign: Sign = Sign.UNKNOWN,
    since: int = 18,
    combiner: str = "",
    infer: Infer = _infer,
) -> Op:
    return Op(
        name, Kind.REDUCTION, infer, _fold_reference(fn), (1, 1), _signatures(name, since),
        forms={"direct": Form(_form(combiner))} if combiner else {}, expand=expand, flops=input_size,
        sign=sign, reads_once=everywhere, keeps_channels=_keeps_channels,
    )  # fmt: skip


PRIMITIVE = (
    _reduce("ReduceSum", np.sum, _nothing_reduced, Sign.KEEPS, 13, "sum"),
    _reduce("ReduceMax", _max, _extreme_expand, Sign.KEEPS, combiner="max", infer=_infer_extreme),
    _reduce("ReduceMin", _min, _extreme_expand, Sign.KEEPS, combiner="min", infer=_infer_extreme),
    _reduce("ReduceProd", np.prod, _nothing_reduced, Sign.KEEPS, combiner="prod"),
)


def _sum(e: Emitter, value: Value, item: Node) -> Value:
    axes, keep = item.attrs.integers("axes"), item.attrs.flag("keepdims")
    return e.emit("ReduceSum", value, axes=axes, keepdims=keep)


def _mean_expand(e: Emitter, item: Node) -> Values:
    source = item.inputs[0]
    count = math.prod(source.type.shape[axis] for axis in item.attrs.integers("axes"))
    total = _sum(e, source, item)
    if source.type.dtype.is_float:
        return (e.emit("Mul", total, emit_scalar(e, 1 / count, source)),)
    return (e.emit("Div", total, emit_scalar(e, count, source)),)


def _in_floats(e: Emitter, value: Value, fn: Callable[[Value], Value]) -> Value:
    """A function of floats; of integers in f64, whose result is cut towards zero."""
    kind = value.type.dtype
    if kind.is_float:
        return fn(value)
    return e.emit("Cast", fn(e.emit("Cast", value, to=F64)), to=kind)


def _log_sum_exp_expand(e: Emitter, item: Node) -> Values:
    axes = item.attrs.integers("axes")

    def log_sum_exp(source: Value) -> Value:
        top = e.emit("ReduceMax", source, axes=axes, keepdims=True)
        total = _sum(e, e.emit("Exp", e.emit("Sub", source, top)), item)
        return e.emit("Add", e.emit("Log", total), e.emit("Reshape", top, shape=item.output.type.shape))

    return (_in_floats(e, item.inputs[0], log_sum_exp),)


def _sum_of(op: str, after: str = "") -> Callable[[Emitter, Node], Values]:
    def expand(e: Emitter, item: Node) -> Values:
        source = item.inputs[0]
        prepared = e.emit("Mul", source, source) if op == "Mul" else e.emit(op, source) if op else source
        total = _sum(e, prepared, item)
        return (_in_floats(e, total, lambda value: e.emit(after, value)) if after else total,)

    return expand


def _mean_array(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:  # noqa: FBT001 - as numpy's
    total = np.asarray(np.sum(x, axis=axis, keepdims=keepdims))
    count = math.prod(x.shape[i] for i in axis)
    return np.asarray(total / count) if x.dtype.kind == "f" else np.asarray(np.trunc(total / count))


def _log_sum_exp_array(x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:  # noqa: FBT001 - as numpy's
    top = _max(x, axis=axis, keepdims=True)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return np.asarray(total if keepdims else np.squeeze(total, axis=axis))


DERIVED = (
    _reduce("ReduceMean", _mean_array, _mean_expand, Sign.KEEPS),
    _reduce("ReduceL1", lambda x, **k: np.sum(np.abs(x), **k), _sum_of("Abs"), Sign.NONNEGATIVE),
    _reduce("ReduceL2", lambda x, **k: np.sqrt(np.sum(x * x, **k)), _sum_of("Mul", "Sqrt"), Sign.NONNEGATIVE),
    _reduce("ReduceSumSquare", lambda x, **k: np.sum(x * x, **k), _sum_of("Mul"), Sign.NONNEGATIVE),
    _reduce("ReduceLogSum", lambda x, **k: np.log(np.sum(x, **k)), _sum_of("", "Log")),
    _reduce("ReduceLogSumExp", _log_sum_exp_array, _log_sum_exp_expand),
)

# ---------------------------------------------------------------- position of the extreme


def _arg_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    axis = normal_axis(given.integer("axis"), inputs[0].type.rank)
    return inputs, {"axes": (axis,), "keepdims": given.flag("keepdims"),
                    "last": given.flag("select_last_index", default=False)}  # fmt: skip


def _arg_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (_infer(types, attrs)[0].with_dtype(I64),)


def _arg_reference(fn: Callable[..., Array]) -> Reference:
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        x, (axis,) = arrays[0], attrs.integers("axes")
        if attrs.flag("last"):
            found = x.shape[axis] - 1 - fn(np.flip(x, axis), axis=axis)
        else:
            found = fn(x, axis=axis)
        return (np.expand_dims(found, axis) if attrs.flag("keepdims") else found,)

    return reference


def _arg_form(combiner: str) -> Build:
    """Two reductions: the extreme value, then the first (or last) position that has it."""

    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        (axis,), out = info.attrs.integers("axes"), info.out_types[0]
        source, kind = info.in_types[0].shape, info.in_types[0].dtype
        last, keep = info.attrs.flag("last"), info.attrs.flag("keepdims")

        def element(*index: Expr) -> Expr:
            rest = (*index[:axis], *index[axis + keep : out.rank])
            return inputs[0][(*rest[:axis], index[-1], *rest[axis:])]

        best = b.reduce("extreme", out.shape, [source[axis]], element, combiner, kind)
        none = identity_of("max" if last else "min", INDEX)

        def place(*index: Expr) -> Expr:
            return Select(element(*index).eq(best[index[: out.rank]]), index[-1], none)

        found = b.reduce("position", out.shape, [source[axis]], place, "max" if last else "min", I64)
        # Where nothing equals the extreme (NaN) the position would lie outside the axis.
        return b.compute("arg", out.shape, lambda *i: maximum(minimum(found[i], source[axis] - 1), 0), I64)

    return form


def _arg(name: str, combiner: str, fn: Callable[..., Array]) -> Op:
    first = {"axis": 0, "keepdims": 1}
    return Op(
        name, Kind.REDUCTION, _arg_infer, _arg_reference(fn), (1, 1),
        (
            Signature(1, first, adapt=_arg_import),
            Signature(12, {**first, "select_last_index": 0}, adapt=_arg_import),
        ),
        forms={"direct": Form(_arg_form(combiner))}, flops=input_size, sign=Sign.NONNEGATIVE,
    )  # fmt: skip


OPS = (*PRIMITIVE, *DERIVED, _arg("ArgMax", "max", np.argmax), _arg("ArgMin", "min", np.argmin))
