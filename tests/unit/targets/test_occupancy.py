"""Occupancy by the vendors' rules, compared with their calculators' numbers worked out by hand."""

from __future__ import annotations

import pytest

from compiler.targets import cuda, hip
from compiler.targets.occupancy import RULES, resident

ARCHS = {**cuda.ARCHS, **hip.ARCHS}

# threads, registers, shared bytes -> blocks, sub-groups, limit.
CASES = [
    # 64 warps of 2,048 threads: 1,024 registers a warp leave room for all of them.
    ("sm_80", 256, 32, 0, 8, 64, "threads"),
    # 72 registers: 2,304 a warp, 7 of them in the 16,384 of a partition, 28 in all: 7 blocks of 4.
    ("sm_80", 128, 72, 0, 7, 28, "registers"),
    # 33 registers: 1,056 become 1,280 (units of 256): 12 a partition, 48 in all, 6 blocks of 8.
    ("sm_80", 256, 33, 0, 6, 48, "registers"),
    # 48 KiB and 1 KiB of the system's: 3 of 164 KiB.
    ("sm_80", 128, 32, 49152, 3, 12, "shared memory"),
    # 128 registers: 4,096 a warp, 16 warps, 2 blocks of 8.
    ("sm_90", 256, 128, 0, 2, 16, "registers"),
    # 163 KiB fit once in 228 KiB.
    ("sm_90", 128, 64, 166912, 1, 4, "shared memory"),
    # One warp a block: no more than 32 blocks, half of the warps.
    ("sm_90", 32, 20, 0, 32, 32, "blocks"),
    # 48 warps a multiprocessor, 16 blocks: 2 warps a block leave a third of them empty.
    ("sm_86", 64, 32, 0, 16, 32, "blocks"),
    # 40 KiB and 1 KiB, twice in 100 KiB.
    ("sm_86", 128, 32, 40960, 2, 8, "shared memory"),
    # No reserve before 8.0: 48 KiB fit twice in 96.
    ("sm_70", 128, 32, 49152, 2, 8, "shared memory"),
    # 129 of 512 registers become 136: 3 waves a SIMD, 12 in all, 3 groups of 4.
    ("gfx90a", 256, 129, 0, 3, 12, "registers"),
    # 128 registers: 4 waves a SIMD.
    ("gfx90a", 256, 128, 0, 4, 16, "registers"),
    # 25 KiB of 64: twice.
    ("gfx90a", 256, 64, 25600, 2, 8, "shared memory"),
    # 84 of 256 registers: 3 waves a SIMD, 12 in all; groups of one wave.
    ("gfx906", 64, 84, 0, 12, 12, "registers"),
    # 24 registers: all ten waves.
    ("gfx906", 256, 24, 0, 10, 40, "threads"),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared", "blocks", "subgroups", "by"), CASES)
def test_blocks_of_a_unit(
    arch: str, threads: int, registers: int, shared: int, blocks: int, subgroups: int, by: str
) -> None:
    found = resident(ARCHS[arch], threads, registers, shared)
    assert found is not None
    assert (found.blocks, found.subgroups, found.limited_by) == (blocks, subgroups, by)
    card = ARCHS[arch]
    assert found.share == subgroups / (card.threads_unit // card.lanes)


def test_what_does_not_fit_at_all_has_no_block() -> None:
    found = resident(ARCHS["sm_80"], 1024, 128, 0)
    assert found is not None
    assert found.blocks == 0


def test_unknown_rules_are_told() -> None:
    assert resident(ARCHS["gfx1030"], 256, 32, 0) is None
    assert RULES.keys() <= ARCHS.keys()
