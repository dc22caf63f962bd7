"""Which matrix instructions each architecture has, and the multiply-adds of a multiprocessor in a cycle.

NVIDIA: peak rates of dense products in the white papers of the architectures (Volta, Turing, GA100, GA102,
Ada, Hopper, Blackwell) and data sheets of the cards, over units and clock; consumer cards do half as much
with sums of f32. From sm_90 on `mma.sync` reaches about half of what newer instructions do, which is what
stands here. AMD: CDNA 1, 2 and 3 white papers, "peak matrix" rates. Intel: oneAPI GPU Optimization Guide,
"Intel Xe GPU Architecture": operations of f16 of an Xe core in a cycle, 4096 (Xe-HPC) and 2048 (Xe-HPG), two
for each multiply-add. None of these were measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Rates = Mapping[str, int]

WMMA, WMMA_BF16 = "wmma.m16n16k16", "wmma.m16n16k16.bf16"


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
    "sm_70": {"mma.m8n8k4.f16": 512, WMMA: 512},
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


def _joint(columns: int, rate: int) -> Rates:
    return {f"joint_matrix.m8n{columns}k16.{kind}": rate for kind in ("f16", "bf16")}


JOINT_RATES: Mapping[str, Rates] = {
    "sm_70": {WMMA: 512},
    "sm_75": {WMMA: 512},
    **{
        arch: {WMMA: rates["mma.m16n8k16.f16"], WMMA_BF16: rates["mma.m16n8k16.bf16"]}
        for arch, rates in MATRIX_RATES.items()
        if "mma.m16n8k16.bf16" in rates
    },
    "intel_gpu_pvc": _joint(16, 2048),
    "intel_gpu_dg2_g10": _joint(8, 1024),
}
"""The same for SYCL, whose `joint_matrix` has tiles of its own; those of NVIDIA at the rate of `mma.sync`."""


def common_rates(
    archs: Sequence[str], table: Mapping[str, Rates] = MATRIX_RATES
) -> tuple[tuple[str, int], ...]:
    """The instructions that all of the architectures have, at the lowest rate."""
    found = [table.get(arch, {}) for arch in archs]
    return tuple(
        (name, min(rates[name] for rates in found)) for name in found[0] if all(name in r for r in found)
    )
