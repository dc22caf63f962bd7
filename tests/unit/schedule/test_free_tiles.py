"""Tiles of sums of products of which a run has a part: they count for shorter runs, too."""

from __future__ import annotations

import pytest

from compiler.loops.build import Builder
from compiler.loops.ir import EXTENTS, OPERANDS, SYMBOLS, Func
from compiler.schedule.chooser import Option
from compiler.schedule.rules.threads.axes import find_axes, free_iterations
from compiler.schedule.rules.threads.tile import GemmProblem, ThreadTile, thread_tiles, tile_cycles
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target

FACTS = get_target("cuda:sm_90").facts
TOKENS = (SYMBOLS, ((1, 512),))


def product(*attrs: tuple[str, tuple[tuple[int, ...], ...]]) -> Func:
    """Rows of x, as many as there are tokens, by a known matrix."""
    b = Builder("product")
    x, w = b.input("x", (512, 64)), b.input("w", (64, 768))
    return b.finish([b.reduce("y", (512, 768), (64,), lambda i, j, k: x[i, k] * w[k, j])], attrs)


def test_a_run_has_some_of_the_rows() -> None:
    func = product(TOKENS, (EXTENTS, ((2, 0, 0, 1, 1),)), (OPERANDS, ((0, 0, 0, 1, 1),)))
    block = Schedule(func).site("y")
    free = free_iterations(func, block)
    axes = find_axes(block)
    assert axes is not None
    assert free == {0}
    assert axes.extents() == (1, 512, 768)
    assert axes.smaller(free) == ((1, 128, 768), (1, 16, 768))


def test_a_function_of_one_size_has_all() -> None:
    func = product()
    block = Schedule(func).site("y")
    axes = find_axes(block)
    assert axes is not None
    assert axes.smaller(free_iterations(func, block)) == ()


@pytest.mark.parametrize("columns", [768, 3072])
def test_short_runs_count_and_the_longest_does_not_suffer(columns: int) -> None:
    whole = GemmProblem(8, 512, columns, 96, 96, 4, plain=True)
    sizes = GemmProblem(8, 512, columns, 96, 96, 4, plain=True, smaller=((8, 128, columns), (8, 16, columns)))
    short = GemmProblem(8, 16, columns, 96, 96, 4, plain=True)

    def best(options: list[Option]) -> ThreadTile:
        return ThreadTile(*min(options, key=lambda option: option.cost).value)

    alone, shared = best(thread_tiles(whole, FACTS)), best(thread_tiles(sizes, FACTS))
    assert tile_cycles(shared, short, FACTS) < tile_cycles(alone, short, FACTS)
    assert tile_cycles(shared, whole, FACTS) < 1.25 * tile_cycles(alone, whole, FACTS)
