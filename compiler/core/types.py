"""Scalar and vector element types."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

# name -> (kind, bits). Kinds: f (IEEE-like float), i (signed), u (unsigned), b (bool).
SCALARS: dict[str, tuple[str, int]] = {
    "f64": ("f", 64), "f32": ("f", 32), "tf32": ("f", 32), "f16": ("f", 16), "bf16": ("f", 16),
    "f8e4m3": ("f", 8), "f8e5m2": ("f", 8), "f8e4m3fnuz": ("f", 8), "f8e5m2fnuz": ("f", 8),
    "f8e8m0": ("f", 8), "f4e2m1": ("f", 4),
    "i64": ("i", 64), "i32": ("i", 32), "i16": ("i", 16), "i8": ("i", 8), "i4": ("i", 4), "i2": ("i", 2),
    "u64": ("u", 64), "u32": ("u", 32), "u16": ("u", 16), "u8": ("u", 8), "u4": ("u", 4), "u2": ("u", 2),
    "bool": ("b", 8),
}  # fmt: skip


_STORED = frozenset({"f8e4m3fnuz", "f8e5m2fnuz", "f8e8m0", "f4e2m1", "i4", "u4", "i2", "u2"})


@dataclass(frozen=True, slots=True)
class DType:
    """An element type with a lane count; elements of fewer than 8 bits are packed, the first one lowest.

    `tf32` is f32 with ten bits of fraction, in the memory of an f32.
    """

    name: str
    lanes: int = 1

    def __post_init__(self) -> None:
        if self.name not in SCALARS:
            raise ValueError(f"unknown element type {self.name!r}")
        if self.lanes < 1:
            raise ValueError(f"lanes must be positive, got {self.lanes}")

    def __str__(self) -> str:
        return self.name if self.lanes == 1 else f"{self.name}x{self.lanes}"

    @property
    def bits(self) -> int:
        """Bits of one lane in memory."""
        return SCALARS[self.name][1]

    @property
    def bytes(self) -> int:
        """Bytes of one whole value; packed types round up."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def is_float(self) -> bool:
        return SCALARS[self.name][0] == "f"

    @property
    def is_stored(self) -> bool:
        """Whether elements are moved and converted only, and computed with in other types."""
        return self.name in _STORED

    @property
    def is_int(self) -> bool:
        return SCALARS[self.name][0] in "iu"

    @property
    def is_signed(self) -> bool:
        return SCALARS[self.name][0] in "fi"

    @property
    def is_bool(self) -> bool:
        return self.name == "bool"

    @property
    def scalar(self) -> DType:
        """The type of one lane."""
        return self.with_lanes(1)

    def with_lanes(self, lanes: int) -> DType:
        """The same element type with another lane count."""
        return self if lanes == self.lanes else dtype(self.name, lanes)


@cache
def dtype(name: str, lanes: int = 1) -> DType:
    """The (shared) type called `name`."""
    return DType(name, lanes)


_TEXT = re.compile(r"(bool|bf16|tf32|f8e4m3fnuz|f8e5m2fnuz|f8e4m3|f8e5m2|f8e8m0|f4e2m1|[fiu]\d+?)(?:x(\d+))?")


def parse_dtype(text: str) -> DType:
    """Parse `f32` or `f32x16`; raises ValueError for anything else."""
    found = _TEXT.fullmatch(text)
    if found is None or found[1] not in SCALARS:
        raise ValueError(f"unknown element type {text!r}")
    return dtype(found[1], int(found[2] or 1))


F64, F32, F16, BF16 = dtype("f64"), dtype("f32"), dtype("f16"), dtype("bf16")
TF32 = dtype("tf32")
I64, I32, I16, I8 = dtype("i64"), dtype("i32"), dtype("i16"), dtype("i8")
U64, U32, U16, U8 = dtype("u64"), dtype("u32"), dtype("u16"), dtype("u8")
BOOL = dtype("bool")
INDEX = I64
"""The type of loop variables and indices."""
