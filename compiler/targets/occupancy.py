"""How many blocks of a launch a unit (multiprocessor, compute unit) has room for at a time.

The rules are those of the vendors; what they are applied to, sizes of register files and shared memory and
the most threads, are facts of the architecture (`gpu.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.core.device_code import Occupancy
from compiler.targets.gpu import GpuArch


@dataclass(frozen=True, slots=True)
class OccupancyRules:
    """How a unit is given to blocks.

    partitions: parts of a unit, each with its scheduler and its share of the registers. blocks: the most at a
    time of more than one sub-group; blocks_of_one: of one. registers: what a sub-group gets is a multiple of
    this, lanes counted. shared: what a block gets is a multiple of so many bytes. shared_reserved: bytes that
    the system takes beside.
    """

    blocks: int
    blocks_of_one: int
    registers: int
    shared: int
    shared_reserved: int = 0
    partitions: int = 4


def _nvidia(blocks: int, *, reserved: int = 1024) -> OccupancyRules:
    return OccupancyRules(blocks, blocks, 256, 128 if reserved else 256, reserved)


_GCN = OccupancyRules(blocks=16, blocks_of_one=40, registers=4 * 64, shared=512)
_CDNA_2 = OccupancyRules(blocks=16, blocks_of_one=32, registers=8 * 64, shared=512)

# NVIDIA: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (blocks), and the
# units of allocation of its occupancy calculator (Nsight Compute; cuda_occupancy.h); from 8.0 on the system
# keeps 1 KiB of shared memory for each block. AMD: LLVM, "User Guide for AMDGPU Backend", and its
# AMDGPUBaseInfo: granules of vector registers (8 where the file holds accumulators, too), 16 groups with a
# barrier at a time. Scalar registers are left out: they are short only at the last one or two of ten waves.
RULES: Mapping[str, OccupancyRules] = {
    "sm_70": _nvidia(32, reserved=0),
    "sm_75": _nvidia(16, reserved=0),
    "sm_80": _nvidia(32),
    "sm_86": _nvidia(16),
    "sm_87": _nvidia(16),
    "sm_89": _nvidia(24),
    "sm_90": _nvidia(32),
    "sm_100": _nvidia(32),
    "sm_120": _nvidia(24),
    "gfx906": _GCN,
    "gfx908": _GCN,
    "gfx90a": _CDNA_2,
    "gfx942": _CDNA_2,
}
"""By architecture; none for those whose rules are not written down here."""


def resident(arch: GpuArch, threads: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Of blocks of so many threads, with so many registers each; None where the rules are not known."""
    rules = RULES.get(arch.name)
    if rules is None:
        return None
    most = arch.threads_unit // arch.lanes
    subgroups = max(1, math.ceil(threads / arch.lanes))
    limits = {
        "threads": most // subgroups,
        "blocks": rules.blocks_of_one if subgroups == 1 else rules.blocks,
        "registers": _by_registers(arch, rules, registers) // subgroups,
        "shared memory": _by_shared(arch, rules, shared_bytes),
    }
    by = min(limits, key=lambda name: limits[name])
    blocks = limits[by]
    return Occupancy(blocks, blocks * subgroups, blocks * subgroups / most, by)


def _by_registers(arch: GpuArch, rules: OccupancyRules, registers: int) -> int:
    """Sub-groups that have room; each part of a unit holds whole ones."""
    each = _multiple(max(1, registers) * arch.lanes, rules.registers)
    return arch.registers_unit // rules.partitions // each * rules.partitions


def _by_shared(arch: GpuArch, rules: OccupancyRules, shared_bytes: int) -> int:
    whole = arch.shared_most + rules.shared_reserved
    each = _multiple(shared_bytes + rules.shared_reserved, rules.shared)
    return whole // each if each else arch.threads_unit


def _multiple(value: int, unit: int) -> int:
    return -(-value // unit) * unit
