"""Steps and limits that the rules for threads share."""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.loops.annotations import THREADS
from compiler.loops.intrinsics import SHUFFLE_XOR
from compiler.loops.queries import extent_of
from compiler.schedule.chooser import Chooser
from compiler.schedule.rules.options import decide
from compiler.schedule.schedule import Schedule

BLOCK = "blockIdx.x"
THREAD = "threadIdx.x"
BANKS = 32
"""Of shared memory, of four bytes each: threads that access different words of one wait for each other."""

_THREADS = 256
_MOST_THREADS = 1024


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


def block_sizes(facts: TargetFacts) -> list[int]:
    """Numbers of threads that a block may have: whole sub-groups, twice as many each time."""
    most, found = facts.limit("threads_per_block") or _THREADS, [subgroup(facts)]
    while 2 * found[-1] <= min(most, _MOST_THREADS):
        found.append(2 * found[-1])
    return found


def units(facts: TargetFacts) -> int:
    """Multiprocessors (compute units) of the device."""
    return facts.limit("units") or 1


def divisors(number: int) -> list[int]:
    """Numbers that divide another one, 1 first."""
    return [n for n in range(1, number + 1) if number % n == 0]


def bind_grid(schedule: Schedule, loop: str, name: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Give each iteration of a loop of block `name` to a thread, in blocks that keep all units busy."""
    extent = extent_of(schedule.loop(loop).extent)
    threads = most_threads(facts)
    while threads > subgroup(facts) and -(-extent // threads) < 2 * units(facts):
        threads //= 2
    threads = decide(chooser, f"{name}.block", threads, block_sizes(facts))
    schedule.bind(loop, BLOCK)
    schedule.annotate(loop, THREADS, threads)
