"""Pooling: the largest element or the sum of sliding windows, and pooling over whole images.

`AveragePool` expands into `SumPool` and a multiplication by 1 / count: one number where all windows
count the same elements, else a small constant table, so no loop ever counts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from compiler.core.types import I64, INDEX, DType
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
from compiler.graph.ops.movement import ravel, unravel
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
from compiler.loops.ir import Buffer, Expr, Select, all_of, const, maximum, minimum


def _spatial(source: TensorType) -> tuple[int, ...]:
    if source.rank < 3:
        raise InvalidError(f"pooling needs batch, channels and spatial axes, got {source}")
    return source.shape[2:]


def import_pool(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """Canonical windows of a pooling operator."""
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


def infer_pool(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    """One element for each window."""
    return (spatial_type(types[0], types[0].shape[1], windows_of(attrs)),)


def lowest(kind: DType) -> float | int:
    """The least value of a type: what MaxPool pads with."""
    return -math.inf if kind.is_float else int(np.iinfo(to_numpy(kind)).min)


def _max_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    inputs, made = import_pool(node, inputs, attrs)
    if any(node.used_outputs[1:]):
        columns = Attrs(attrs).flag("storage_order", default=False)
        made = {**made, "positions": True, "columns": columns}
    return inputs, made


def _max_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    found = infer_pool(types, attrs)
    return (*found, found[0].with_dtype(I64)) if attrs.flag("positions", default=False) else found


def _max_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    found = over_taps(arrays[0], attrs, np.maximum, lowest(from_numpy(arrays[0].dtype)))
    positions = attrs.flag("positions", default=False)
    return (found, *_positions_reference(arrays, attrs)) if positions else (found,)


def _max_expand(e: Emitter, item: Node) -> Values | None:
    """Values and positions apart; without positions there is nothing to expand."""
    if not item.attrs.flag("positions", default=False):
        return None
    source, windows = item.inputs[0], windows_of(item.attrs).attrs()
    places = e.emit("MaxPoolPositions", source, **windows, columns=item.attrs.flag("columns"))
    return (e.emit("MaxPool", source, **windows), places)


def _positions_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    return (infer_pool(types, attrs)[0].with_dtype(I64),)


def _positions_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """The first tap with the largest element, as its position in the whole tensor."""
    x, windows = arrays[0], windows_of(attrs)
    spatial = x.shape[2:]
    numbers = np.arange(math.prod(spatial), dtype=np.int64).reshape(spatial)
    if attrs.flag("columns"):
        numbers = numbers.reshape(spatial[::-1]).T
    channels = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *([1] * len(spatial)))
    places = np.broadcast_to(numbers + channels * numbers.size, x.shape)
    best, found = None, np.zeros((1,), np.int64)
    values = window_view(pad_array(x.astype(np.float64), windows, math.nan), windows)
    held = window_view(pad_array(places, windows, 0), windows)
    for tap in np.ndindex(*windows.kernel):
        value, place = values[(..., *tap)], held[(..., *tap)]
        better = ~np.isnan(value) if best is None else (value > best) | (np.isnan(best) & ~np.isnan(value))
        found = np.where(better, place, found)
        best = value if best is None else np.where(better, value, best)
    return (found,)


def _positions_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Three steps: the largest element, the first tap that has it, its position."""
    windows, source, out = windows_of(info.attrs), info.in_types[0], info.out_types[0]
    spatial, rank = source.shape[2:], len(windows.kernel)
    padded = padded_buffer(b, inputs[0], source, windows, "max")

    def element(*index: Expr) -> Expr:
        return padded[(*index[:2], *windows.position(index[2 : out.rank], index[out.rank :]))]

    best = b.reduce("largest", out.shape, windows.kernel, element, "max", source.dtype)

    def tap(*index: Expr) -> Expr:
        places = windows.position(index[2 : out.rank], index[out.rank :])
        bounds = zip(places, spatial, windows.before, windows.after, strict=True)
        inside = (
            item
            for at, n, low, high in bounds
            for item in ((at.ge(low) if low else None), (at.lt(n + low) if high else None))
        )
        found = all_of(element(*index).eq(best[index[: out.rank]]), *inside)
        assert found is not None
        return Select(found, ravel(index[out.rank :], windows.kernel), const(windows.taps, INDEX))

    first = b.reduce("first", out.shape, windows.kernel, tap, "min", I64)

    def position(*index: Expr) -> Expr:
        number = minimum(first[index], windows.taps - 1)
        at = windows.position(index[2:], unravel(number, windows.kernel))
        unpadded = [maximum(i - low, 0) if low else i for i, low in zip(at, windows.before, strict=True)]
        channel = index[0] * source.shape[1] + index[1]
        if info.attrs.flag("columns"):
            return channel * math.prod(spatial) + ravel(unpadded[::-1], spatial[::-1])
        return ravel((channel, *unpadded), (1, *spatial))

    assert rank == len(spatial)
    return b.compute("position", out.shape, position, I64)


