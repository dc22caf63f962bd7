"""Matrix cores of AMD's GPUs (CDNA): `v_mfma_*` with f32 or i32 sums, by waves of 64.

Fragments: AMD "CDNA3 Instruction Set Architecture", section 7.1 "Matrix fused-multiply-add" (layouts of
dense matrices), as AMD's matrix instruction calculator prints them: a lane holds a row of a (a column of b)
and neighbouring steps; of c it holds runs of four rows of one column. The sums of f32 products are as exact
as those of the vector unit. Which architecture has which: LLVM, "Syntax of AMDGPU instructions", gfx908,
gfx90a, gfx940.
"""

from __future__ import annotations

from compiler.core.types import BF16, F16, F32, I8, I32, DType
from compiler.loops.matrix_units.modes import Mode
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit, Text

_LANES = 64
_FIRST = ("gfx908", "gfx90a")
_LATER = ("gfx90a", "gfx942")
_ALL = ("gfx908", "gfx90a", "gfx942")


def _unit(
    size: int, steps: int, factor: DType, call: str, archs: tuple[str, ...], *, pack: int, total: DType = F32
) -> MatrixUnit:
    """A tile of size x size (16 or 32)."""
    groups = _LANES // size
    step = (Mode(groups, lane=size), Mode(pack, register=1)) if pack > 1 else (Mode(groups, lane=size),)
    factors = Fragment((Mode(size, lane=1),), step)
    runs = Mode(groups, lane=size), Mode(4, register=1)
    rows = runs if size == 16 else (Mode(4, register=4), *runs)
    text = Text("hip", f"__builtin_amdgcn_mfma_{call}", " || ".join(f"defined(__{arch}__)" for arch in archs))
    return MatrixUnit(
        f"mfma.m{size}n{size}k{steps}.{factor}",
        _LANES,
        factor,
        total,
        factors,
        factors,
        Fragment(rows, (Mode(size, lane=1),)),
        pack,
        (text,),
    )


F32_16 = _unit(16, 4, F32, "f32_16x16x4f32", _ALL, pack=1)
F32_32 = _unit(32, 2, F32, "f32_32x32x2f32", _ALL, pack=1)
F16_16 = _unit(16, 16, F16, "f32_16x16x16f16", _ALL, pack=4)
F16_32 = _unit(32, 8, F16, "f32_32x32x8f16", _ALL, pack=4)
BF16_16 = _unit(16, 8, BF16, "f32_16x16x8bf16", _FIRST, pack=2)
BF16_16_1K = _unit(16, 16, BF16, "f32_16x16x16bf16_1k", _LATER, pack=4)
I8_16 = _unit(16, 16, I8, "i32_16x16x16i8", _FIRST, pack=4, total=I32)

UNITS = (F32_16, F32_32, F16_16, F16_32, BF16_16, BF16_16_1K, I8_16)
