"""Stems: few channels, whose terms are gathered together: the place of a term is known without a division."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from compiler.core.target import TargetFacts
from compiler.loops.interp import interpret
from compiler.loops.ir import Binary, Expr, For, ForKind, Func, statements
from compiler.loops.linear import divisor, is_division, is_masked
from compiler.loops.queries import int_of, variables
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule
from tests.support.gpu import SM_70
from tests.support.kernels import lower_all, run_flat
from tests.support.schedules import random_inputs
from tests.support.sketch import Sketch, works
from tests.unit.schedule.test_gpu_rules import assert_close

COPYING = replace(SM_70, intrinsics=SM_70.intrinsics | {"cp.async"})
FACTS = {"with copies": COPYING, "through registers": SM_70}
STEMS = {  # channels, size of the window, stride, pixels
    "3 x 3": (3, 3, 2, 33),
    "7 x 7": (3, 7, 2, 23),
    "5 x 5 of one": (1, 5, 1, 28),
    "5 x 5 of six": (6, 5, 1, 13),
    "2 x 2": (5, 2, 2, 32),
}


def stem(name: str, facts: TargetFacts) -> tuple[Func, Schedule, Func]:
    channels, size, stride, pixels = STEMS[name]
    s = Sketch()
    y = s.emit("Relu", s.conv(s.input(1, channels, pixels, pixels), 32, size, stride=stride))
    ((func, _),) = works(s.fused(y), 0)
    schedule = schedule_func(func, {}, facts, AnalyticChooser())
    return func, schedule, lower_all(schedule.func, facts)


def divisions_in_rounds(flat: Func) -> Iterator[Binary]:
    """Those of a number that a serial loop's variable is a part of; powers of two are masks."""
    rounds = [item for item in statements(flat.body) if isinstance(item, For) and item.kind is ForKind.SERIAL]
    for loop in rounds:
        for item in loop.body.walk():
            if not isinstance(item, Expr):
                continue
            if not (is_division(item, "floordiv") or is_division(item, "floormod")):
                continue
            if loop.var.name in variables(item.a) and not is_masked(divisor(item)):
                yield item


@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize("name", STEMS)
def test_nothing_divides_in_a_round(name: str, facts: str) -> None:
    func, schedule, flat = stem(name, FACTS[facts])
    assert list(divisions_in_rounds(flat)) == []
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(schedule.func, flat, inputs, shuffle=1))


@pytest.mark.parametrize("name", ["3 x 3", "7 x 7"])
def test_a_round_is_a_channel(name: str) -> None:
    _, _, flat = stem(name, COPYING)
    loops = [item for item in statements(flat.body) if isinstance(item, For) and not item.tag]
    assert STEMS[name][0] in [int_of(item.extent) for item in loops]
