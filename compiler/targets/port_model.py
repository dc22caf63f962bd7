"""How many cycles instructions take on a unit, by published numbers: ports and latencies.

A unit (multiprocessor, compute unit) has partitions, each of which starts instructions of its own sub-groups.
An instruction keeps a port of the partition busy for some cycles; ports that all partitions share are counted
as often as there are partitions. One round of a loop takes the cycles of the busiest port, or, where too few
sub-groups take turns, the time that one sub-group needs for a round by itself.

Rates: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions". Latencies: Jia et al. 2018
and 2019 (Volta, Turing: arithmetic 4 to 5, shared memory 19, L2 about 190 cycles), Abdelkhalik et al. 2022
(Ampere: arithmetic 4 with a dependence, 2 without; special functions about 20), Luo et al. 2024 (A100, H100:
shared memory 29, L2 about 262, matrix units 25 to 33). AMD: "CDNA 2 Instruction Set Architecture" and the
white papers (a wave of 64 on 16 lanes, 128 bytes of LDS and 64 of L1 a cycle and unit, quarter rate of
special functions); latencies of LDS and L2 are rounded from what others measured. All of it is rounded, and
nothing was measured here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from compiler.targets.gpu import GpuArch
from compiler.targets.machine_code import MachineInstruction, Unit
from compiler.targets.matrix_rates import MATRIX_RATES
from compiler.targets.occupancy import RULES

ISSUE = "issue"


@dataclass(frozen=True, slots=True)
class Ports:
    """What an instruction keeps busy, in cycles of one partition, and when its result is there.

    issue: cycles until the same sub-group, and `issue_all` until any, starts the next one. ports: the ports
    of an instruction with its cycles on each. shared, cache: bytes a cycle of the unit, of shared memory
    and of the first level of cache. l2: bytes a second of the whole device.
    """

    issue: int
    issue_all: float
    ports: Mapping[Unit, tuple[tuple[str, float], ...]]
    latency: Mapping[Unit, int]
    shared: float
    cache: float
    l2: float


_ONE = MappingProxyType(
    {
        Unit.SHUFFLE: (("shared", 4.0),),
        Unit.CONSTANT: (("constant", 4.0),),
        Unit.BRANCH: (("branch", 2.0),),
    }
)


def _nvidia(arch_fma: int, f64: float, *, alu: int, shared: int, cache: int, l2: float, matrix: int) -> Ports:
    """arch_fma: multiply-adds a cycle. f64: cycles of an instruction. l2: bytes a second. Else latencies."""
    fma = 4 * 32 / arch_fma
    ports = {
        **_ONE,
        # Multiplications of integers go through half of the port for f32 where that is 32 lanes wide.
        Unit.FMA: (("fma", fma),),
        Unit.MULTIPLY: (("fma", fma), ("imul", 2.0)),
        Unit.ALU: (("alu", 2.0),),
        Unit.SPECIAL: (("special", 8.0),),
        Unit.F64: (("f64", f64),),
        Unit.SCALAR: (("scalar", 2.0),),
    }
    latency = {
        Unit.FMA: 4, Unit.MULTIPLY: alu, Unit.ALU: alu, Unit.SPECIAL: 20, Unit.F64: 8, Unit.SHARED: shared,
        Unit.SHUFFLE: shared, Unit.CONSTANT: 30, Unit.GLOBAL: cache, Unit.LOCAL: 35, Unit.MATRIX: matrix,
        Unit.SCALAR: 8, Unit.BARRIER: 20, Unit.BRANCH: 8,
    }  # fmt: skip
    return Ports(1, 1.0, MappingProxyType(ports), MappingProxyType(latency), 128, 64, l2)


def _cdna(*, l2: float, latency_l2: int, f64: float) -> Ports:
    ports = {
        Unit.FMA: (("vector", 4.0),), Unit.ALU: (("vector", 4.0),), Unit.MULTIPLY: (("vector", 16.0),),
        Unit.SPECIAL: (("vector", 16.0),), Unit.F64: (("vector", f64),), Unit.SCALAR: (("scalar", 4.0),),
        Unit.SHUFFLE: (("shared", 8.0),), Unit.CONSTANT: (("constant", 4.0),),
        Unit.BRANCH: (("branch", 4.0),),
    }  # fmt: skip
    latency = {
        Unit.FMA: 4, Unit.MULTIPLY: 16, Unit.ALU: 4, Unit.SPECIAL: 16, Unit.F64: 8, Unit.SHARED: 64,
        Unit.SHUFFLE: 64, Unit.CONSTANT: 100, Unit.GLOBAL: latency_l2, Unit.LOCAL: 120, Unit.MATRIX: 0,
        Unit.SCALAR: 4, Unit.BARRIER: 20, Unit.BRANCH: 16,
    }  # fmt: skip
    return Ports(4, 1.0, MappingProxyType(ports), MappingProxyType(latency), 128, 64, l2)


# L2, bytes a second: V100 2.1e12 (Jia et al.); A100 and H100 about 2000 and 2800 bytes a cycle (Luo et al.;
# 5.5e12 for the H100 by chipsandcheese.com, 2023); L4 by its clock; AMD: 64 or 128 bytes a cycle and channel,
# of 16 or 32 channels (white papers). Others have no numbers yet.
PORTS: Mapping[str, Ports] = {
    "sm_70": _nvidia(64, 4, alu=5, shared=19, cache=193, l2=2.1e12, matrix=18),
    "sm_75": _nvidia(64, 64, alu=5, shared=19, cache=188, l2=1.2e12, matrix=18),
    "sm_80": _nvidia(64, 4, alu=4, shared=29, cache=262, l2=2.8e12, matrix=25),
    "sm_86": _nvidia(128, 64, alu=4, shared=29, cache=270, l2=2.0e12, matrix=33),
    "sm_89": _nvidia(128, 64, alu=4, shared=30, cache=273, l2=1.9e12, matrix=33),
    "sm_90": _nvidia(128, 2, alu=4, shared=29, cache=263, l2=5.5e12, matrix=33),
    "gfx906": _cdna(l2=1.8e12, latency_l2=300, f64=8),
    "gfx908": _cdna(l2=3.0e12, latency_l2=300, f64=8),
    "gfx90a": _cdna(l2=6.9e12, latency_l2=300, f64=4),
}


@dataclass(frozen=True, slots=True)
class PortMachine:
    """An architecture with its ports; passes: through shared memory, by instructions' texts."""

    arch: GpuArch
    ports: Ports
    passes: Mapping[str, int] = field(default_factory=dict)


