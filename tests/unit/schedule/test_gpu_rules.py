"""Rules for threads: what they make computes what the function says, before and after lowering.

The oracle is the interpreter on the function before scheduling. Unused memory is NaN, threads and blocks run
in shuffled order, and once more with memory watched.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import (
    SHARED,
    Alloc,
    Barrier,
    For,
    ForKind,
    Func,
    Load,
    Ramp,
    Seq,
    Stmt,
    Store,
    call,
    const,
    statements,
)
from compiler.loops.queries import extent_of
from compiler.loops.verify import verify_func
from compiler.lower.verify_launch import problems_of_launches
from compiler.schedule.chooser import AnalyticChooser, Chooser, Option, RandomChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import Trace
from tests.support.gpu import GFX906, PLAIN, SM_70, TINY
from tests.support.kernels import lower_all, pack_inputs, run_flat
from tests.support.schedules import Array, random_inputs, run_logical
from tests.support.works import GRAPHS, works_of

FACTS = {"sm_70": SM_70, "gfx906": GFX906, "tiny": TINY, "plain": PLAIN}
SEEDS = 2
STAGED = ("conv 3x3", "conv grouped", "conv batch", "matmul of activations", "attention", "dense")


def scheduled(name: str, facts: str, chooser: Chooser) -> list[tuple[Func, Schedule]]:
    """The functions of a graph, in row-major layouts."""
    found = works_of(name, 4, joined=False)
    return [(func, schedule_func(func, {}, FACTS[facts], chooser)) for func, _ in found]


def assert_close(wanted: dict[str, Array], got: dict[str, Array]) -> None:
    assert wanted.keys() == got.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name].reshape(array.shape), array, 1e-4, 1e-4, err_msg=name)


def assert_meaning(func: Func, schedule: Schedule, facts: str) -> Func:
    verify_func(schedule.func)
    inputs = random_inputs(func)
    wanted = interpret(func, inputs)
    assert_close(wanted, run_logical(schedule.func, inputs, shuffle=1))
    lowered = lower_all(schedule.func, FACTS[facts])
    assert problems_of_launches(lowered, FACTS[facts]) == ()
    lanes = FACTS[facts].subgroup_sizes[0]
    assert_close(wanted, run_flat(schedule.func, lowered, inputs, shuffle=2, subgroup=lanes))
    return lowered


def launches(lowered: Func) -> list[Stmt]:
    body = lowered.body
    return list(body.stmts) if isinstance(body, Seq) else [body]


@pytest.mark.sample(16)
@pytest.mark.parametrize("facts", FACTS)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_analytic_choice(name: str, facts: str) -> None:
    for func, schedule in scheduled(name, facts, AnalyticChooser()):
        for launch in launches(assert_meaning(func, schedule, facts)):
            tags = [item.tag for item in statements(launch) if isinstance(item, For) and item.tag]
            assert tags
            assert len(tags) == len(set(tags)), "one loop for each axis"
            assert tags == sorted(tags, key=lambda tag: tag.startswith("threadIdx")), (
                "blocks outside of threads"
            )


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("name", GRAPHS)
def test_any_point_of_the_design_space(name: str, seed: int) -> None:
    for func, schedule in scheduled(name, "tiny", RandomChooser(random.Random(f"{name} {seed}"))):
        assert_meaning(func, schedule, "tiny")


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", GRAPHS)
def test_threads_do_not_touch_what_another_one_writes(name: str) -> None:
    for func, schedule in scheduled(name, "tiny", AnalyticChooser()):
        lowered = lower_all(schedule.func, TINY)  # where each block of threads has shared memory of its own
        interpret(lowered, pack_inputs(schedule.func, random_inputs(func)), races=True)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_trace_replays(name: str) -> None:
    for func, schedule in scheduled(name, "sm_70", AnalyticChooser()):
        assert replay(Trace.from_json(schedule.trace.to_json()), func).func == schedule.func


@pytest.mark.parametrize("name", STAGED)
def test_both_factors_of_a_sum_of_products_are_staged(name: str) -> None:
    found = []
    for _, schedule in scheduled(name, "tiny", AnalyticChooser()):
        lowered = lower_all(schedule.func, TINY)
        shared = [
            i.buffer for i in statements(lowered.body) if isinstance(i, Alloc) and i.buffer.scope == SHARED
        ]
        found.append(len(shared))
        barriers = sum(isinstance(item, Barrier) for item in statements(lowered.body))
        assert barriers in (0, 1, 2) or len(shared) != 2, "one before the parts are fetched, one after"
    assert 2 in found


@dataclass
class StagesChooser:
    """Takes tiles with as many stages as asked for, and of loops that are not unrolled; else anything."""

    source: random.Random
    stages: int
    taken: list[tuple[int, ...]] = field(default_factory=list)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        if name.endswith(".unroll"):
            return min(options, key=lambda item: item.cost).value
        wanted = [item for item in options if len(item.value) == 7 and item.value[5:] == (self.stages, 0)]
        value = self.source.choice(wanted or list(options)).value
        self.taken += [value] if wanted else []
        return value


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["conv 3x3", "conv grouped", "conv batch", "conv dilated", "dense"])
def test_the_next_part_is_fetched_while_one_is_multiplied(name: str) -> None:
    chooser = StagesChooser(random.Random(name), 2)
    for func, schedule in scheduled(name, "tiny", chooser):
        lowered = assert_meaning(func, schedule, "tiny")
        interpret(lowered, pack_inputs(schedule.func, random_inputs(func)), races=True)
        if "software_pipeline" in [item.name for item in schedule.trace.instructions]:
            assert sum(isinstance(item, Barrier) for item in statements(lowered.body)) == 1
            assert multiplying_loops(lowered), "between the loads and the stores of the next part"
    assert chooser.taken


def multiplying_loops(lowered: Func) -> list[For]:
    """Serial loops that read shared memory and in which no thread waits."""
    loops = [i for i in statements(lowered.body) if isinstance(i, For) and i.kind is ForKind.SERIAL]
    return [
        loop
        for loop in loops
        if any(isinstance(item, Load) and item.buffer.scope == SHARED for item in loop.walk())
        and not any(isinstance(item, Barrier) for item in statements(loop.body))
    ]


def test_softmax_is_one_launch() -> None:
    b = wide_softmax(3, 100)
    lowered = assert_meaning(b, schedule_func(b, {}, SM_70, AnalyticChooser()), "sm_70")
    assert len(launches(lowered)) == 1
    assert any(isinstance(item, Barrier) for item in statements(lowered.body))


def wide_softmax(count: int, length: int) -> Func:
    b = Builder("softmax")
    x = b.input("x", (count, length))
    largest = b.reduce("largest", (count,), (length,), lambda i, r: x[i, r], "max")
    powers = b.compute("powers", (count, length), lambda i, j: call("exp", x[i, j] - largest[i]))
    total = b.reduce("total", (count,), (length,), lambda i, r: powers[i, r])
    return b.finish([b.compute("y", (count, length), lambda i, j: powers[i, j] / total[i])])


def product_of(m: int, n: int, k: int) -> Func:
    b = Builder("matmul")
    x, w = b.input("x", (m, k)), b.constant("w", (k, n))
    return b.finish([b.reduce("y", (m, n), (k,), lambda i, j, r: x[i, r] * w[r, j])])


def test_accesses_are_as_wide_as_they_can_be() -> None:
    func = product_of(16, 64, 16)
    lowered = assert_meaning(func, schedule_func(func, {}, TINY, AnalyticChooser()), "tiny")
    lanes = {
        item.buffer.name: item.indices[0].lanes
        for item in lowered.body.walk()
        if isinstance(item, Load | Store) and isinstance(item.indices[0], Ramp)
    }
    assert lanes["w"] == 4
    assert lanes["y"] == 4


def test_flat_work_takes_vectors_where_they_are_whole() -> None:
    for shape, wide in (((8, 64), True), ((9, 63), False)):
        b = Builder("scale")
        x = b.input("x", shape)
        func = b.finish([b.compute("y", shape, lambda i, j, x=x: x[i, j] * 2.0)])
        lowered = assert_meaning(func, schedule_func(func, {}, TINY, AnalyticChooser()), "tiny")
        ramps = [item for item in lowered.body.walk() if isinstance(item, Ramp)]
        assert bool(ramps) == wide


@pytest.mark.sample(4)
@pytest.mark.parametrize("seed", range(20))
def test_random_products(seed: int) -> None:
    r = random.Random(seed)
    m, n, k = (r.choice((1, 3, 4, 7, 8, 13, 16, 20, 33)) for _ in range(3))
    func = product_of(m, n, k)
    for facts in ("tiny", "gfx906"):
        assert_meaning(func, schedule_func(func, {}, FACTS[facts], RandomChooser(r)), facts)


@pytest.mark.parametrize("chunks", [1, 2, 3, 24])
def test_long_sums_in_any_number_of_chunks(chunks: int) -> None:
    func = product_of(8, 12, 384)
    chooser = ReplayChooser({"y.chunks": (chunks,)}, AnalyticChooser())
    lowered = assert_meaning(func, schedule_func(func, {}, SM_70, chooser), "sm_70")
    assert chooser.decisions["y.chunks"] == (chunks,)
    assert len(launches(lowered)) == (1 if chunks == 1 else 2)


def test_where_all_units_have_work_nothing_is_cut() -> None:
    for size, asked in ((8, True), (1024, False)):
        chooser = AnalyticChooser()
        schedule_func(product_of(size, 1024, 512), {}, SM_70, chooser)
        assert ("y.chunks" in chooser.decisions) == asked


@pytest.mark.parametrize("facts", FACTS)
def test_a_row_times_a_matrix_has_a_block_of_threads_for_each_result(facts: str) -> None:
    """The axis of one element is a loop of its own around the blocks; it does not keep them together."""
    func = product_of(1, 216, 117)
    lowered = assert_meaning(func, schedule_func(func, {}, FACTS[facts], AnalyticChooser()), facts)
    tags = [item.tag for item in statements(lowered.body) if isinstance(item, For) and item.tag]
    assert tags == ["blockIdx.x", "threadIdx.x"]


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("facts", ["sm_70", "gfx906", "tiny"])
def test_a_lone_sum_that_keeps_an_axis_of_one_has_a_block_of_threads_for_each_row(
    facts: str, op: str
) -> None:
    b = Builder("row")
    x = b.input("x", (7, 260))
    func = b.finish([b.reduce("y", (7, 1), (260,), lambda i, _, r: x[i, r], op)])
    lowered = assert_meaning(func, schedule_func(func, {}, FACTS[facts], AnalyticChooser()), facts)
    sizes = {item.tag: item.extent for item in statements(lowered.body) if isinstance(item, For) and item.tag}
    assert sizes["blockIdx.x"] == const(7)
    assert extent_of(sizes["threadIdx.x"]) >= 8


def test_loops_over_threads_have_one_kind() -> None:
    for name in STAGED:
        for _, schedule in scheduled(name, "tiny", AnalyticChooser()):
            kinds = {item.kind for item in schedule.func.body.walk() if isinstance(item, For)}
            assert ForKind.BOUND in kinds
            assert ForKind.PARALLEL not in kinds
