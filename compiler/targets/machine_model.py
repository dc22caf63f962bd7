"""What the machine code of a device function says of it: instructions, occupancy, a predicted time.

The prediction: how often a sub-group in the middle of the grid executes each instruction (`way.py`), what a
unit needs for that with as many sub-groups as have room (`port_model.py`, `occupancy.py`), and bytes over
bandwidths. It leaves out what only addresses and hardware know: requests that are not coalesced, misses of L2
beyond the tensors themselves, barriers that keep all sub-groups waiting, instruction caches, the launch.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.core.device_code import LoopCode, MachineCode, Occupancy
from compiler.targets import cuda, hip
from compiler.targets.cuda_tools import CUBIN
from compiler.targets.gcn import mark_gcn, read_gcn
from compiler.targets.gcn_values import gcn_address, gcn_start, gcn_step, gcn_taken
from compiler.targets.gpu import GpuArch
from compiler.targets.hip_tools import HSACO
from compiler.targets.lanes import Values
from compiler.targets.machine_code import (
    MachineFunction,
    MachineInstruction,
    MachineLoop,
    Unit,
    machine_function,
    unit_counts,
)
from compiler.targets.matrix_rates import MATRIX_RATES
from compiler.targets.occupancy import RULES, resident
from compiler.targets.port_model import PORTS, PortMachine, busy, cycles_alone
from compiler.targets.sass import mark_sass, read_sass
from compiler.targets.sass_values import sass_address, sass_predicate, sass_step
from compiler.targets.way import Meaning, Way, follow

_ARCHS: Mapping[str, GpuArch] = {**cuda.ARCHS, **hip.ARCHS}
_MEANINGS = {
    CUBIN: Meaning(sass_step, sass_predicate, sass_address, merges=True),
    HSACO: Meaning(gcn_step, gcn_taken, gcn_address, merges=False),
}
_READERS = {CUBIN: (read_sass, mark_sass), HSACO: (read_gcn, mark_gcn)}
_PACKED_POSITIONS = frozenset({"gfx90a", "gfx942"})
_TRIPS = 3
"""To the last cache and back, for the last block: a fence, the counter, a fence."""

KINDS = frozenset(_READERS)
"""Kinds of images whose machine code can be read."""


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """Blocks along x, y and z, threads of a block, and what a block takes on the architecture."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: int
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return math.prod(self.grid)

    @property
    def last(self) -> int:
        """Blocks that come last to their counter, where those along z come to the same one."""
        return math.prod(self.grid[:2])


def machine_code(
    kind: str, arch: str, name: str, text: str, launch: LaunchShape, kernel_bytes: int | None = None
) -> MachineCode:
    """What the labelled assembly of a device function says (`function_texts`); `kind` is that of the image.

    kernel_bytes: of the tensors that it reads and writes, if known.
    """
    function = machine_function(name, text, *_READERS[kind])
    card = _ARCHS[arch]
    late = function.behind_counter
    way = follow(function, _MEANINGS[kind], _start(kind, card, function, launch), late)
    room = resident(card, launch.threads, launch.registers, launch.shared_bytes)
    outside = _outside(function)
    loops = [(loop, loop.own) for loop in function.loops]
    parts = [*loops, (None, outside - late), *([(None, outside & late)] if late else [])]
    ports = PORTS.get(arch)
    machine = PortMachine(card, ports, way.passes) if ports is not None else None
    regions = [_region(function, loop, blocks, way, machine, late) for loop, blocks in parts]
    executed, traffic = _executed(function, way, card, launch, late)
    every = [one for block in function.blocks for one in block.instructions]
    code = MachineCode(
        instructions=len(every),
        divisions=sum(region.code.divisions for region in regions if region.loop),
        spills=sum(one.unit is Unit.LOCAL for one in every),
        occupancy=room,
        loops=tuple(region.code for region in regions if region.loop),
        executed=executed,
        traffic_bytes=traffic,
        certain=way.certain,
        units_used=min(1.0, launch.blocks / card.units),
        operations=tuple(sorted({one.operation for one in every if one.operation})),
    )
    if machine is None or room is None or not room.blocks:
        return code
    return _timed(code, regions, machine, launch, room, kernel_bytes)


def least_microseconds(arch: str, flops: int, kernel_bytes: int, operations: Sequence[str] = ()) -> float:
    """The least time that FLOPs and bytes allow on an architecture's card, on matrix units if used."""
    card = _ARCHS[arch]
    rates = [rate for name in operations if (rate := MATRIX_RATES.get(arch, {}).get(name))]
    peak = card.units * max([card.fma, *rates]) * 2 * card.hertz
    return 1e6 * max(flops / peak, kernel_bytes / card.bandwidth)


# ---------------------------------------------------------------- the way


