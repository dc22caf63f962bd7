"""Layouts by cost: what is cheap is taken, conversions count, and no other assignment costs less."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from compiler.graph.alias import lies_inside, may_be_in_place
from compiler.graph.choose_layouts import choose_layouts, layout_choices
from compiler.graph.fuse import FusedGraph, Group
from compiler.graph.ir import Value
from compiler.loops.layout import Layout
from tests.support.sketch import Sketch

LANES = 8


@pytest.fixture
def s() -> Sketch:
    return Sketch()


@dataclass(frozen=True)
class Toy:
    """Row-major costs `rows` for each tensor written, every change of layout `change`."""

    rows: float = 0.0
    change: float = 0.0
    lanes: int = LANES
    channels_last: bool = False

    def write(self, group: Group, value: Value, result: Layout) -> float:  # noqa: ARG002
        return 0.0 if result.lanes else self.rows

    def read(self, group: Group, value: Value, source: Layout, result: Layout) -> float:  # noqa: ARG002
        return 0.0 if kind(source) == kind(result) else self.change


@dataclass(frozen=True)
class Noise:
    """Whole numbers that depend on what is asked, the same each time; some things are impossible."""

    seed: int
    lanes: int = LANES
    channels_last: bool = False

    def write(self, group: Group, value: Value, result: Layout) -> float:
        return self._number(group, value, kind(result))

    def read(self, group: Group, value: Value, source: Layout, result: Layout) -> float:
        number = self._number(group, value, (*kind(source), *kind(result)))
        return math.inf if number == 9 and source.lanes else number

    def _number(self, group: Group, value: Value, what: tuple[int, ...]) -> float:
        key = [self.seed, group.outputs[0].id, value.id, *what]
        return float(np.random.default_rng(key).integers(10))


def kind(layout: Layout) -> tuple[int, int]:
    return layout.lanes, layout.group


def chain(s: Sketch, count: int) -> tuple[FusedGraph, list[Value]]:
    """Convolutions one after the other; the tensors between them."""
    inner = []
    y = s.input(1, 16, 5, 5)
    for _ in range(count):
        y = s.conv(y, 16)
        inner.append(y)
    return s.fused(s.conv(y, 16)), inner


def cost(fused: FusedGraph, costs: Toy | Noise, layouts: Mapping[Value, Layout]) -> float:
    """The time of all groups, written down once more: a join is in place where all of its parts are."""
    seconds = 0.0
    for group, may_join in may_be_in_place(fused).items():
        result = group.outputs[0]
        reads = [value for value in group.inputs if value in layouts]
        copied = sum(costs.write(group, value, layouts[value]) for value in group.outputs)
        copied += sum(costs.read(group, value, layouts[value], layouts[result]) for value in reads)
        placed = may_join and all(lies_inside(group, v, layouts[v], layouts[result]) for v in reads)
        seconds += min(copied, 0.0) if placed else copied
    return seconds


def test_blocks_where_rows_cost_more_than_both_conversions(s: Sketch) -> None:
    fused, inner = chain(s, 3)
    layouts = choose_layouts(fused, Toy(rows=1.0, change=1.4))
    assert [layouts[value].lanes for value in inner] == [LANES] * 3


def test_rows_where_the_conversions_cost_more(s: Sketch) -> None:
    """The same graph; the model's input and output are row-major, so blocks mean two conversions."""
    fused, inner = chain(s, 3)
    layouts = choose_layouts(fused, Toy(rows=1.0, change=1.6))
    assert [layouts[value].lanes for value in inner] == [0] * 3


def test_longer_chains_are_worth_more_conversions(s: Sketch) -> None:
    fused, inner = chain(s, 4)
    layouts = choose_layouts(fused, Toy(rows=1.0, change=1.6))
    assert [layouts[value].lanes for value in inner] == [LANES] * 4


def test_a_tie_is_row_major(s: Sketch) -> None:
    fused, inner = chain(s, 3)
    assert not any(choose_layouts(fused, Toy(rows=1.0, change=1.5))[value].maps for value in inner)
    assert not any(choose_layouts(fused, Toy())[value].maps for value in inner)


def test_a_join_in_place_is_worth_a_change_of_its_parts(s: Sketch) -> None:
    """Rows would be cheaper for each part alone; a join in rows of a batch of one is in place as well."""
    x = s.input(1, 16, 5, 5)
    a, b = s.conv(x, 16), s.emit("Sigmoid", s.pool(s.conv(x, 16), 1, 1))
    fused = s.fused(s.conv(s.emit("Concat", a, b, axis=1), 16))
    layouts = choose_layouts(fused, Toy(rows=1.0, change=0.1))
    assert len({kind(layouts[value]) for value in (a, b, fused.groups[-1].inputs[0])}) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(120))
def test_no_assignment_costs_less(seed: int) -> None:
    fused = random_graph(seed)
    costs = Noise(seed)
    choices = layout_choices(fused, costs)
    chosen = choose_layouts(fused, costs)
    assert chosen.keys() == choices.keys()
    assert all(chosen[value] in choices[value] for value in chosen)
    everything = itertools.product(*choices.values())
    least = min(cost(fused, costs, dict(zip(choices, items, strict=True))) for items in everything)
    assert cost(fused, costs, chosen) == least
    assert choose_layouts(fused, costs) == chosen


def random_graph(seed: int) -> FusedGraph:
    """Up to seven kernels: convolutions (some grouped), pools, sums, joins, on any earlier tensors."""
    source = np.random.default_rng(seed)
    s = Sketch()
    values = [s.input(1, 24, 4, 4)]
    for _ in range(int(source.integers(2, 8))):
        x = values[int(source.integers(len(values)))]
        other = values[int(source.integers(len(values)))]
        match int(source.integers(5)):
            case 0:
                y = s.conv(x, 24)
            case 1:
                y = s.conv(x, 24, groups=2)
            case 2:
                y = s.pool(x, 1, 1, "MaxPool")
            case 3:
                fits = other.type.shape == x.type.shape
                y = s.emit("Add", x, other) if fits else s.emit("Relu", x)
            case _:
                y = s.conv(s.emit("Concat", x, other, axis=1), 24)
        values.append(y)
    ends = [value for value in values[1:] if not any(value in node.inputs for node in s.nodes)]
    return s.fused(*ends)
