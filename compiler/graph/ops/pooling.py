"""Pooling: the largest element or the sum of sliding windows, and pooling over whole images.

`AveragePool` expands into `SumPool` and a multiplication by 1 / count: one number where all windows
count the same elements, else a small constant table, so no loop ever counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import DType
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.ir import Node, NodeInfo, TensorType
from compiler.graph.op import (
    Build,
    Emitter,
    Form,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Sign,
    Signature,
    Types,
    Values,
    input_size,
    rounded_once,
)
from compiler.graph.ops.elementwise import emit_scalar, widen
from compiler.graph.ops.reduction import reduce_block
from compiler.graph.ops.windows import (
    import_windows,
    pad_array,
    padded_buffer,
    spatial_type,
    window_view,
    windows_of,
)
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr


def _spatial(source: TensorType) -> tuple[int, ...]:
    if source.rank < 3:
        raise InvalidError(f"pooling needs batch, channels and spatial axes, got {source}")
    return source.shape[2:]


def _pool_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    return inputs, import_windows(given, given.integers("kernel_shape"), _spatial(inputs[0].type)).attrs()


def _average_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Padding counts only up to the pads that were asked for, not what ceil_mode adds."""
    given = Attrs(attrs)
    spatial, kernel = _spatial(inputs[0].type), given.integers("kernel_shape")
    windows = import_windows(given, kernel, spatial)
    asked = import_windows(Attrs(attrs, ceil_mode=0), kernel, spatial)
    include = given.flag("count_include_pad")
    nothing = (0,) * len(spatial)
    counted = (asked.before, asked.after) if include else (nothing, nothing)
    return inputs, {**windows.attrs(), "counted_before": counted[0], "counted_after": counted[1]}


def _apart(info: NodeInfo) -> bool:
    """Whether windows do not overlap."""
    windows = windows_of(info.attrs)
    return all(reach <= stride for reach, stride in zip(windows.reach, windows.strides, strict=True))


def _pool_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (spatial_type(types[0], types[0].shape[1], windows_of(attrs)),)


def lowest(kind: DType) -> float | int:
    """The least value of a type: what MaxPool pads with."""
    return -math.inf if kind.is_float else int(np.iinfo(to_numpy(kind)).min)


def _max_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    return (_over_taps(arrays[0], attrs, np.maximum, lowest(from_numpy(arrays[0].dtype))),)


def _over_taps(x: Array, attrs: Attrs, combine: Callable[[Array, Array], Array], fill: float = 0) -> Array:
    """Combine tap by tap: far fewer numpy steps than window by window."""
    windows = windows_of(attrs)
    view = window_view(pad_array(x, windows, fill), windows)
    taps = (view[(..., *tap)] for tap in np.ndindex(*windows.kernel))
    return functools.reduce(combine, taps)


@rounded_once
def _sum_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return _over_taps(arrays[0], attrs, np.add)


@rounded_once
def _average_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return _over_taps(arrays[0], attrs, np.add) / _count_table(attrs, arrays[0].shape[2:])


def _count_table(attrs: Attrs, spatial: Sequence[int]) -> Array:
    """How many elements each window counts, as an f32 array over the windows."""
    windows = windows_of(attrs)
    low, high = attrs.integers("counted_before"), attrs.integers("counted_after")
    table: Array = np.ones((1,) * len(spatial), np.float32)
    for axis, count in enumerate(windows.counts(spatial)):
        first = np.arange(count)[:, None] * windows.strides[axis] - windows.before[axis]
        taps = first + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        inside = (taps >= -low[axis]) & (taps < spatial[axis] + high[axis])
        shape = [1] * len(spatial)
        shape[axis] = count
        table = table * inside.sum(axis=1).reshape(shape).astype(np.float32)
    return table


