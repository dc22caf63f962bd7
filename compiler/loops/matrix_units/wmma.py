"""`wmma` of NVIDIA's GPUs: tiles of 16 x 16 whose fragments are opaque (PTX ISA, "wmma.load", "wmma.mma").

The lanes here are the interpreter's and the emulator's: a lane holds a row of a, a row of b, and eight
neighbours of c; the other half of the sub-group holds a and b once more, as registers of the hardware do. No
program may rely on it.
"""

from __future__ import annotations

from compiler.core.types import F16, F32
from compiler.loops.matrix_units.unit import Digit, Fragment, MatrixUnit, Text

PRODUCT = MatrixUnit(
    "wmma.m16n16k16",
    32,
    F16,
    F32,
    a=Fragment((Digit(16, lane=1),), (Digit(16, register=1),)),
    b=Fragment((Digit(16, register=1),), (Digit(16, lane=1),)),
    c=Fragment((Digit(16, lane=2),), (Digit(2, lane=1), Digit(8, register=1))),
    pack=16,
    texts=(Text("cuda", "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", "__CUDA_ARCH__ >= 700"),),
)


def memory_place(part: str, lane: int, register: int) -> tuple[int, int]:
    """Row and column in memory of what a register of a or b holds; b lies there by steps."""
    if part == "a":
        return PRODUCT.a.place(lane, register)
    column, step = PRODUCT.b.place(lane, register)
    return step, column
