"""Steps and limits that the rules for threads share."""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.loops.annotations import THREADS
from compiler.loops.intrinsics import SHUFFLE_XOR
from compiler.loops.queries import extent_of
from compiler.schedule.schedule import Schedule

BLOCK = "blockIdx.x"
THREAD = "threadIdx.x"
_THREADS = 256


def subgroup(facts: TargetFacts) -> int:
    """Threads that run in lock-step."""
    return max(facts.subgroup_sizes, default=32)


def shuffled(facts: TargetFacts) -> int:
    """Lanes that combine values by shuffles: those of a sub-group, where its size is certain; else 0."""
    sizes = facts.subgroup_sizes
    return sizes[0] if SHUFFLE_XOR in facts.intrinsics and len(sizes) == 1 else 0


def most_threads(facts: TargetFacts) -> int:
    """Threads of a block for work without a shape of its own."""
    return min(_THREADS, facts.limit("threads_per_block") or _THREADS)


def units(facts: TargetFacts) -> int:
    """Multiprocessors (compute units) of the device."""
    return facts.limit("units") or 1


def bind_grid(schedule: Schedule, loop: str, facts: TargetFacts) -> None:
    """Give each iteration of a loop to a thread, in blocks of a size that keeps all units busy."""
    extent = extent_of(schedule.loop(loop).extent)
    threads = most_threads(facts)
    while threads > subgroup(facts) and -(-extent // threads) < 2 * units(facts):
        threads //= 2
    schedule.bind(loop, BLOCK)
    schedule.annotate(loop, THREADS, threads)