def over_taps(x: Array, attrs: Attrs, combine: Callable[[Array, Array], Array], fill: float = 0) -> Array:
    """Combine tap by tap: far fewer numpy steps than window by window."""
    windows = windows_of(attrs)
    view = window_view(pad_array(x, windows, fill), windows)
    taps = (view[(..., *tap)] for tap in np.ndindex(*windows.kernel))
    return functools.reduce(combine, taps)


@rounded_once
def _sum_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return over_taps(arrays[0], attrs, np.add)


@rounded_once
def _average_reference(arrays: Sequence[Array], attrs: Attrs) -> Array:
    return over_taps(arrays[0], attrs, np.add) / _count_table(attrs, arrays[0].shape[2:])


def _count_table(attrs: Attrs, spatial: Sequence[int]) -> Array:
    """How many elements each window counts, over the windows: in f64, as 1 / count is rounded to any type."""
    windows = windows_of(attrs)
    low, high = attrs.integers("counted_before"), attrs.integers("counted_after")
    table: Array = np.ones((1,) * len(spatial), np.float64)
    for axis, count in enumerate(windows.counts(spatial)):
        first = np.arange(count)[:, None] * windows.strides[axis] - windows.before[axis]
        taps = first + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        inside = (taps >= -low[axis]) & (taps < spatial[axis] + high[axis])
        shape = [1] * len(spatial)
        shape[axis] = count
        table = table * inside.sum(axis=1).reshape(shape)
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


def pool_flops(info: NodeInfo) -> int:
    """One operation per tap."""
    return info.out_types[0].size * windows_of(info.attrs).taps


_SHARED: dict[str, AttrValue | None] = {
    "kernel_shape": None, "strides": None, "pads": None, "auto_pad": "NOTSET",
}  # fmt: skip
_CEIL: dict[str, AttrValue | None] = {**_SHARED, "ceil_mode": 0}
_FULL: dict[str, AttrValue | None] = {**_CEIL, "dilations": None}
_COUNT: dict[str, AttrValue | None] = {"count_include_pad": 0}
_ORDER: dict[str, AttrValue | None] = {"storage_order": 0}

MAX_POOL = Op(
    "MaxPool", Kind.REDUCTION, _max_infer, _max_reference, (1, 1),
    (
        Signature(1, _SHARED, adapt=_max_import),
        Signature(8, {**_SHARED, **_ORDER}, adapt=_max_import, outputs=2),
        Signature(10, {**_FULL, **_ORDER}, adapt=_max_import, outputs=2),
    ),
    forms={"direct": Form(_window_form("max"), lambda info: len(info.out_types) == 1)}, channels=True,
    flops=pool_flops, sign=Sign.KEEPS, reads_once=_apart, expand=_max_expand,
)  # fmt: skip
MAX_POOL_POSITIONS = Op(
    "MaxPoolPositions", Kind.REDUCTION, _positions_infer, _positions_reference, (1, 1),
    forms={"direct": Form(_positions_form)}, flops=lambda info: 2 * pool_flops(info), sign=Sign.NONNEGATIVE,
)  # fmt: skip
"""Ours: where in its whole operand each result of MaxPool comes from (`columns`: counted by columns)."""
AVERAGE_POOL = Op(
    "AveragePool", Kind.REDUCTION, infer_pool, _average_reference, (1, 1),
    (
        Signature(7, {**_SHARED, **_COUNT}, adapt=_average_import),
        Signature(10, {**_CEIL, **_COUNT}, adapt=_average_import),
        Signature(19, {**_FULL, **_COUNT}, adapt=_average_import),
    ),
    expand=_average_expand, flops=pool_flops, sign=Sign.KEEPS,
)  # fmt: skip
SUM_POOL = Op(
    "SumPool", Kind.REDUCTION, infer_pool, _sum_reference, (1, 1),
    forms={"direct": Form(_window_form("sum"))}, channels=True, flops=pool_flops, sign=Sign.KEEPS,
    reads_once=_apart,
)  # fmt: skip
"""Ours: the sum of each window, what AveragePool is made of."""


def global_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    """One element for each channel."""
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
        name, Kind.REDUCTION, global_infer, reference, (1, 1), (Signature(1),), expand=expand,
        flops=input_size, sign=Sign.KEEPS,
    )  # fmt: skip


OPS = (
    MAX_POOL, MAX_POOL_POSITIONS, AVERAGE_POOL, SUM_POOL,
    _global("GlobalAveragePool", np.mean, "ReduceMean"),
    _global("GlobalMaxPool", np.max, "ReduceMax"),
)  # fmt: skip