def _average_expand(e: Emitter, item: Node) -> Values:
    source, windows = item.inputs[0], windows_of(item.attrs)
    counts = _count_table(item.attrs, source.type.shape[2:])
    total = e.emit("SumPool", source, **windows.attrs())
    if (counts == counts.flat[0]).all():
        return (e.emit("Mul", total, emit_scalar(e, 1 / float(counts.flat[0]), source)),)
    table = (1 / counts).astype(to_numpy(source.type.dtype))
    return (e.emit("Mul", total, e.constant(table)),)


def _window_form(combiner: str) -> Build:
    def form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
        windows, source, out = windows_of(info.attrs), info.in_types[0], info.out_types[0]
        padded = padded_buffer(b, inputs[0], source, windows, combiner)

        def at(*index: Expr) -> Expr:
            place = windows.position(index[2 : out.rank], index[out.rank :])
            return widen(padded[(*index[:2], *place)])

        return reduce_block(b, f"pool_{combiner}", out.shape, windows.kernel, at, combiner, out.dtype)

    return form


def _pool_flops(info: NodeInfo) -> int:
    return info.out_types[0].size * windows_of(info.attrs).taps


_SHARED: dict[str, AttrValue | None] = {
    "kernel_shape": None, "strides": None, "pads": None, "auto_pad": "NOTSET",
}  # fmt: skip
_CEIL: dict[str, AttrValue | None] = {**_SHARED, "ceil_mode": 0}
_FULL: dict[str, AttrValue | None] = {**_CEIL, "dilations": None}
_COUNT: dict[str, AttrValue | None] = {"count_include_pad": 0}
_ORDER = frozenset({"storage_order"})

MAX_POOL = Op(
    "MaxPool", Kind.REDUCTION, _pool_infer, _max_reference, (1, 1),
    (
        Signature(1, _SHARED, ignored=_ORDER, adapt=_pool_import),
        Signature(10, _FULL, ignored=_ORDER, adapt=_pool_import),
    ),
    forms={"direct": Form(_window_form("max"))}, channels=True, flops=_pool_flops, sign=Sign.KEEPS,
    reads_once=_apart,
)  # fmt: skip
AVERAGE_POOL = Op(
    "AveragePool", Kind.REDUCTION, _pool_infer, _average_reference, (1, 1),
    (
        Signature(7, {**_SHARED, **_COUNT}, adapt=_average_import),
        Signature(10, {**_CEIL, **_COUNT}, adapt=_average_import),
        Signature(19, {**_FULL, **_COUNT}, adapt=_average_import),
    ),
    expand=_average_expand, flops=_pool_flops, sign=Sign.KEEPS,
)  # fmt: skip
SUM_POOL = Op(
    "SumPool", Kind.REDUCTION, _pool_infer, _sum_reference, (1, 1),
    forms={"direct": Form(_window_form("sum"))}, channels=True, flops=_pool_flops, sign=Sign.KEEPS,
    reads_once=_apart,
)  # fmt: skip
"""Ours: the sum of each window, what AveragePool is made of."""


def _global_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    ones = (1,) * len(_spatial(types[0]))
    return (types[0].with_shape((*types[0].shape[:2], *ones)),)


def _global(name: str, fold: Callable[..., Array], reduction: str) -> Op:
    @rounded_once
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
        return fold(arrays[0], axis=tuple(range(2, arrays[0].ndim)), keepdims=True)

    def expand(e: Emitter, item: Node) -> Values:
        source = item.inputs[0]
        return (e.emit(reduction, source, axes=tuple(range(2, source.type.rank)), keepdims=True),)

    return Op(
        name, Kind.REDUCTION, _global_infer, reference, (1, 1), (Signature(1),), expand=expand,
        flops=input_size, sign=Sign.KEEPS,
    )  # fmt: skip


OPS = (
    MAX_POOL, AVERAGE_POOL, SUM_POOL,
    _global("GlobalAveragePool", np.mean, "ReduceMean"),
    _global("GlobalMaxPool", np.max, "ReduceMax"),
)  # fmt: skip
