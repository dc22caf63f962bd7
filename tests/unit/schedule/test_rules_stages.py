"""What the rules make of forms with several stages: Winograd convolutions, windows over channels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import pytest

from compiler.core.target import TargetFacts
from compiler.loops.annotations import APART, stage_of
from compiler.loops.ir import REGISTER, SCRATCH, Buffer, ForKind, Func
from compiler.lower.place_allocations import place_allocations
from compiler.schedule.chooser import AnalyticChooser, Chooser, Option, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.estimate import seconds
from compiler.schedule.schedule import Schedule
from tests.support.sketch import NARROW, Sketch, works

WIDE = replace(NARROW, vector_bits=512, vector_registers=32)
LANES = 16
WHOLE, BY_BANDS = (0, 2, 4), (1, 2, 4)
"""Plans of the Winograd rule: rows of tiles per band (0: all), vectors and rows of the register tile."""


def filtered(form: str, chooser: Chooser, facts: TargetFacts = WIDE) -> Schedule:
    """A convolution of 32 x 32 channels of 16 x 16 elements between two others."""
    s = Sketch()
    x = s.conv(s.input(1, 3, 18, 18), 32)
    fused = s.fused(s.conv(s.emit("Relu", s.conv(x, 32, 3)), 3))
    func, layouts = list(works(fused, LANES, form))[1]
    return schedule_func(func, layouts, facts, chooser)


def planned(plan: tuple[int, ...], form: str = "winograd-4") -> Schedule:
    return filtered(form, ReplayChooser({"winograd.plan": plan}, AnalyticChooser()))


def names(schedule: Schedule) -> Mapping[str | None, str]:
    return {stage_of(block): block.name for block in schedule.func.blocks()}


def kinds(schedule: Schedule, block: str) -> list[ForKind]:
    return [schedule.loop(name).kind for name in schedule.loops(block)]


def scopes(func: Func) -> dict[str, str]:
    return {item.name: item.scope for item in func.allocs}


@pytest.mark.parametrize("plan", [WHOLE, BY_BANDS])
def test_transforms_stay_in_registers_written_out(plan: tuple[int, ...]) -> None:
    schedule = planned(plan)
    found = names(schedule)
    for stage in ("tile_rows", "result_rows"):
        (region,) = schedule.block(found[stage]).writes
        assert region.buffer.scope == REGISTER
        assert kinds(schedule, found[stage])[-3:] == [ForKind.UNROLLED] * 2 + [ForKind.VECTORIZED]


@pytest.mark.parametrize(("registers", "rows"), [(32, 2), (16, 1)])
def test_rows_are_made_in_pairs_where_registers_hold_them(registers: int, rows: int) -> None:
    schedule = filtered("winograd-4", AnalyticChooser(), replace(WIDE, vector_registers=registers))
    found = names(schedule)["result_rows"]
    (region,) = schedule.block(found).writes
    assert schedule.func.buffer(region.buffer.name).scope == REGISTER
    loops = [schedule.loop(name) for name in schedule.loops(found)]
    pair = next(number for number, loop in enumerate(loops) if APART in dict(loop.annotations))
    assert prod(getattr(loop.extent, "value", 0) for loop in loops[pair + 1 : -1]) == rows * 6


@pytest.mark.parametrize("plan", [WHOLE, BY_BANDS])
def test_products_are_summed_in_registers(plan: tuple[int, ...]) -> None:
    schedule = planned(plan)
    (region,) = schedule.block(names(schedule)["products"]).writes
    assert region.buffer.scope == REGISTER


def test_by_bands_all_is_private_to_the_thread() -> None:
    schedule = planned(BY_BANDS)
    outermost = {schedule.loops(name)[0] for name in names(schedule).values()}
    assert len(outermost) == 1
    assert schedule.loop(outermost.pop()).kind is ForKind.PARALLEL
    placed = place_allocations(schedule.func)
    assert not placed.workspace


def test_the_whole_image_is_shared_stage_by_stage() -> None:
    schedule = planned(WHOLE)
    found = names(schedule)
    first, second = schedule.loops(found["tiles"])[0], schedule.loops(found["products"])[0]
    assert first != second
    assert {schedule.loop(name).kind for name in (first, second)} == {ForKind.PARALLEL}
    assert [item.name for item in place_allocations(schedule.func).workspace] == ["tiles"]


@pytest.mark.parametrize("form", ["winograd-2", "winograd-4"])
def test_filters_are_packed_for_the_register_tile(form: str) -> None:
    schedule = planned(BY_BANDS, form)
    filters = schedule.func.buffer("filters")
    assert [getattr(item, "value", None) for item in filters.shape[2:]] == [1, 32, 2 * LANES]


def test_the_estimate_knows_what_it_cannot_schedule() -> None:
    s = Sketch()
    func, _ = next(works(s.fused(s.conv(s.input(1, 32, 18, 18), 32, 3)), LANES, "winograd-4"))
    assert seconds(func, {}, WIDE) == float("inf")


def test_fewer_products_cost_less_and_larger_filters_more() -> None:
    def estimates(channels: int, hw: int) -> list[float]:
        found = []
        for form in ("direct", "winograd-2", "winograd-4"):
            s = Sketch()
            x = s.conv(s.input(1, 3, hw + 2, hw + 2), channels)
            fused = s.fused(s.conv(s.conv(x, channels, 3), 16))
            func, layouts = list(works(fused, LANES, form))[1]
            found.append(seconds(func, layouts, WIDE))
        return found

    direct, two, four = estimates(64, 56)
    assert four < two < direct
    direct, two, four = estimates(512, 7)
    assert direct < two < four


def test_plans_fit_the_registers_but_those_that_only_a_search_takes() -> None:
    seen: list[Option] = []

    class Spy:
        def choose(self, name: str, options: list[Option]) -> tuple[int, ...]:
            if name == "winograd.plan":
                seen.extend(options)
            return min(options, key=lambda option: option.cost).value

    filtered("winograd-4", Spy())  # type: ignore[arg-type]
    assert {option.value[0] for option in seen} >= {0, 1, 2}
    sums = {option: option.value[1] * option.value[2] for option in seen}
    fitting = [option.cost for option, count in sums.items() if count < WIDE.vector_registers]
    larger = [option.cost for option, count in sums.items() if count >= WIDE.vector_registers]
    assert max(sums.values()) <= WIDE.vector_registers, "the sums are always in registers"
    assert min(fitting) <= min(larger), "what is taken without a search"
    first = min(seen, key=lambda option: option.cost)
    assert sums[first] < WIDE.vector_registers


# ---------------------------------------------------------------- windows over channels


def normalised(channels: int) -> Schedule:
    s = Sketch()
    x = s.conv(s.input(1, 3, 24, 24), channels)
    y = s.emit("LRN", x, size=5, alpha=1e-4, beta=0.75, bias=1.0)
    func, layouts = list(works(s.fused(s.conv(y, 3)), LANES))[1]
    return schedule_func(func, layouts, WIDE, AnalyticChooser())


def test_a_window_reads_a_row_of_channels_in_scratch() -> None:
    schedule = normalised(64)
    placed = place_allocations(schedule.func)
    assert not placed.workspace
    private = [item for item in placed.body.walk() if isinstance(item, Buffer) and item.scope == SCRATCH]
    assert {item.name for item in private} == {"squares"}
    for block in schedule.func.blocks():
        last = kinds(schedule, block.name)[-1]
        assert last is (ForKind.UNROLLED if block.name.startswith("squares_outside") else ForKind.VECTORIZED)


def test_channels_that_do_not_fill_vectors_take_the_plain_way() -> None:
    schedule = normalised(20)
    assert {stage_of(block) for block in schedule.func.blocks()} == {"window", None}
