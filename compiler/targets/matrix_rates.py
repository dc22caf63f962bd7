"""Which matrix instructions each architecture has, and the multiply-adds of a multiprocessor in a cycle.

NVIDIA: peak rates of dense products in the white papers of the architectures (Volta, Turing, GA100, GA102,
Ada, Hopper, Blackwell) and data sheets of the cards, over units and clock; consumer cards do half as much
with sums of f32. From sm_90 on `mma.sync` reaches about half of what newer instructions do, which is what
stands here. AMD: CDNA 1, 2 and 3 white papers, "peak matrix" rates. None of these were measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Rates = Mapping[str, int]


def _ampere(f16: int, tf32: int, i8: int) -> Rates:
    """m8n8k4 is there for compatibility: on threads' own arithmetic it would be no faster."""
    return {
        "mma.m8n8k4.f16": 64,
        "mma.m16n8k8.f16": f16,
        "mma.m8n8k16.i8": i8 // 2,
        "mma.m16n8k16.f16": f16,
        "mma.m16n8k16.bf16": f16,
        "mma.m16n8k8.tf32": tf32,
        "mma.m16n8k16.tf32x3": tf32 // 3,
        "mma.m16n8k32.i8": i8,
    }


MATRIX_RATES: Mapping[str, Rates] = {
    "sm_70": {"mma.m8n8k4.f16": 512, "wmma.m16n16k16": 512},
    "sm_75": {"mma.m8n8k4.f16": 64, "mma.m16n8k8.f16": 512, "mma.m8n8k16.i8": 1024},
    "sm_80": _ampere(1024, 512, 2048),
    "sm_86": _ampere(256, 128, 1024),
    "sm_87": _ampere(512, 256, 1024),
    "sm_89": _ampere(512, 256, 1024),
    "sm_90": _ampere(1024, 512, 2048),
    "sm_100": _ampere(1024, 512, 2048),
    "sm_120": _ampere(256, 128, 1024),
    "gfx908": {
        "mfma.m16n16k4.f32": 128,
        "mfma.m32n32k2.f32": 128,
        "mfma.m16n16k16.f16": 512,
        "mfma.m32n32k8.f16": 512,
        "mfma.m16n16k8.bf16": 256,
        "mfma.m16n16k16.i8": 512,
    },
    "gfx90a": {
        "mfma.m16n16k4.f32": 128,
        "mfma.m32n32k2.f32": 128,
        "mfma.m16n16k16.f16": 512,
        "mfma.m32n32k8.f16": 512,
        "mfma.m16n16k8.bf16": 256,
        "mfma.m16n16k16.bf16": 512,
        "mfma.m16n16k16.i8": 512,
    },
    "gfx942": {
        "mfma.m16n16k4.f32": 128,
        "mfma.m32n32k2.f32": 128,
        "mfma.m16n16k16.f16": 1024,
        "mfma.m32n32k8.f16": 1024,
        "mfma.m16n16k16.bf16": 1024,
    },
}
"""By architecture; one that is missing has none that there are records for."""


def common_rates(archs: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The instructions that all of the architectures have, at the lowest rate."""
    found = [MATRIX_RATES.get(arch, {}) for arch in archs]
    return tuple(
        (name, min(rates[name] for rates in found)) for name in found[0] if all(name in r for r in found)
    )
