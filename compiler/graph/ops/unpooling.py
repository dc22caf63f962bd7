"""MaxUnpool: what MaxPool took goes back to where it was."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Node, TensorType
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
    Values,
    no_flops,
)


def _import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    """`inner` is the shape that positions count in, `shape` that of the result, from the same corner."""
    given, source = Attrs(attrs), inputs[0].type
    rank, kernel = source.rank - 2, given.integers("kernel_shape")
    strides, pads = given.integers("strides", (1,) * rank), given.integers("pads", (0,) * (2 * rank))
    if rank < 1 or len(kernel) != rank or len(strides) != rank or len(pads) != 2 * rank:
        raise InvalidError(f"the kernel, strides or pads of MaxUnpool do not fit {source}")
    rows = zip(source.shape[2:], strides, pads[:rank], pads[rank:], kernel, strict=True)
    spatial = tuple((n - 1) * step - low - high + size for n, step, low, high, size in rows)
    inner = (*source.shape[:2], *spatial)
    shape = given.integers("output_shape", inner)
    if min(spatial) < 1 or len(shape) != source.rank or min(shape) < 0:
        raise InvalidError(f"MaxUnpool of {source} to {list(shape)}")
    return inputs, {"inner": inner, "shape": shape}


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    if types[1].shape != types[0].shape or types[1].dtype.name != "i64":
        raise InvalidError(f"MaxUnpool of {types[0]} with positions {types[1]}")
    return (types[0].with_shape(attrs.integers("shape")),)


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    x, positions = arrays
    inner, shape = attrs.integers("inner"), attrs.integers("shape")
    flat = np.zeros(math.prod(inner), x.dtype)
    flat[positions.reshape(-1).clip(-flat.size, flat.size - 1)] = x.reshape(-1)
    result = np.zeros(shape, x.dtype)
    common = tuple(slice(0, min(pair)) for pair in zip(inner, shape, strict=True))
    result[common] = flat.reshape(inner)[common]
    return (result,)


def _expand(e: Emitter, item: Node) -> Values:
    source, positions = item.inputs
    inner, shape = item.attrs.integers("inner"), item.attrs.integers("shape")
    nothing = e.constant(np.zeros(math.prod(inner), to_numpy(source.type.dtype)))
    rows = (e.emit("Reshape", value, shape=(source.type.size,)) for value in (positions, source))
    flat = e.emit("ScatterElements", nothing, *rows, axis=0, reduction="none")
    image = e.emit("Reshape", flat, shape=inner)
    more = tuple(n - m for n, m in zip(shape, inner, strict=True))
    if not any(more):
        return (image,)
    return (e.emit("Pad", image, before=(0,) * len(shape), after=more, mode="constant", value=0.0),)


MAX_UNPOOL = Op(
    "MaxUnpool", Kind.REDUCTION, _infer, _reference, (2, 2),
    (
        Signature(9, {"kernel_shape": None, "strides": None, "pads": None}, {2: "output_shape"},
                  adapt=_import, optional=frozenset({2})),
    ),
    expand=_expand, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip

OPS = (MAX_UNPOOL,)
