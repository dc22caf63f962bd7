"""What the inputs and outputs of a model look like in Python; needs nothing but the standard library.

It goes into packages, beside the loader that needs no numpy: any Python from 3.10 on reads it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from compiler.runtime.abi import DLDataType, DLTensor, TkDim, TkTensorInfo

_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}
_NAMES = {
    6: "bool", 10: "float8_e4m3fn", 11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu", 17: "float4_e2m1fn",
}  # fmt: skip
"""Types of which there is one of each code."""
SMALL = frozenset({"float4_e2m1fn", "int4", "uint4", "int2", "uint2"})
"""Types of fewer than 8 bits: packed in memory of a model, in numpy one element to a byte."""


@dataclass(frozen=True, slots=True)
class SymbolicDim:
    """A dimension whose extent the inputs decide: minimum..maximum, in multiples of divisor.

    Dimensions of one model with the same symbol have the same extent in one run. counted: not the shapes
    of inputs decide but what the run finds in them.
    """

    symbol: int
    minimum: int
    maximum: int
    divisor: int
    counted: bool = False

    def __str__(self) -> str:
        return f"{self.minimum}..{self.maximum}"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model; `nbytes` is its largest size.

    `dtype` is a name of numpy or ml_dtypes such as `float32` or `float8_e4m3fn`.
    """

    name: str
    dtype: str
    shape: tuple[int | SymbolicDim, ...]
    nbytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def symbolic(self) -> bool:
        """Whether the inputs decide the shape."""
        return any(isinstance(dim, SymbolicDim) for dim in self.shape)

    @property
    def largest_shape(self) -> tuple[int, ...]:
        """The shape with every symbolic dimension at its maximum."""
        return tuple(dim.maximum if isinstance(dim, SymbolicDim) else dim for dim in self.shape)

    def shape_at(self, extents: Mapping[int, int]) -> tuple[int, ...]:
        """The shape where symbols have these extents; those that are not there have their maximum."""
        return tuple(
            extents.get(dim.symbol, dim.maximum) if isinstance(dim, SymbolicDim) else dim
            for dim in self.shape
        )


def dtype_name(dtype: DLDataType) -> str:
    """The numpy name of a DLPack element type, or that in ml_dtypes where numpy has none."""
    if dtype.code in _NAMES:
        return _NAMES[dtype.code]
    return f"{_KINDS.get(dtype.code, 'unknown')}{dtype.bits}"


class Shaped(Protocol):
    """An array of any kind."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its dimensions."""


def extents_of(infos: Sequence[TensorSpec], arrays: Sequence[Shaped]) -> dict[int, int]:
    """What the inputs say of symbols; what does not fit is left to the library to refuse."""
    found: dict[int, int] = {}
    for info, array in zip(infos, arrays, strict=True):
        for dim, extent in zip(info.shape, array.shape, strict=False):
            if isinstance(dim, SymbolicDim) and dim.minimum <= extent <= dim.maximum:
                found.setdefault(dim.symbol, extent)
    return found


def follows(outputs: Sequence[TensorSpec], inputs: Sequence[TensorSpec]) -> bool:
    """Whether extents of outputs follow from those of inputs in a way that only the library knows."""
    found, known = (
        {dim.symbol for info in infos for dim in info.shape if isinstance(dim, SymbolicDim)}
        for infos in (outputs, inputs)
    )
    return not found <= known


def shapes_by_library(
    shapes: Callable[..., int], handle: Any, inputs: Any, count: int, infos: Sequence[TensorSpec]
) -> tuple[int, list[tuple[int, ...]]]:
    """What the library says of the outputs' shapes for `count` inputs (DLTensors), behind its status.

    shapes: `model_shapes` or `context_shapes` of its interface, with the handle that it takes.
    """
    ranks = [len(info.shape) for info in infos]
    extents = (ctypes.c_int64 * max(1, sum(ranks)))()
    outputs = (DLTensor * max(1, len(ranks)))()
    at = ctypes.addressof(extents)
    for tensor, rank in zip(outputs, ranks, strict=False):
        tensor.ndim = rank
        tensor.shape = ctypes.cast(at, ctypes.POINTER(ctypes.c_int64))
        at += rank * ctypes.sizeof(ctypes.c_int64)
    status = int(shapes(handle, inputs, count, outputs, len(ranks)))
    return status, [tuple(tensor.shape[:rank]) for tensor, rank in zip(outputs, ranks, strict=False)]


def _dim_of(dim: TkDim) -> int | SymbolicDim:
    if dim.symbol < 0:
        return int(dim.min)
    return SymbolicDim(dim.symbol, dim.min, dim.max, dim.divisor, bool(dim.counted))


def spec_of(info: TkTensorInfo) -> TensorSpec:
    """What the library says of an input or output."""
    shape = tuple(map(_dim_of, info.dims[: info.rank] if info.rank else ()))
    name = cast(bytes, info.name).decode("utf-8", "surrogateescape")
    return TensorSpec(name, dtype_name(info.dtype), shape, info.bytes)
