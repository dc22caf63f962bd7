"""Values and memory of the interpreter: numbers in their types, casts, buffers, poison, addresses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from compiler.core.diagnostics import BadInputError
from compiler.core.types import DType
from compiler.loops.ir import Buffer

Array = np.ndarray[Any, np.dtype[Any]]

STORAGE: dict[str, Any] = {
    "f64": np.float64, "f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "i4": np.uint8,
    "u64": np.uint64, "u32": np.uint32, "u16": np.uint16, "u8": np.uint8, "u4": np.uint8,
    "bool": np.bool_,
}  # fmt: skip
"""How one element lies in memory; i4 and u4 lie two to a byte, the even element in the low half."""

COMPUTE: dict[str, Any] = {
    **STORAGE, "f16": np.float32, "bf16": np.float32, "f8e4m3": np.float32, "f8e5m2": np.float32,
    "i4": np.int8,
}  # fmt: skip
"""What a value is while it is computed with: narrow floats are f32 until a store or a cast rounds them."""

NARROW = frozenset({"tf32", "f16", "bf16", "f8e4m3", "f8e5m2"})
PACKED = frozenset({"i4", "u4"})
POISON_BYTE = 0xA5


class ProgramError(BadInputError):
    """A loop program did what no program may do: out of bounds, divergent barrier, division by zero ..."""


@functools.cache
def poison_of(dtype: DType) -> Any:
    """What undefined memory holds: NaN, or bytes 0xA5; true for bool."""
    storage = np.dtype(STORAGE[dtype.name])
    if dtype.is_float:
        return storage.type(np.nan)
    if dtype.is_bool:
        return np.True_
    return np.frombuffer(bytes([POISON_BYTE]) * storage.itemsize, storage)[0]


# ---------------------------------------------------------------- integers


@functools.cache
def wrapper(dtype: DType) -> Callable[[int], int]:
    """The function that wraps a Python integer into a type, two's complement."""
    mask, half = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    if not dtype.is_signed:
        return lambda value: value & mask
    return lambda value: ((value + half) & mask) - half


def truncdiv(a: Any, b: Any) -> Any:
    """Quotient rounded to zero."""
    quotient = a // b
    inexact = (quotient * b != a) & ((a < 0) != (b < 0))
    return quotient + inexact


def truncmod(a: Any, b: Any) -> Any:
    """Remainder with the sign of the dividend."""
    return a - truncdiv(a, b) * b


def nonzero(b: Any) -> Any:
    """A vector divisor, checked."""
    if not np.all(b):
        raise ZeroDivisionError
    return b


# ---------------------------------------------------------------- casts


def _to_int(target: DType) -> Callable[[Any], Any]:
    poison = int(poison_of(target)) if target.name not in PACKED else 0
    low = -(2 ** (target.bits - 1)) if target.is_signed else 0
    high = low + 2**target.bits - 1

    def scalar(value: Any) -> Any:
        whole = int(value) if value - value == 0 else low - 1  # inf and nan have no integer
        return whole if low <= whole <= high else poison

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return np.array([scalar(item) for item in value], COMPUTE[target.name])
        return scalar(value)

    return convert


