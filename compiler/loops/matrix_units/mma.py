"""Tensor cores of NVIDIA's GPUs: `mma.sync` with f32 or i32 sums.

Fragments: PTX ISA, "Warp Level Matrix Instructions", "Matrix Fragments for mma.m8n8k4 with .f16 floating
point type", "... mma.m8n8k16", "... mma.m16n8k8", "... mma.m16n8k16 with floating point type", "...
mma.m16n8k32"; the first architecture of each: its "Target ISA Notes". %laneid // 4 is called groupID there.

`mma.m8n8k4` multiplies four pairs of tiles of 8 x 8 at once, one for each quad pair (lanes 4 q to 4 q + 3
and 16 + 4 q to 16 + 4 q + 3). Here pairs of them share rows and columns, which makes one tile of 16 x 16.
Later architectures than sm_70 have it for compatibility only.

Three products of tf32 for one of f32: Ootomo and Yokota, "Recovering single precision accuracy from Tensor
Cores while surpassing the FP32 theoretical peak performance" (2022); CUTLASS has it as 3xTF32.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.core.types import BF16, F16, F32, I8, I32, TF32, DType
from compiler.loops.matrix_units.modes import Mode, Modes
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit, Text

_LANES = 32
_GROUP = Mode(8, lane=4)
_IN_GROUP = Mode(4, lane=1)
_PAIR = Mode(2, register=1)

_SUMS = Fragment(rows=(Mode(2, register=2), _GROUP), columns=(_IN_GROUP, _PAIR))
"""c of all m16n8 shapes."""


def _unit(
    shape: str,
    factor: DType,
    a: Fragment,
    b: Fragment,
    *,
    types: str,
    since: int,
    c: Fragment = _SUMS,
    total: DType = F32,
    pack: int = 2,
    precision: str = "",
) -> MatrixUnit:
    text = Text("cuda", f"mma.sync.aligned.{shape}.row.col.{types}", f"__CUDA_ARCH__ >= {since}0")
    return MatrixUnit(f"mma.{shape}.{factor}", _LANES, factor, total, a, b, c, pack, (text,), precision)


def _shape_16(factor: DType) -> MatrixUnit:
    steps: Modes = (Mode(2, register=4), _IN_GROUP, _PAIR)
    return _unit(
        "m16n8k16",
        factor,
        Fragment((Mode(2, register=2), _GROUP), steps),
        Fragment((_GROUP,), (Mode(2, register=2), _IN_GROUP, _PAIR)),
        types=f"f32.{factor}.{factor}.f32",
        since=80,
    )


_QUAD_ROWS: Modes = (Mode(2, lane=8), Mode(2, lane=16))
_QUAD_COLUMNS: Modes = (Mode(2, lane=4), Mode(2, lane=16))

VOLTA_F16 = _unit(
    "m8n8k4",
    F16,
    Fragment((*_QUAD_ROWS, Mode(4, lane=1)), (Mode(4, register=1),)),
    Fragment((*_QUAD_COLUMNS, Mode(4, lane=1)), (Mode(4, register=1),)),
    c=Fragment(
        (*_QUAD_ROWS, Mode(2, register=2), Mode(2, lane=1)),
        (Mode(2, lane=4), Mode(2, register=4), Mode(2, lane=2), _PAIR),
    ),
    types="f32.f16.f16.f32",
    since=70,
)
TURING_F16 = _unit(
    "m16n8k8",
    F16,
    Fragment((Mode(2, register=2), _GROUP), (_IN_GROUP, _PAIR)),
    Fragment((_GROUP,), (_IN_GROUP, _PAIR)),
    types="f32.f16.f16.f32",
    since=75,
)
TURING_I8 = _unit(
    "m8n8k16",
    I8,
    Fragment((_GROUP,), (_IN_GROUP, Mode(4, register=1))),
    Fragment((_GROUP,), (_IN_GROUP, Mode(4, register=1))),
    c=Fragment((_GROUP,), (_IN_GROUP, _PAIR)),
    total=I32,
    pack=4,
    types="s32.s8.s8.s32",
    since=75,
)
AMPERE_F16 = _shape_16(F16)
AMPERE_BF16 = _shape_16(BF16)
AMPERE_TF32 = _unit(
    "m16n8k8",
    TF32,
    Fragment((Mode(2, register=1), _GROUP), (Mode(2, register=2), _IN_GROUP)),
    Fragment((_GROUP,), (Mode(2, register=1), _IN_GROUP)),
    pack=1,
    types="f32.tf32.tf32.f32",
    since=80,
    precision="tf32",
)
AMPERE_TF32X3 = replace(
    AMPERE_TF32,
    name="mma.m16n8k16.tf32x3",
    factor=F32,
    a=Fragment((Mode(2, register=1), _GROUP), (Mode(2, register=4), Mode(2, register=2), _IN_GROUP)),
    b=Fragment((_GROUP,), (Mode(2, register=2), Mode(2, register=1), _IN_GROUP)),
    precision="tf32x3",
    made_of=AMPERE_TF32,
)
"""f32 by three products of tf32: only the product of what the rounding leaves of both factors is missing."""
AMPERE_I8 = _unit(
    "m16n8k32",
    I8,
    Fragment((Mode(2, register=4), _GROUP), (Mode(2, register=8), _IN_GROUP, Mode(4, register=1))),
    Fragment((_GROUP,), (Mode(2, register=4), _IN_GROUP, Mode(4, register=1))),
    total=I32,
    pack=4,
    types="s32.s8.s8.s32",
    since=80,
)

UNITS = (VOLTA_F16, TURING_F16, TURING_I8, AMPERE_F16, AMPERE_BF16, AMPERE_TF32, AMPERE_TF32X3, AMPERE_I8)
