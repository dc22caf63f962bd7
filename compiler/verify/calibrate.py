"""Measures this machine beside what the compiler takes it for: the row of its microarchitecture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from compiler.core.progress import Progress, Steps, silent
from compiler.core.settings import Settings, load_settings
from compiler.core.target import TargetFacts
from compiler.targets import get_target
from compiler.targets.cpu import host_rates
from compiler.verify.peak import Machine

ALLOWED = 1 / 3
"""By how much a fact may be off: costs rank what differs by more."""

_BUSY = 0.5
_SECONDS = 0.3
_MOST_BYTES = 512 << 20
_NARROWEST_BITS = 128


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact as the row has it and as it was measured; off: the larger one by the smaller one, less one."""

    name: str
    unit: str
    row: float
    measured: float

    @property
    def off(self) -> float:
        return max(self.row, self.measured) / max(min(self.row, self.measured), 1e-9) - 1

    @property
    def holds(self) -> bool:
        return self.off <= ALLOWED


@dataclass(frozen=True, slots=True)
class Calibration:
    """This machine's facts beside those of its row, which is empty where the processor has none.

    busy: programs that were running before, on average of a minute: rates are too low then.
    """

    arch: str
    microarchitecture: str
    facts: tuple[Fact, ...]
    busy: float

    @property
    def is_busy(self) -> bool:
        return self.busy > _BUSY

    @property
    def holds(self) -> bool:
        return all(one.holds for one in self.facts)


def calibrate(*, progress: Progress = silent) -> Calibration:
    """Measure the facts of this machine's processor, in some seconds.

    Raises HostError without a C++ compiler, BuildError where it refuses the source.
    """
    busy = os.getloadavg()[0]
    target = get_target()
    found = tuple(_measured(target.facts, load_settings(), progress))
    return Calibration(target.text.partition(":")[2], target.facts.microarchitecture, found, busy)


def _measured(facts: TargetFacts, settings: Settings, progress: Progress) -> Iterator[Fact]:
    progress("compiling", 0, 0)
    measurements = [*_measurements(facts, machine := Machine(settings)), *_narrow(facts, settings)]
    steps = Steps(progress, "measuring", len(measurements) + 1)
    clock = machine.clock(_SECONDS)
    yield Fact("clock", "GHz", facts.hertz / 1e9, clock / 1e9)
    steps.advance()
    for name, unit, expected, measure in measurements:
        yield Fact(name, unit, expected, measure(clock))
        steps.advance()


_Measurement = tuple[str, str, float, Callable[[float], float]]


def _measurements(facts: TargetFacts, machine: Machine) -> list[_Measurement]:
    """Name, unit and expectation of what is measured, and how, given the clock."""
    width = f"{facts.vector_bits} bit"
    l1, l2, l3 = facts.l1, facts.l2, facts.l3
    near = l1.bytes * 3 // 4
    line = facts.vector_bits / 8
    return [
        _multiply_adds(facts.vector_bits, facts.fma_per_cycle, machine),
        ("multiply-add latency", "cycles", facts.fma_latency,
         lambda clock: machine.fma_seconds(_SECONDS) * clock),
        ("loads", f"{width}, a cycle", facts.loads_per_cycle,
         lambda clock: machine.memory("read", near, seconds=_SECONDS) / line / clock),
        ("stores", f"{width}, a cycle", facts.stores_per_cycle,
         lambda clock: machine.memory("store", near, seconds=_SECONDS) / line / clock),
        _rate("L2 read", l2.bytes_per_cycle, machine, max(l2.bytes // 2, 2 * l1.bytes)),
        _rate("L3 read", l3.bytes_per_cycle, machine, max(l3.bytes // 4, 2 * l2.bytes)),
        ("memory read", "GB/s", facts.bandwidth / 1e9,
         lambda _clock: machine.memory("read", min(4 * l3.bytes, _MOST_BYTES), seconds=4 * _SECONDS) / 1e9),
    ]  # fmt: skip


def _narrow(facts: TargetFacts, settings: Settings) -> list[_Measurement]:
    """Multiply-adds of half the width, where the machine's vectors can be that short."""
    bits = facts.vector_bits // 2
    rates = host_rates(bits)
    if rates is None or bits < _NARROWEST_BITS:
        return []
    return [_multiply_adds(bits, rates.fma, Machine(settings, bits))]


def _multiply_adds(bits: int, expected: float, machine: Machine) -> _Measurement:
    def measure(clock: float) -> float:
        return machine.flops(1, _SECONDS) / 2 / (bits / 32) / clock

    return ("multiply-adds", f"{bits} bit, a cycle", expected, measure)


def _rate(name: str, expected: float, machine: Machine, size: int) -> _Measurement:
    def measure(clock: float) -> float:
        return machine.memory("read", size, seconds=_SECONDS) / clock

    return (name, "bytes a cycle", expected, measure)
