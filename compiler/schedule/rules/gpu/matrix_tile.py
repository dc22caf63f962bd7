"""The choice of a tile for a sum of products on matrix units: what fits, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.matrix_units import MatrixUnit
from compiler.schedule.chooser import Option
from compiler.schedule.rules.gpu.tile import Problem

_OTHER_REGISTERS = 48
"""Registers of a thread beside its sums and operands: addresses, counters, what is fetched."""

_MOST_SUMS = 128
"""Sums that a thread holds at most, so that they stay in registers."""

_PARTS = 4
"""Matrix units of a multiprocessor (compute unit), each with sub-groups of its own."""

_LATENCY_CYCLES = 32.0
"""From one product to the next one that adds to its result, about; longer instructions hide their own."""

_MOST_RESIDENT = 32
"""Blocks that a unit works on at the same time at most."""

_SHARED_BYTES_A_CYCLE = 128
"""What a unit reads from shared memory in a cycle."""

_FROM_CACHE = 3.0
_SYNC_CYCLES = 80.0
_FETCH_CYCLES = 12.0
"""As in `tile`: caches beside memory, one round of fetching, and the addresses of one element."""

_PADDING_BYTES = 16
"""Between rows in shared memory, so that lanes read from different banks."""


@dataclass(frozen=True, slots=True)
class MatrixTile:
    """Sub-groups along rows and columns, products of each along both, and the steps staged at a time."""

    unit: MatrixUnit
    along_rows: int
    along_columns: int
    own_rows: int
    own_columns: int
    depth: int

    @property
    def threads(self) -> int:
        return self.along_rows * self.along_columns * self.unit.lanes

    @property
    def rows(self) -> int:
        return self.along_rows * self.own_rows * self.unit.rows

    @property
    def columns(self) -> int:
        return self.along_columns * self.own_columns * self.unit.columns

    @property
    def value(self) -> tuple[int, ...]:
        """The tile as a decision."""
        return (self.along_rows, self.along_columns, self.own_rows, self.own_columns, self.depth)

    @property
    def row_elements(self) -> int:
        """From one row of a staged factor to the next."""
        return self.depth + self.padding

    @property
    def padding(self) -> int:
        """Elements between staged rows."""
        return _PADDING_BYTES // self.unit.factor.bytes

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block."""
        return (self.rows + self.columns) * self.row_elements * self.unit.factor.bytes

    @property
    def registers(self) -> int:
        """Registers of 32 bits that a thread needs, about."""
        unit = self.unit
        held = self.own_rows * unit.a.registers + self.own_columns * unit.b.registers
        return (
            self.own_rows * self.own_columns * unit.c.registers
            + held * unit.factor.bytes // 4
            + _OTHER_REGISTERS
        )


def matrix_options(unit: MatrixUnit, problem: Problem, facts: TargetFacts) -> list[Option]:
    """Tiles that fit the limits of a block, with their estimated cost in cycles of the whole device."""
    return [
        Option(tile.value, cost(tile, problem, facts)) for tile in _tiles(unit) if _fits(tile, problem, facts)
    ]


def _tiles(unit: MatrixUnit) -> Iterator[MatrixTile]:
    for along_rows in (1, 2, 4):
        for along_columns in (1, 2, 4):
            for own_rows in (1, 2, 4, 8):
                for own_columns in (1, 2, 4, 8):
                    for depth in (16, 32, 64):
                        if depth % unit.steps == 0:
                            yield MatrixTile(unit, along_rows, along_columns, own_rows, own_columns, depth)


def _fits(tile: MatrixTile, problem: Problem, facts: TargetFacts) -> bool:
    unit = tile.unit
    per_unit = facts.limit("registers_per_unit")
    too_large = tile.rows >= 2 * max(problem.rows, unit.rows) or tile.columns >= 2 * max(
        problem.columns, unit.columns
    )
    return (
        not too_large
        and tile.threads <= min(facts.limit("threads_per_block") or 1024, 512)
        and tile.depth < 2 * max(problem.inner, unit.steps, 16)
        and tile.own_rows * tile.own_columns * unit.c.registers <= _MOST_SUMS
        and tile.registers <= (facts.limit("registers_per_thread") or 255)
        and (per_unit is None or tile.registers * tile.threads <= per_unit)
        and tile.shared_bytes <= (facts.limit("shared_bytes") or 0)
    )


def cost(tile: MatrixTile, problem: Problem, facts: TargetFacts) -> float:
    """Cycles until the last unit is done."""
    unit, size = tile.unit, tile.unit.factor.bytes
    grid = problem.batch * math.ceil(problem.rows / tile.rows) * math.ceil(problem.columns / tile.columns)
    turns = math.ceil(grid / (facts.limit("units") or 1))
    resident = min(turns, _resident(tile, facts))
    rounds = problem.steps // problem.inner * math.ceil(problem.inner / tile.depth)
    steps = rounds * tile.depth
    groups = tile.along_rows * tile.along_columns
    rate = dict(facts.matrix_rates)[unit.name]
    issue = unit.rows * unit.columns * unit.steps / (rate / _PARTS)
    wanted = _PARTS * max(1.0, _LATENCY_CYCLES / issue)
    busy = min(1.0, resident * groups * tile.own_rows * tile.own_columns / wanted)
    arithmetic = tile.rows * tile.columns * steps / rate / busy
    read = groups * (tile.own_rows * unit.rows + tile.own_columns * unit.columns) * steps * size
    elements = (tile.rows + tile.columns) * steps
    lanes = facts.fma_per_cycle * facts.lanes(32)
    fetched = elements * size * facts.hertz / (facts.bandwidth * _FROM_CACHE)
    addresses = elements * _FETCH_CYCLES / lanes / (2 if problem.lanes > 1 else 1)
    waiting = rounds * _SYNC_CYCLES / resident
    return turns * (
        max(arithmetic, addresses, read / _SHARED_BYTES_A_CYCLE, fetched)
        + waiting
        + tile.rows * tile.columns / lanes * 4
    )


def _resident(tile: MatrixTile, facts: TargetFacts) -> int:
    """Blocks that a unit works on at the same time."""
    threads = facts.limit("threads_per_unit") or 2048
    registers = facts.limit("registers_per_unit") or 65536
    shared = facts.limit("shared_bytes_most") or facts.limit("shared_bytes") or 1
    return max(
        1,
        min(
            _MOST_RESIDENT,
            threads // tile.threads,
            registers // (tile.registers * tile.threads),
            shared // max(1, tile.shared_bytes),
        ),
    )
