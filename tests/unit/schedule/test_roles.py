"""What the axes of a sum do, and what a tile of it therefore reads."""

from __future__ import annotations

import pytest

from compiler.core.types import F32
from compiler.loops.build import Builder
from compiler.loops.ir import CONSTANT, Func
from compiler.schedule.rules.vector.register_tile import register_tiles
from compiler.schedule.rules.vector.roles import find_roles, problem_of
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target

CHANNELS, PLACES, TAPS = 64, 28, 9


def _convolution(group: int) -> Func:
    """Along one axis, channels side by side; a group of them reads `group` channels."""
    b = Builder("conv")
    x = b.input("x", (PLACES + TAPS, CHANNELS), F32)
    w = b.input("w", (TAPS, group, CHANNELS), F32, scope=CONSTANT)
    y = b.reduce(
        "y",
        (PLACES, CHANNELS),
        (TAPS, group),
        lambda i, c, t, k: x[i + t, c // group * group + k if group > 1 else c] * w[t, k, c],
        dtype=F32,
    )
    return b.finish([y])


@pytest.mark.parametrize(("group", "shared"), [(1, False), (16, True), (CHANNELS, True)])
def test_lanes_of_single_channels_share_no_operand(group: int, shared: bool) -> None:
    block = Schedule(_convolution(group)).site("y")
    roles = find_roles(block)
    assert roles is not None
    assert problem_of(block, roles, get_target("cpu", "x86-64-v3").facts).broadcast == shared


@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4"])
def test_tiles_of_single_channels_are_long(arch: str) -> None:
    """Each vector has operands of its own: only neighbours along the rows share something, the weights."""
    facts = get_target("cpu", arch).facts
    block = Schedule(_convolution(1)).site("y")
    roles = find_roles(block)
    assert roles is not None
    best = min(register_tiles(problem_of(block, roles, facts), facts), key=lambda option: option.cost)
    vectors, rows, _ = best.value
    assert vectors == 1
    assert rows >= 14
