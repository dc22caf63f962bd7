"""Facts of devices that bind threads, as tests need them: like V100, like Vega 20, and very small ones."""

from __future__ import annotations

from dataclasses import replace

from compiler.core.target import TargetFacts
from compiler.loops.ir import CLUSTER

_LIMITS = {
    "threads_per_block": 1024,
    "threads_per_unit": 2048,
    "shared_bytes": 48 << 10,
    "registers_per_thread": 255,
    "registers_per_unit": 65536,
    "units": 80,
    "stack_bytes": 1024,
    "grid_x": 2**31 - 1,
    "grid_y": 65535,
    "grid_z": 65535,
}

SM_70 = TargetFacts(
    name="test",
    language="cuda",
    arch="sm_70",
    vector_bits=128,
    vector_registers=255,
    fma_per_cycle=16,
    hertz=1.5e9,
    bandwidth=11e9,
    scopes=frozenset({"global", "constant", "shared", "scratch", "register"}),
    subgroup_sizes=(32,),
    intrinsics=frozenset({"subgroup_shuffle_xor"}),
    limits=tuple(_LIMITS.items()),
    max_lanes=16,
    launches=True,
    binds_threads=True,
)


def with_limits(facts: TargetFacts, **changed: int) -> TargetFacts:
    """The same device with other limits."""
    return replace(facts, limits=tuple({**dict(facts.limits), **changed}.items()))


GFX906 = replace(with_limits(SM_70, shared_bytes=64 << 10, units=60), arch="gfx906", subgroup_sizes=(64,))

TINY = with_limits(SM_70, threads_per_block=64, units=1)
"""One unit, small blocks: even the smallest work fills it, so that the rules for much work apply."""

PLAIN = replace(TINY, intrinsics=frozenset())
"""The same without shuffles."""

HOPPER = replace(
    SM_70,
    arch="sm_90",
    scopes=SM_70.scopes | {CLUSTER},
    limits=(*SM_70.limits, ("blocks_per_cluster", 8)),
)
"""The same with clusters of blocks."""
