"""Tiles of matrix units: sub-groups for every part of a multiprocessor, and what is written out."""

from __future__ import annotations

import math

import pytest

from compiler.loops.matrix_units import UNITS
from compiler.schedule.rules.threads.matrix_tile import (
    MatrixTile,
    alternating,
    matrix_options,
    matrix_tile_cycles,
)
from compiler.schedule.rules.threads.tile import GemmProblem
from compiler.targets import get_target

PARTS = 4
CONVOLUTION = GemmProblem(1, 64, 3136, 64, 576, 4)
"""A convolution of 64 channels over 56 x 56 places, 3 x 3."""

PROBLEMS = [CONVOLUTION, GemmProblem(1, 256, 3136, 64, 64, 4), GemmProblem(1, 128, 784, 128, 1152, 4)]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("rocm:gfx908", "mfma.m16n16k4.f32"),
        ("rocm:gfx908", "mfma.m32n32k2.f32"),
        ("rocm:gfx90a", "mfma.m16n16k16.f16"),
        ("cuda:sm_80", "mma.m16n8k8.tf32"),
        ("cuda:sm_80", "mma.m16n8k16.f16"),
    ],
)
def test_every_part_has_a_sub_group(target: str, name: str, problem: GemmProblem) -> None:
    facts, unit = get_target(target).facts, UNITS[name]
    best = min(matrix_options(unit, problem, facts), key=lambda option: option.cost)
    tile = MatrixTile(unit, *best.value)
    blocks = math.ceil(problem.rows / tile.rows) * math.ceil(problem.columns / tile.columns)
    room = min(
        math.ceil(blocks / (facts.limit("units") or 1)),
        (facts.limit("registers_per_unit") or 0) // (tile.registers * tile.threads),
        (facts.limit("shared_bytes_most") or 0) // tile.shared_bytes,
    )
    whole = problem.rows * problem.columns // (unit.rows * unit.columns * (facts.limit("units") or 1))
    assert room * tile.groups >= min(PARTS, whole)
    assert tile.registers <= 168


def test_more_sub_groups_are_cheaper_than_one() -> None:
    """The same results by one sub-group leave three parts of the unit without work."""
    facts, unit = get_target("rocm:gfx908").facts, UNITS["mfma.m16n16k4.f32"]
    one, four = MatrixTile(unit, 1, 1, 2, 2, 16), MatrixTile(unit, 2, 2, 1, 1, 16)
    assert (one.rows, one.columns) == (four.rows, four.columns)
    few = GemmProblem(1, 256, 196, 1024, 1024, 4)
    assert matrix_tile_cycles(four, few, facts) < 0.6 * matrix_tile_cycles(one, few, facts)


def test_more_parts_under_way_take_less_time() -> None:
    """Of a product with few blocks, which waits for memory (an H100: 14.5 us with two, 11.3 with four)."""
    facts, unit = get_target("cuda:sm_90").facts, UNITS["mma.m16n8k16.f16"]
    problem = GemmProblem(1, 128, 3072, 768, 768, 4, plain=True)
    two, four = (MatrixTile(unit, 2, 2, 2, 4, 64, stages, 1) for stages in (2, 4))
    assert matrix_tile_cycles(four, problem, facts) < 0.85 * matrix_tile_cycles(two, problem, facts)


@pytest.mark.parametrize(
    ("name", "own", "beside"),
    [
        ("mma.m16n8k16.f16", 1, 1),
        ("mma.m16n8k16.f16", 2, 2),
        ("mma.m16n8k16.f16", 8, 4),
        ("mma.m8n8k4.f16", 4, 1),
        ("mfma.m16n16k4.f32", 4, 1),
    ],
)
def test_tiles_whose_lanes_hold_pairs_alternate(name: str, own: int, beside: int) -> None:
    assert alternating(MatrixTile(UNITS[name], 1, 1, 1, own, 32)) == beside


@pytest.mark.parametrize("rows", [8, 9])
def test_a_tile_of_which_half_is_nothing_is_not_offered(rows: int) -> None:
    """Of 16 rows a tile has; with 8 each lane would read what another one holds."""
    facts, unit = get_target("cuda:sm_90", precision="tf32").facts, UNITS["mma.m16n8k8.tf32"]
    options = matrix_options(unit, GemmProblem(1, rows, 784, 28, 25, 4), facts)
    assert bool(options) == (rows > 8)


def test_what_is_fetched_takes_registers() -> None:
    unit = UNITS["mfma.m16n16k4.f32"]
    shallow, deep = (MatrixTile(unit, 1, 1, 2, 4, depth) for depth in (16, 64))
    assert deep.registers - shallow.registers == (deep.rows + deep.columns) * 48 // 64


def test_long_rounds_are_not_written_out() -> None:
    unit = UNITS["mfma.m16n16k4.f32"]
    assert MatrixTile(unit, 2, 2, 1, 1, 64).unrolled == 16
    assert MatrixTile(unit, 2, 2, 4, 4, 64).unrolled == 8
    assert MatrixTile(unit, 2, 2, 8, 8, 64).unrolled == 2
