"""What a chain of small layers costs in one cluster of blocks, and what in a launch for each layer.

A layer is what its sums read: an image that is pooled, weights. In a launch of its own all units of a device
share that; in a cluster few do, so that only small layers are better off there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.schedule.chooser import Option
from compiler.schedule.rules.threads.cluster import most_blocks
from compiler.schedule.rules.threads.common import shuffled, units
from compiler.schedule.rules.threads.launch_cost import BESIDE_WORK_SECONDS, CLUSTER_SECONDS

_UNIT_BYTES_A_SECOND = 100e9
"""What one unit reads of the last cache: assumed, 64 bytes in a cycle."""

_SHARED_RATE = 3.0
"""How much faster than memory the last cache is where all units read: assumed."""

_READ_SECONDS = 0.5e-6
"""From asking for a layer's first element to having its last sum, beside the bytes: assumed."""

_IN_FLIGHT = 16
"""Elements of four bytes that a thread asks for before it waits: assumed."""

_TRIP_SECONDS = 0.6e-6
"""From asking for an element of the last cache to having it: assumed, of a busy unit."""

_DOUBT_SECONDS = 0.3e-6
"""A cluster has to be better by so much: all that it takes is estimated, a launch was measured."""

_WORD = 4
_TEAMS = (128, 256, 512, 1024)
"""Threads of a block."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a chain: results of a sample, terms of each of them, and bits of what is read for a term.

    known: whether that is weights, which all samples read.
    """

    rows: int
    terms: int
    bits: int
    known: bool

    @property
    def bytes(self) -> float:
        """What is read for all results of one sample."""
        return self.rows * self.terms * self.bits / 8

    def share(self, blocks: int) -> int:
        """Results that each of so many blocks has, but for the last ones."""
        return -(-self.rows // blocks)

    def is_even(self, blocks: int) -> bool:
        """Whether each of so many blocks has some results where shares are equal, but for the last one."""
        return -(-self.rows // self.share(blocks)) == blocks


def chain_options(samples: int, layers: Sequence[Layer], facts: TargetFacts) -> list[Option]:
    """Blocks of a cluster and threads of a block, with cycles by estimate; none where no cluster fits."""
    limit, lanes = facts.limit("threads_per_block") or 0, shuffled(facts)
    if not lanes:
        return []
    teams = [size for size in _TEAMS if size <= limit and size % lanes == 0]
    return [
        Option((blocks, threads), facts.hertz * _seconds(samples, layers, blocks, threads, facts))
        for blocks in range(2, most_blocks(facts) + 1)
        if all(layer.rows > blocks for layer in layers)
        for threads in teams
    ]


def seconds_saved(samples: int, layers: Sequence[Layer], facts: TargetFacts) -> float:
    """Seconds that one launch for all layers saves by estimate; below 0 where one for each is better."""
    options = chain_options(samples, layers, facts)
    if not options:
        return -1.0
    apart = sum(_alone_seconds(samples, layer, facts) for layer in layers)
    return apart - min(item.cost for item in options) / facts.hertz - BESIDE_WORK_SECONDS - _DOUBT_SECONDS


def _seconds(samples: int, layers: Sequence[Layer], blocks: int, threads: int, facts: TargetFacts) -> float:
    """Of all layers in a cluster for each sample: bytes of the one block, or trips to the last cache."""
    waves = -(-samples * blocks // units(facts))
    once = 0.0
    for layer in layers:
        part = layer.share(blocks) * layer.terms * layer.bits / 8
        trips = part / (threads * _IN_FLIGHT * _WORD)
        once += max(part / _UNIT_BYTES_A_SECOND, trips * _TRIP_SECONDS) + _READ_SECONDS
    return waves * (once + (len(layers) - 1) * CLUSTER_SECONDS)


def _alone_seconds(samples: int, layer: Layer, facts: TargetFacts) -> float:
    """Of one layer in a launch of its own."""
    rate = facts.bandwidth * units(facts) * _SHARED_RATE
    times = 1 if layer.known else samples
    return BESIDE_WORK_SECONDS + _READ_SECONDS + times * layer.bytes / rate