def _start(kind: str, card: GpuArch, function: MachineFunction, launch: LaunchShape) -> Values:
    """Registers of the middle sub-group of the middle block."""
    x, y, _ = (*launch.block, 1, 1)[:3]
    subgroup = launch.threads // card.lanes // 2
    threads = [
        (number % x, number // x % y, number // x // y)
        for number in range(subgroup * card.lanes, (subgroup + 1) * card.lanes)
    ]
    group = [extent // 2 for extent in (*launch.grid, 1, 1)[:3]]
    if kind == HSACO:
        every = function.instructions(range(len(function.blocks)))
        return gcn_start(every, group, threads, packed=card.name in _PACKED_POSITIONS)
    places = {f"SR_TID.{axis}": tuple(one[at] for one in threads) for at, axis in enumerate("XYZ")}
    blocks = {f"SR_CTAID.{axis}": group[at] for at, axis in enumerate("XYZ")}
    return {**places, **blocks, "SR_CgaCtaId": 0}


def _outside(function: MachineFunction) -> frozenset[int]:
    inside = {number for loop in function.loops for number in loop.blocks}
    return frozenset(range(len(function.blocks))) - inside


def _executed(
    function: MachineFunction, way: Way, card: GpuArch, launch: LaunchShape, late: frozenset[int]
) -> tuple[dict[str, int], int]:
    """Instructions of a sub-group by unit, and the bytes that all of them move to and from global memory.

    late: code of the last blocks alone.
    """
    counts: Counter[str] = Counter()
    moved = 0.0
    for number, count in sorted(way.counts.items()):
        body = function.blocks[number].instructions
        counts.update({str(unit): count * many for unit, many in unit_counts(body).items()})
        moved += (launch.last / launch.blocks if number in late else 1) * sum(
            (count - way.idle.get(id(one), 0)) * one.lane_bytes for one in body if one.unit is Unit.GLOBAL
        )
    subgroups = math.ceil(launch.threads / card.lanes) * launch.blocks
    return dict(counts), round(moved * min(card.lanes, launch.threads) * subgroups)


# ---------------------------------------------------------------- the time


@dataclass(frozen=True, slots=True)
class _Region:
    """A loop without those inside it, or what is in none; busy, alone: of one round of one sub-group.

    late: the last of some blocks does it, alone on its unit.
    """

    late: bool
    loop: MachineLoop | None
    code: LoopCode
    busy: Mapping[str, float]
    alone: float

    def cycles(self, subgroups: float) -> tuple[float, str]:
        """Cycles of a round of so many sub-groups of a partition, and what takes the longest."""
        port = max(self.busy, key=lambda name: self.busy[name], default="")
        most = self.busy.get(port, 0.0) * subgroups
        return (most, port) if most >= self.alone else (self.alone, "latency")


def _region(
    function: MachineFunction,
    loop: MachineLoop | None,
    blocks: frozenset[int],
    way: Way,
    machine: PortMachine | None,
    behind_counter: frozenset[int],
) -> _Region:
    rounds = way.counts.get(loop.head, 0) if loop else 1
    late = bool(blocks) and blocks <= behind_counter
    body = function.instructions(blocks)
    code = LoopCode(
        label=function.blocks[loop.head].label if loop else "",
        depth=loop.depth if loop else 0,
        innermost=loop is not None and loop.innermost,
        instructions=len(body),
        units={str(unit): count for unit, count in unit_counts(body).items()},
        divisions=sum(one.divides for one in body),
        spills=sum(one.unit is Unit.LOCAL for one in body),
        rounds=rounds,
    )
    if machine is None or not rounds:
        return _Region(late, loop, code, {}, 0.0)
    cycles: defaultdict[str, float] = defaultdict(float)
    for number in blocks:
        share = way.counts.get(number, 0) / rounds
        for port, count in busy(function.blocks[number].instructions, machine).items():
            cycles[port] += share * count
    usual = [number for number in blocks if 2 * way.counts.get(number, 0) >= rounds]
    waits: Sequence[MachineInstruction] = function.instructions(usual)
    return _Region(late, loop, code, cycles, cycles_alone(waits, machine))


def _timed(
    code: MachineCode,
    regions: Sequence[_Region],
    machine: PortMachine,
    launch: LaunchShape,
    room: Occupancy,
    kernel_bytes: int | None,
) -> MachineCode:
    """With the time of the unit that has the most blocks, and of bytes over bandwidths."""
    card = machine.arch
    most = math.ceil(launch.blocks / card.units)
    together = min(room.blocks, most)
    batches = [together] * (most // together) + ([most % together] if most % together else [])
    each = math.ceil(launch.threads / card.lanes)
    partitions = RULES[card.name].partitions
    spent: defaultdict[str, float] = defaultdict(float)
    last = math.ceil(launch.last / card.units)
    for region in regions:
        for blocks in [last] if region.late else batches:
            cycles, by = region.cycles(math.ceil(blocks * each / partitions))
            spent[by] += region.code.rounds * cycles
    if any(region.late for region in regions):
        spent["latency"] += _TRIPS * machine.ports.latency[Unit.GLOBAL]
    full = math.ceil(together * each / partitions)
    loops = [_with_cycles(region, full) for region in regions if region.loop]
    moved = min(code.traffic_bytes, kernel_bytes) if kernel_bytes is not None else code.traffic_bytes
    times = {
        max(spent, key=lambda name: spent[name], default="latency"): 1e6 * sum(spent.values()) / card.hertz,
        "L2": 1e6 * code.traffic_bytes / machine.ports.l2,
        "memory": 1e6 * moved / card.bandwidth,
    }
    by = max(times, key=lambda name: times[name])
    return replace(
        code,
        loops=tuple(loops),
        microseconds=times[by],
        l2_microseconds=times["L2"],
        memory_microseconds=times["memory"],
        limited_by=by,
    )


def _with_cycles(region: _Region, subgroups: int) -> LoopCode:
    cycles, by = region.cycles(subgroups)
    return replace(region.code, cycles=cycles, limited_by=by) if region.code.rounds else region.code