def busy(instructions: Iterable[MachineInstruction], machine: PortMachine) -> dict[str, float]:
    """Cycles of each port of a partition that these instructions of one sub-group take."""
    cycles: defaultdict[str, float] = defaultdict(float)
    for one in instructions:
        cycles[ISSUE] += machine.ports.issue_all
        for port, count in _ports_of(one, machine):
            cycles[port] += count
    return dict(cycles)


def _ports_of(one: MachineInstruction, machine: PortMachine) -> tuple[tuple[str, float], ...]:
    arch, ports = machine.arch, machine.ports
    partitions = RULES[arch.name].partitions
    moved = partitions * arch.lanes * one.lane_bytes
    if one.unit is Unit.SHARED:
        known = machine.passes.get(one.text)
        return (("shared", max(partitions, moved / ports.shared) if known is None else known * partitions),)
    if one.unit in (Unit.GLOBAL, Unit.LOCAL):
        return (("cache", max(partitions, moved / ports.cache)),)
    if one.unit is Unit.MATRIX:
        return (("matrix", _matrix_cycles(one, arch, partitions)),)
    return ports.ports.get(one.unit, ())


def _matrix_cycles(one: MachineInstruction, arch: GpuArch, partitions: int) -> float:
    """Multiply-adds of a product over the rate of a partition; one without a known rate takes 32 cycles."""
    rate = MATRIX_RATES.get(arch.name, {}).get(one.operation)
    if rate is None:
        return 32.0
    m, n, k = (int(part[1:]) for part in _extents(one.operation))
    return m * n * k * partitions / rate


def _extents(operation: str) -> tuple[str, str, str]:
    """`mma.m16n8k8.f16` as m16, n8, k8."""
    shape = operation.split(".")[1]
    n, k = shape.index("n"), shape.index("k")
    return shape[:n], shape[n:k], shape[k:]


@dataclass(slots=True)
class _Clock:
    """When a sub-group starts its next instruction, and when what it has started will be there."""

    now: float = 0.0
    ready: dict[str, float] = field(default_factory=dict)
    queues: dict[str, list[float]] = field(default_factory=dict)


def cycles_alone(instructions: Sequence[MachineInstruction], machine: PortMachine) -> float:
    """Cycles from one round of these instructions to the next when no other sub-group is there.

    In order, each behind what it reads and waits for.
    """
    clock = _Clock()
    starts = []
    for _ in range(4):
        starts.append(clock.now)
        for one in instructions:
            _start(one, clock, machine)
    return (clock.now - starts[2]) / 2


def _start(one: MachineInstruction, clock: _Clock, machine: PortMachine) -> None:
    ports = machine.ports
    for name in (*one.uses, *one.defines):
        clock.now = max(clock.now, clock.ready.get(name, 0.0))
    for queue, left in (one.waits or {}).items():
        waiting = clock.queues.get(queue, [])
        done = waiting[: max(0, len(waiting) - left)]
        clock.now = max([clock.now, *done])
        clock.queues[queue] = waiting[len(done) :]
    own = max((count for _, count in _ports_of(one, machine)), default=0.0)
    partitions = RULES[machine.arch.name].partitions if one.unit in _OF_UNIT else 1
    there = clock.now + max(ports.latency.get(one.unit, 0), own / partitions)
    if one.unit in (Unit.BRANCH, Unit.BARRIER):
        clock.now = there if one.goal or one.unit is Unit.BARRIER else clock.now
    for name in one.defines:
        clock.ready[name] = there
    if one.joins:
        there = max([there, *clock.queues.pop(one.joins, [])])
    if one.queue:
        clock.queues.setdefault(one.queue, []).append(there)
    clock.now += max(float(ports.issue), own / partitions if one.unit not in _OF_UNIT else 0.0)


_OF_UNIT = frozenset({Unit.SHARED, Unit.GLOBAL, Unit.LOCAL, Unit.SHUFFLE})
"""Those whose port all partitions share."""
