"""Operators that rearrange all elements: views (Reshape and its kin) and permutations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Sign,
    Signature,
    Types,
    UnsupportedError,
    Values,
    array_type,
    moved,
    no_change,
    no_flops,
    normal_axes,
    normal_axis,
)
from compiler.graph.ops import at_run
from compiler.graph.ops.reduction import reduced_shape
from compiler.loops.ir import Expr, const

# ---------------------------------------------------------------- views


def _same_position(info: NodeInfo, index: Sequence[Expr]) -> tuple[Expr, ...]:
    """The element with the same row-major position."""
    return unravel(ravel(index, info.out_types[0].shape), info.in_types[0].shape)


_VIEW = moved("view", _same_position)


def ravel(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The row-major position of `index` in a tensor of `shape`."""
    position: Expr = const(0)
    for at, extent in zip(index, shape, strict=True):
        position = position * extent + at
    return position


def unravel(position: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """The index of the row-major `position` in a tensor of `shape`."""
    found: list[Expr] = []
    stride = math.prod(shape)
    for axis, extent in enumerate(shape):
        stride //= max(extent, 1)
        at = position // stride
        found.append(const(0) if extent == 1 else at if axis == 0 else at % extent)
    return tuple(found)


def _reshape_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    result = types[0].with_shape(attrs.integers("shape"))
    if result.size != types[0].size:
        raise InvalidError(f"{types[0]} cannot be reshaped to {list(result.shape)}")
    return (result,)


def _resolve_shape(wanted: Sequence[int], source: TensorType, *, allow_zero: bool) -> tuple[int, ...]:
    """The shape that Reshape means: 0 copies the input's extent, one -1 is what is left over."""
    shape = list(wanted)
    for axis, extent in enumerate(shape):
        if extent < -1:
            raise InvalidError(f"{list(wanted)} is no shape: extent {extent}")
        if extent == 0 and not allow_zero:
            if axis >= source.rank:
                raise InvalidError(
                    f"shape {list(wanted)} copies extent {axis} of {source}, which does not exist"
                )
            shape[axis] = source.shape[axis]
    if shape.count(-1) > 1:
        raise InvalidError(f"shape {list(wanted)} has more than one -1")
    if -1 in shape:
        rest = math.prod(extent for extent in shape if extent != -1)
        if rest == 0 or source.size % rest:
            raise InvalidError(f"{source} cannot be reshaped to {list(wanted)}")
        shape[shape.index(-1)] = source.size // rest
    return tuple(shape)


def _reshape_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    literal = given.flag("allowzero", default=False)
    return inputs, {"shape": _resolve_shape(given.integers("shape"), inputs[0].type, allow_zero=literal)}


def _rows_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    first, count, source = attrs.integer("first"), attrs.integer("count"), types[0]
    if not source.rank or not 0 <= first <= first + count <= source.shape[0]:
        raise InvalidError(f"{source} has no rows {first}..{first + count - 1}")
    return (source.with_shape((count, *source.shape[1:])),)


def _rows_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    first = attrs.integer("first")
    return (arrays[0][first : first + attrs.integer("count")],)


ROWS = Op(
    "Rows", Kind.VIEW, _rows_infer, _rows_reference, (1, 1),
    forms=moved("rows", lambda info, index: (index[0] + info.attrs.integer("first"), *index[1:])),
    expand=no_change, flops=no_flops, sign=Sign.KEEPS,
    begin=lambda info: info.attrs.integer("first") * math.prod(info.in_types[0].shape[1:]),
)  # fmt: skip
"""Some rows of the first axis, where they are: unlike a Slice no part of the kernels that read them."""


def emit_rows(e: Emitter, value: Value, first: int, count: int) -> Value:
    """Rows first..first+count of the first axis."""
    if first == 0 and count == value.type.shape[0]:
        return value
    if value.type.dtype.bits % 8:  # a place in memory is a byte
        begin, size = (first, *(0,) * (value.type.rank - 1)), (count, *value.type.shape[1:])
        return e.emit("Slice", value, begin=begin, step=(1,) * len(size), size=size)
    return e.emit("Rows", value, first=first, count=count)


RESHAPE = Op(
    "Reshape", Kind.VIEW, _reshape_infer, lambda x, a: (x[0].reshape(a.integers("shape")),), (1, 1),
    (
        Signature(5, known={1: "shape"}, adapt=_reshape_import, at_run=at_run.reshaped),
        Signature(14, {"allowzero": 0}, known={1: "shape"}, adapt=_reshape_import, at_run=at_run.reshaped),
    ),
    forms=_VIEW, expand=no_change, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


def _as_reshape(e: Emitter, item: Node) -> Values:
    return no_change(e, item) or (e.emit("Reshape", item.inputs[0], shape=item.output.type.shape),)


def _flatten_shape(types: Types, attrs: Attrs) -> tuple[int, ...]:
    shape, axis = types[0].shape, attrs.integer("axis")
    return math.prod(shape[:axis]), math.prod(shape[axis:])


def _flatten_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    rank = inputs[0].type.rank
    axis = Attrs(attrs).integer("axis")
    return inputs, {"axis": rank if axis == rank else normal_axis(axis, rank)}


FLATTEN = Op(
    "Flatten", Kind.VIEW, lambda t, a: (t[0].with_shape(_flatten_shape(t, a)),),
    lambda x, a: (x[0].reshape(math.prod(x[0].shape[: a.integer("axis")]), -1),), (1, 1),
    (Signature(1, {"axis": 1}, adapt=_flatten_import),),
    forms=_VIEW, expand=_as_reshape, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


def _squeeze_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    shape = inputs[0].type.shape
    if "axes" not in attrs:
        return inputs, {"axes": tuple(axis for axis, extent in enumerate(shape) if extent == 1)}
    axes = normal_axes(Attrs(attrs).integers("axes"), len(shape))
    for axis in axes:
        if shape[axis] != 1:
            raise InvalidError(f"axis {axis} of {inputs[0].type} has extent {shape[axis]}, expected 1")
    return inputs, {"axes": axes}


SQUEEZE = Op(
    "Squeeze", Kind.VIEW,
    lambda t, a: (t[0].with_shape(reduced_shape(t[0].shape, a.integers("axes"), keep=False)),),
    lambda x, a: (np.squeeze(x[0], a.integers("axes")),), (1, 1),
    (
        Signature(1, {"axes": None}, adapt=_squeeze_import),
        Signature(13, known={1: "axes"}, optional=frozenset({1}), adapt=_squeeze_import,
                  at_run=at_run.axes_of_ones(added=False)),
    ),
    forms=_VIEW, expand=_as_reshape, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


def _unsqueeze_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = attrs.get("axes")
    # One axis without a dimension is no list, but ONNX's own expansions write it.
    axes = (given,) if isinstance(given, int) else Attrs(attrs).integers("axes")
    return inputs, {"axes": normal_axes(axes, inputs[0].type.rank, len(axes))}


def _unsqueeze_shape(types: Types, attrs: Attrs) -> tuple[int, ...]:
    shape = list(types[0].shape)
    for axis in attrs.integers("axes"):
        shape.insert(axis, 1)
    return tuple(shape)


UNSQUEEZE = Op(
    "Unsqueeze", Kind.VIEW, lambda t, a: (t[0].with_shape(_unsqueeze_shape(t, a)),),
    lambda x, a: (np.expand_dims(x[0], a.integers("axes")),), (1, 1),
    (
        Signature(1, {"axes": None}, adapt=_unsqueeze_import),
        Signature(13, known={1: "axes"}, adapt=_unsqueeze_import, at_run=at_run.axes_of_ones(added=True)),
    ),
    forms=_VIEW, expand=_as_reshape, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


def _first_only(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    training = node.known_at(2)
    if node.has(2) and (training is None or bool(training.any())):
        raise UnsupportedError("Dropout in training mode is not supported")
    return inputs[:1], {}


_COPY = moved("copy", lambda _info, index: index)


def _identity(name: str, *signatures: Signature) -> Op:
    return Op(
        name, Kind.VIEW, lambda t, _a: (t[0],), lambda x, _a: (x[0],), (1, 1), signatures,
        forms=_COPY, expand=lambda _e, item: item.inputs, flops=no_flops,
        sign=Sign.KEEPS,
    )  # fmt: skip


COPY = Op(
    "Copy", Kind.INJECTIVE, lambda t, _a: (t[0],), lambda x, _a: (x[0],), (1, 1),
    forms=_COPY, flops=no_flops, sign=Sign.KEEPS, elementwise=True, alone=True,
)  # fmt: skip
"""Ours: the same elements in memory of their own."""

IDENTITY = _identity("Identity", Signature(1))
DROPOUT = _identity(
    "Dropout",
    Signature(7, ignored=frozenset({"ratio"})),
    Signature(12, ignored=frozenset({"seed"}), optional=frozenset({1, 2}), adapt=_first_only),
)

# ---------------------------------------------------------------- permutation


def _transpose_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    rank = inputs[0].type.rank
    return inputs, {"perm": Attrs(attrs).integers("perm", tuple(reversed(range(rank))))}


def _transpose_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    perm = attrs.integers("perm")
    if sorted(perm) != list(range(types[0].rank)):
        raise InvalidError(f"perm {list(perm)} is no permutation of the axes of {types[0]}")
    return (types[0].with_shape(tuple(types[0].shape[axis] for axis in perm)),)


def _transposed(info: NodeInfo, index: Sequence[Expr]) -> Iterator[Expr]:
    perm = info.attrs.integers("perm")
    return (index[perm.index(axis)] for axis in range(len(perm)))


def _transpose_expand(e: Emitter, item: Node) -> Values | None:
    """A permutation that only moves axes of extent 1 is a view."""
    source = item.inputs[0].type.shape
    moved = [axis for axis in item.attrs.integers("perm") if source[axis] != 1]
    return _as_reshape(e, item) if moved == sorted(moved) else None


def _last_to_channels(info: NodeInfo) -> bool:
    perm = info.attrs.integers("perm")
    return len(perm) >= 3 and perm[1] == len(perm) - 1


def _into_product(info: NodeInfo, reader: Node) -> bool:
    """A product packs its right operand, whatever its order; of the left one it wants rows."""
    perm = info.attrs.integers("perm")
    rows = perm[-1] == len(perm) - 1
    return reader.op.multiplies and (rows or reader.inputs[1].type == info.out_types[0])


def _keeps_rows(info: NodeInfo) -> bool:
    perm = info.attrs.integers("perm")
    return perm[-1:] == (len(perm) - 1,)


TRANSPOSE = Op(
    "Transpose", Kind.INJECTIVE, _transpose_infer,
    lambda x, a: (np.transpose(x[0], a.integers("perm")),), (1, 1),
    (Signature(1, {"perm": None}, adapt=_transpose_import),),
    forms=moved("transpose", _transposed), expand=_transpose_expand, flops=no_flops, sign=Sign.KEEPS,
    keeps_channels=lambda info: info.attrs.integers("perm")[1:2] == (1,), fills_channels=_last_to_channels,
    inline=_into_product, reorders=_keeps_rows,
)  # fmt: skip


def _depth_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    if inputs[0].type.rank != 4:
        raise InvalidError(f"expected a tensor of rank 4, got {inputs[0].type}")
    if attrs["mode"] not in ("DCR", "CRD"):
        raise InvalidError(f"there is no mode {attrs['mode']!r}")
    return inputs, attrs


def _depth_to_space_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (n, c, h, w), block = types[0].shape, attrs.integer("blocksize")
    if block < 1 or c % (block * block):
        raise InvalidError(f"{c} channels do not divide into blocks of {block}")
    return (types[0].with_shape((n, c // block**2, h * block, w * block)),)


def _depth_steps(shape: Sequence[int], attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (n, c, h, w), block = shape, attrs.integer("blocksize")
    if attrs.text("mode") == "DCR":
        return (n, block, block, c // block**2, h, w), (0, 3, 4, 1, 5, 2)
    return (n, c // block**2, block, block, h, w), (0, 1, 4, 2, 5, 3)


def _space_to_depth_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    (n, c, h, w), block = types[0].shape, attrs.integer("blocksize")
    if block < 1 or h % block or w % block:
        raise InvalidError(f"{h} x {w} does not divide into blocks of {block}")
    return (types[0].with_shape((n, c * block**2, h // block, w // block)),)


def _space_steps(shape: Sequence[int], attrs: Attrs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (n, c, h, w), block = shape, attrs.integer("blocksize")
    perm = (0, 3, 5, 1, 2, 4) if attrs.text("mode") == "DCR" else (0, 1, 3, 5, 2, 4)
    return (n, c, h // block, block, w // block, block), perm


def _shuffled(x: Array, steps: tuple[tuple[int, ...], tuple[int, ...]], shape: Sequence[int]) -> Array:
    return x.reshape(steps[0]).transpose(steps[1]).reshape(shape)


def _emit_shuffle(e: Emitter, item: Node, steps: tuple[tuple[int, ...], tuple[int, ...]]) -> Values:
    apart = e.emit("Reshape", item.inputs[0], shape=steps[0])
    return (e.emit("Reshape", e.emit("Transpose", apart, perm=steps[1]), shape=item.output.type.shape),)


DEPTH_TO_SPACE = Op(
    "DepthToSpace", Kind.INJECTIVE, _depth_to_space_infer,
    lambda x, a: (_shuffled(x[0], _depth_steps(x[0].shape, a),
                            _depth_to_space_infer((array_type(x[0]),), a)[0].shape),), (1, 1),
    (Signature(1, {"blocksize": None, "mode": "DCR"}, adapt=_depth_import),),
    expand=lambda e, item: _emit_shuffle(e, item, _depth_steps(item.inputs[0].type.shape, item.attrs)),
    flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip
SPACE_TO_DEPTH = Op(
    "SpaceToDepth", Kind.INJECTIVE, _space_to_depth_infer,
    lambda x, a: (_shuffled(x[0], _space_steps(x[0].shape, a),
                            _space_to_depth_infer((array_type(x[0]),), a)[0].shape),), (1, 1),
    (Signature(1, {"blocksize": None, "mode": "DCR"}, adapt=_depth_import),),
    expand=lambda e, item: _emit_shuffle(e, item, _space_steps(item.inputs[0].type.shape, item.attrs)),
    flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


OPS = (
    ROWS,
    RESHAPE,
    FLATTEN,
    SQUEEZE,
    UNSQUEEZE,
    IDENTITY,
    DROPOUT,
    COPY,
    TRANSPOSE,
    DEPTH_TO_SPACE,
    SPACE_TO_DEPTH,
)