@functools.cache
def caster(source: DType, target: DType) -> Callable[[Any], Any]:
    """The conversion between two scalar types, for scalars and vectors.

    Float to int truncates; values that the type cannot hold become poison. To f16, bf16 and f8 rounds to
    nearest even. Int to int wraps.
    """
    if target.is_bool:
        return lambda value: value != 0
    if target.is_float:
        return _to_float(target)
    if source.is_float:
        return _to_int(target)
    wrap, compute = wrapper(target), COMPUTE[target.name]

    def convert(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return wrap(int(value))
        if target.name in PACKED:
            return np.array([wrap(int(item)) for item in value], compute)
        return value.astype(compute)

    return convert


_TF32_DROPPED = 13
"""Bits of f32's fraction that tf32 does not have."""


def round_tf32(value: Any) -> Any:
    """The nearest values of tf32, ties away from zero, as f32 (PTX ISA: cvt.rna.tf32.f32)."""
    exact = np.asarray(value, np.float32)
    bits = exact.view(np.uint32)
    rounded = ((bits + np.uint32(1 << (_TF32_DROPPED - 1))) >> _TF32_DROPPED << _TF32_DROPPED).view(
        np.float32
    )
    found = np.where(np.isfinite(exact), rounded, exact)
    return found if found.ndim else np.float32(found)


def _to_float(target: DType) -> Callable[[Any], Any]:
    if target.name == "tf32":
        return round_tf32
    storage, compute = STORAGE[target.name], COMPUTE[target.name]

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return value.astype(storage).astype(compute)
        if isinstance(value, int):
            value = np.float64(value)
        return compute(storage(value))

    return convert


# ---------------------------------------------------------------- memory


@dataclass(slots=True, eq=False)
class View:
    """A buffer at run time: `data` is its memory as one row of elements (or of bytes where packed)."""

    buffer: Buffer
    data: Array
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def flat(self, indices: Sequence[int]) -> int:
        """Position of one element; out of bounds is an error."""
        at = self.offset
        for dim, (index, size, stride) in enumerate(zip(indices, self.shape, self.strides, strict=True)):
            if not 0 <= index < size:
                raise out_of_bounds(self.buffer, dim, index, size)
            at += int(index) * stride
        return at

    def get(self, flat: int) -> Any:
        """One element as it is computed with."""
        kind = self.buffer.dtype
        if kind.lanes > 1:
            part = self.data[flat * kind.lanes : (flat + 1) * kind.lanes]
            return part.astype(COMPUTE[kind.name])
        if kind.name in PACKED:
            half = (int(self.data[flat >> 1]) >> (4 * (flat & 1))) & 15
            return half - 16 if kind.name == "i4" and half > 7 else half
        value = self.data[flat]
        return COMPUTE[kind.name](value) if kind.is_float else value.item()

    def put(self, flat: int, value: Any) -> None:
        """Write one element; narrow floats are rounded here."""
        kind = self.buffer.dtype
        if kind.lanes > 1:
            self.data[flat * kind.lanes : (flat + 1) * kind.lanes] = value
        elif kind.name in PACKED:
            shift = 4 * (flat & 1)
            old = int(self.data[flat >> 1])
            self.data[flat >> 1] = (old & (0xF0 >> shift)) | ((int(value) & 15) << shift)
        else:
            self.data[flat] = value

    def poison(self, flat: int) -> None:
        """Make one element undefined."""
        kind = self.buffer.dtype
        self.put(flat, poison_of(kind.scalar) if kind.name not in PACKED else 5)

    # ------------------------------------------------------------ vectors

    def places(self, indices: Sequence[Any], lanes: int, mask: Any) -> list[int | None]:
        """Position per lane; None where the mask is off."""
        columns = [np.broadcast_to(np.asarray(item), (lanes,)).tolist() for item in indices]
        active = [True] * lanes if mask is None else np.broadcast_to(np.asarray(mask), (lanes,)).tolist()
        return [
            self.flat([column[lane] for column in columns]) if active[lane] else None for lane in range(lanes)
        ]

    def load(self, indices: Sequence[Any], lanes: int, mask: Any, other: Any) -> Any:
        """Gather `lanes` elements; masked-off lanes are `other`, or poison without one."""
        kind = self.buffer.dtype
        width = kind.lanes
        result = np.empty(lanes * width, COMPUTE[kind.name])
        fill = other
        if other is None:
            fill = 0 if kind.name in PACKED else poison_of(kind.scalar)
        fills = np.broadcast_to(np.asarray(fill, result.dtype), (lanes * width,))
        for lane, flat in enumerate(self.places(indices, lanes, mask)):
            part = slice(lane * width, (lane + 1) * width)
            result[part] = fills[part] if flat is None else self.get(flat)
        return result

    def store(self, indices: Sequence[Any], lanes: int, mask: Any, value: Any) -> None:
        """Scatter `lanes` elements; masked-off lanes are left alone."""
        width = self.buffer.dtype.lanes
        values = np.broadcast_to(np.asarray(value), (lanes * width,))
        for lane, flat in enumerate(self.places(indices, lanes, mask)):
            if flat is not None:
                self.put(flat, values[lane * width : (lane + 1) * width] if width > 1 else values[lane])

    # ------------------------------------------------------------ whole buffers

    def elements(self) -> Array:
        """Position of every element, in the logical shape."""
        at = np.full(self.shape, self.offset, np.int64)
        for dim, stride in enumerate(self.strides):
            steps = np.arange(self.shape[dim], dtype=np.int64) * stride
            at = at + steps.reshape([-1 if d == dim else 1 for d in range(len(self.shape))])
        return at

    def fill(self, array: Array) -> None:
        """Write all elements from an array of the logical shape."""
        if self.buffer.dtype.name in PACKED:
            for flat, value in zip(self.elements().ravel(), array.ravel(), strict=True):
                self.put(int(flat), int(value))
        else:
            self._rows()[self.elements().reshape(-1)] = array.reshape(-1, self.buffer.dtype.lanes)

    def array(self) -> Array:
        """All elements in the logical shape; vector elements add a last dimension; i4 comes as int8."""
        kind = self.buffer.dtype
        if kind.name in PACKED:
            values = [self.get(int(flat)) for flat in self.elements().ravel()]
            return np.array(values, np.int8 if kind.name == "i4" else np.uint8).reshape(self.shape)
        rows = self._rows()[self.elements().reshape(-1)]
        return rows.reshape(self.shape if kind.lanes == 1 else (*self.shape, kind.lanes))

    def _rows(self) -> Array:
        lanes = self.buffer.dtype.lanes
        return self.data[: self.data.size // lanes * lanes].reshape(-1, lanes)


@dataclass(slots=True, eq=False)
class Address:
    """`&buffer[indices]`: what intrinsics and atomics get."""

    view: View
    flat: int

    @property
    def dtype(self) -> DType:
        return self.view.buffer.dtype

    def get(self, index: int = 0) -> Any:
        """The element `index` places further in memory."""
        return self.view.get(self._at(index))

    def put(self, value: Any, index: int = 0) -> None:
        self.view.put(self._at(index), value)

    def _at(self, index: int) -> int:
        at = self.flat + index
        view = self.view
        size = view.data.size // view.buffer.dtype.lanes * (2 if view.buffer.dtype.name in PACKED else 1)
        if not 0 <= at < size:
            raise ProgramError(
                f"an intrinsic reaches element {at} of buffer `{view.buffer.name}`",
                why=f"its memory holds {size} elements",
            )
        return at


def out_of_bounds(buffer: Buffer, dim: int, index: int, size: int) -> ProgramError:
    """The error for an index outside of its dimension."""
    return ProgramError(
        f"buffer `{buffer.name}` is accessed out of bounds",
        why=f"index {dim} is {int(index)}, and that dimension has {size} elements",
        hint="guard the access, or fix the loop extents",
    )


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def allocate(
    buffer: Buffer,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    offset: int,
    base: View | None = None,
) -> View:
    """Fresh poisoned memory for a buffer, or a view of the memory that it shares."""
    steps = dense_strides(shape) if strides is None else strides
    if any(size < 0 for size in shape):
        raise ProgramError(f"buffer `{buffer.name}` has a negative extent", why=f"its shape is {shape}")
    size = 0 if 0 in shape else offset + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + 1
    kind = buffer.dtype
    units = (size + 1) // 2 if kind.name in PACKED else size * kind.lanes
    storage = STORAGE[kind.name]
    if base is None:
        return View(buffer, np.full(units, poison_of(kind.scalar), storage), shape, steps, offset)
    memory = base.data.view(np.uint8)
    width = np.dtype(storage).itemsize
    if units * width > memory.size:
        raise ProgramError(
            f"buffer `{buffer.name}` does not fit into `{base.buffer.name}`, whose memory it shares",
            why=f"it needs {units * width} bytes of {memory.size}",
        )
    data = memory[: memory.size // width * width].view(storage)
    return View(buffer, data, shape, steps, offset)
