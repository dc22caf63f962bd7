"""Images resampled at the points of a grid: GridSample, and AffineGrid, which makes grids."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, accumulate_type, to_numpy
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    UnsupportedError,
    Values,
)
from compiler.graph.ops.indexing import emit_slice
from compiler.graph.ops.sampling import PADDINGS, TAPS, position_dtype, sample_reference

# ---------------------------------------------------------------- GridSample

_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _grid_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    mode = _MODES.get(given.text("mode"), given.text("mode"))
    padding = given.text("padding_mode")
    if mode not in TAPS:
        raise InvalidError(f"GridSample has no mode {mode!r}")
    if padding not in PADDINGS[:3]:
        raise InvalidError(f"GridSample has no padding_mode {padding!r}")
    return inputs, {"mode": mode, "padding": padding, "align": given.flag("align_corners")}


def _grid_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    source, grid = types
    rank = source.rank - 2
    if rank < 1 or grid.rank != rank + 2 or grid.shape[-1] != rank or grid.shape[0] != source.shape[0]:
        raise InvalidError(f"GridSample of {source} with a grid {grid}")
    return (source.with_shape((*source.shape[:2], *grid.shape[1:-1])),)


def _unnormalised(grid: Array, extent: int, *, align: bool) -> Array:
    """From -1..1 to elements."""
    return (grid + 1) / 2 * (extent - 1) if align else ((grid + 1) * extent - 1) / 2


def _grid_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, grid = arrays
    grid = grid.astype(position_dtype(grid))
    places = [
        _unnormalised(grid[..., -1 - axis], extent, align=attrs.flag("align"))
        for axis, extent in enumerate(x.shape[2:])
    ]
    return sample_reference((x, *places), Attrs(attrs, combine="sum", chosen=False))


def _grid_expand(e: Emitter, item: Node) -> Values:
    source, grid = item.inputs
    wide = accumulate_type(grid.type.dtype)
    grid = e.emit("Cast", grid, to=wide)
    rank = source.type.rank - 2
    places = [
        _emit_unnormalised(e, grid, rank - 1 - axis, extent, align=item.attrs.flag("align"))
        for axis, extent in enumerate(source.type.shape[2:])
    ]
    made = {name: item.attrs[name] for name in ("mode", "padding", "align")}
    return (e.emit("Sample", source, *places, **made, combine="sum", chosen=False),)


def _emit_unnormalised(e: Emitter, grid: Value, column: int, extent: int, *, align: bool) -> Value:
    kind = to_numpy(grid.type.dtype)

    def number(value: float) -> Value:
        return e.constant(np.asarray(value, kind))

    part = emit_slice(e, grid, grid.type.rank - 1, column, 1)
    place = e.emit("Add", e.emit("Reshape", part, shape=grid.type.shape[:-1]), number(1))
    if align:
        return e.emit("Mul", place, number((extent - 1) / 2))
    scaled = e.emit("Sub", e.emit("Mul", place, number(extent)), number(1))
    return e.emit("Mul", scaled, number(0.5))


_GRID: dict[str, AttrValue | None] = {"padding_mode": "zeros", "align_corners": 0}

GRID_SAMPLE = Op(
    "GridSample", Kind.REDUCTION, _grid_infer, _grid_reference, (2, 2),
    (
        Signature(16, {"mode": "bilinear", **_GRID}, adapt=_grid_import),
        Signature(20, {"mode": "linear", **_GRID}, adapt=_grid_import),
    ),
    expand=_grid_expand, flops=lambda info: 8 * info.out_types[0].size,
)  # fmt: skip


# ---------------------------------------------------------------- AffineGrid


def _affine_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    return inputs, {"size": given.integers("size"), "align": given.flag("align_corners")}


def _affine_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    theta, size = types[0], attrs.integers("size")
    rank = len(size) - 2
    if rank < 1 or min(size) < 0 or theta.shape != (size[0], rank, rank + 1):
        raise InvalidError(f"AffineGrid of {theta} for images {list(size)}")
    if not theta.dtype.is_float:
        raise UnsupportedError(f"AffineGrid of {theta.dtype} is not supported")
    return (theta.with_shape((size[0], *size[2:], rank)),)


def _affine_points(attrs: Attrs) -> Array:
    """(points, rank + 1): the normalised centre of each element, the last axis first, and 1."""
    spatial, align = attrs.integers("size")[2:], attrs.flag("align")
    axes = []
    for n in spatial:
        step = 2 / max(n - 1, 1) if align else 2 / n if n else 0
        axes.append((-1 if align else -1 + step / 2) + step * np.arange(n, dtype=np.float64))
    grids = np.meshgrid(*axes, indexing="ij")
    return np.stack([*(item.reshape(-1) for item in grids[::-1]), np.ones(math.prod(spatial))], axis=1)


def _affine_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    theta = arrays[0]
    found = _affine_points(attrs) @ np.swapaxes(theta.astype(np.float64), 1, 2)
    size = attrs.integers("size")
    return (found.reshape(size[0], *size[2:], len(size) - 2).astype(theta.dtype),)


def _affine_expand(e: Emitter, item: Node) -> Values:
    theta = item.inputs[0]
    points = e.constant(_affine_points(item.attrs).astype(to_numpy(theta.type.dtype)))
    turned = e.emit("Transpose", theta, perm=(0, 2, 1))
    return (e.emit("Reshape", e.emit("MatMul", points, turned), shape=item.output.type.shape),)


AFFINE_GRID = Op(
    "AffineGrid", Kind.REDUCTION, _affine_infer, _affine_reference, (1, 1),
    (Signature(20, {"align_corners": 0}, {1: "size"}, adapt=_affine_import),), expand=_affine_expand,
    flops=lambda info: 2 * info.out_types[0].size * info.in_types[0].shape[-1],
)  # fmt: skip

OPS = (GRID_SAMPLE, AFFINE_GRID)
