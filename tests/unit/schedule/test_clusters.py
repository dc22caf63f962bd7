"""Chunks of a sum that a cluster or the last block adds up: right, without races, where they can be."""

from __future__ import annotations

import re
from itertools import islice

import pytest

from compiler.core.target import TargetFacts
from compiler.core.types import F16, F32
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import RANK, Cast, For, Func, LastBlock, maximum, statements
from compiler.loops.queries import extent_of
from compiler.render.device import render_launches
from compiler.render.vocabulary_cuda import CUDA
from compiler.schedule.chooser import AnalyticChooser, AskedOnce, Option, RecordingChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.threads.adding import Adder
from compiler.schedule.rules.threads.split_k import Ways, chosen_chunks
from compiler.schedule.rules.threads.tile import AddsUp
from compiler.targets import get_target
from compiler.tune.strategies.tree import DecisionTree, FirstChooser, OpenChooser
from compiler.verify.interpreted import pack_inputs, run_flat, unpack_outputs
from tests.support.gpu import HOPPER, SM_70
from tests.support.kernels import lower_all
from tests.support.schedules import random_inputs
from tests.unit.schedule.test_gpu_rules import assert_close

SM_90 = get_target("cuda:sm_90").facts


def product(rows: int, columns: int, terms: int, *, narrow: bool = False) -> Func:
    """relu(x @ w + bias + other)."""
    kind = F16 if narrow else F32
    b = Builder("product")
    x, w = b.input("x", (rows, terms), kind), b.constant("w", (terms, columns), kind)
    bias, other = b.constant("bias", (columns,)), b.input("other", (rows, columns))
    sizes = (rows, columns), (terms,)
    y = b.reduce("y", *sizes, lambda i, j, r: Cast(F32, x[i, r]) * Cast(F32, w[r, j]), dtype=F32)
    relu = b.compute("relu", (rows, columns), lambda i, j: maximum(y[i, j] + bias[j] + other[i, j], 0.0))
    return b.finish([relu])


def cut(
    func: Func, chunks: int, facts: TargetFacts, way: AddsUp = AddsUp.CLUSTER, /, **others: tuple[int, ...]
) -> tuple[Func, Func, ReplayChooser]:
    """As scheduled and as lowered, and what was decided."""
    chosen = {"y.chunks": (chunks,), "y.adds_up": (way,), **others}
    chooser = ReplayChooser(chosen, AnalyticChooser())
    scheduled = schedule_func(func, {}, facts, chooser).func
    return scheduled, lower_all(scheduled, facts), chooser


def assert_right(func: Func, scheduled: Func, lowered: Func) -> None:
    """As the function, in any order of threads and blocks, and without a race."""
    inputs = random_inputs(func)
    wanted = interpret(func, inputs)
    assert_close(wanted, run_flat(scheduled, lowered, inputs, shuffle=1))
    watched = interpret(lowered, pack_inputs(scheduled, inputs), races=True)
    assert_close(wanted, unpack_outputs(scheduled, watched))


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "chunks"),
    [(8, 12, 384, 4), (5, 49, 384, 3), (33, 7, 512, 8), (16, 64, 256, 2)],
)
def test_one_launch_adds_all_chunks_up(rows: int, columns: int, terms: int, chunks: int) -> None:
    func = product(rows, columns, terms)
    scheduled, lowered, _ = cut(func, chunks, HOPPER)
    ranks = [item for item in statements(lowered.body) if isinstance(item, For) and item.tag == RANK]
    assert [extent_of(item.extent) for item in ranks] == [chunks]
    assert len(render_launches(lowered, 0, CUDA, HOPPER).launches) == 1
    assert_right(func, scheduled, lowered)


@pytest.mark.parametrize("chunks", [2, 4])
def test_on_matrix_units(chunks: int) -> None:
    func = product(32, 24, 256, narrow=True)
    scheduled, lowered, _ = cut(
        func, chunks, SM_90, **{"y_rf.unit": (1,), "y_rf.tile": (1, 1, 2, 2, 32, 2, 1)}
    )
    text = render_launches(lowered, 0, CUDA, SM_90).text
    assert "tk_mma_" in text
    assert "tk_in_block" in text
    assert text.count("tk_cluster_barrier") == 1, "what four tiles leave lies apart"
    assert_right(func, scheduled, lowered)


def test_blocks_read_what_others_left_and_write_their_own() -> None:
    _, lowered, _ = cut(product(8, 12, 384), 4, HOPPER)
    device = render_launches(lowered, 0, CUDA, HOPPER)
    lines = [line.strip() for line in device.text.splitlines()]
    assert "__cluster_dims__(1, 1, 4)" in device.text
    assert device.launches[0].grid[2] == 4, "blocks of a cluster are neighbours along z"
    reads = [line for line in lines if "tk_in_block" in line]
    assert len(reads) == 4, "one of each block"
    assert not any("tk_in_block" in line.split("=")[0] for line in lines)
    assert lines.count("tk_cluster_barrier();") == 1
    assert lines[-2:] == ["tk_cluster_end();", "}"], "no block ends while others read"


@pytest.mark.parametrize(
    ("facts", "chunks"), [(SM_70, 4), (HOPPER, 16)], ids=["no clusters", "too many chunks"]
)
def test_else_another_launch_does(facts: TargetFacts, chunks: int) -> None:
    _, lowered, chooser = cut(product(8, 12, 384), chunks, facts)
    assert "y.adds_up" not in chooser.decisions
    assert len(render_launches(lowered, 0, CUDA, facts).launches) == 2
    assert "cluster" not in render_launches(lowered, 0, CUDA, facts).text


@pytest.mark.parametrize(
    ("target", "rows", "columns", "terms", "chunks"),
    [
        ("cuda:sm_70", 8, 12, 384, 4),
        ("cuda:sm_80", 5, 49, 384, 3),
        ("cuda:sm_80", 33, 7, 512, 16),
        ("cuda:sm_90", 20, 40, 256, 16),
        ("rocm:gfx906", 16, 64, 256, 2),
        ("rocm:gfx90a", 9, 20, 512, 8),
    ],
)
def test_the_last_block_adds_all_chunks_up(
    target: str, rows: int, columns: int, terms: int, chunks: int
) -> None:
    func, made = product(rows, columns, terms), get_target(target)
    scheduled, lowered, _ = cut(func, chunks, made.facts, AddsUp.LAST_BLOCK)
    (last,) = (item for item in statements(lowered.body) if isinstance(item, LastBlock))
    assert last.count == chunks
    assert [item.name for item in lowered.counters] == [last.buffer.name]
    (launch,) = render_launches(lowered, 0, made.vocabulary, made.facts).launches
    assert launch.grid[2] == chunks
    assert launch.grid[0] * launch.grid[1] == extent_of(last.buffer.shape[0]), "a counter for each tile"
    assert_right(func, scheduled, lowered)


@pytest.mark.parametrize("target", ["rocm:gfx1030", "cuda:sm_80"])
def test_the_last_block_asks_for_what_registers_hold(target: str) -> None:
    """LLVM keeps all that is asked for at a time: of a few columns in many chunks a thread spilled 2 KB."""
    func, made = product(16, 25, 256), get_target(target)
    tile = {"y_rf.unit": (0,), "y_rf.tile": (4, 8, 4, 4, 8, 1, 0)}
    scheduled, lowered, _ = cut(func, 32, made.facts, AddsUp.LAST_BLOCK, **tile)
    _, _, adds = render_launches(lowered, 0, made.vocabulary, made.facts).text.partition("tk_last_block")
    assert 32 <= adds.count(" += ") <= 128
    assert_right(func, scheduled, lowered)


@pytest.mark.parametrize("chunks", [2, 8])
def test_the_last_block_on_matrix_units(chunks: int) -> None:
    func, facts = product(32, 24, 256, narrow=True), get_target("cuda:sm_80").facts
    scheduled, lowered, _ = cut(func, chunks, facts, AddsUp.LAST_BLOCK, **{"y_rf.unit": (1,)})
    text = render_launches(lowered, 0, CUDA, facts).text
    assert "tk_mma_" in text
    assert "tk_last_block" in text
    assert_right(func, scheduled, lowered)


@pytest.mark.parametrize(("along", "least"), [((8, 16), 1), ((16, 32), 2)])
def test_amd_is_told_of_the_waves_of_one_block_and_of_all(along: tuple[int, int], least: int) -> None:
    """LLVM takes no notice of bounds below the waves of a block: of 512 threads a part of a unit has two."""
    made = get_target("rocm:gfx90a")
    threads = {"y_rf.unit": (0,), "y_rf.tile": (*along, 1, 4, 16, 1, 0)}
    _, lowered, _ = cut(product(64, 128, 512), 4, made.facts, AddsUp.LAST_BLOCK, **threads)
    text = render_launches(lowered, 0, made.vocabulary, made.facts).text
    assert f"__launch_bounds__({along[0] * along[1]}) TK_WAVES({least}, " in text


def test_reads_of_the_last_block_stand_in_front_of_its_stores() -> None:
    """Compilers leave reads behind stores, and each of these waits for the last cache."""
    facts = get_target("cuda:sm_80").facts
    _, lowered, _ = cut(
        product(64, 49, 512), 4, facts, AddsUp.LAST_BLOCK, **{"y_rf.tile": (8, 8, 2, 4, 16, 1, 0)}
    )
    lines = render_launches(lowered, 0, CUDA, facts).text.partition("tk_last_block")[2].splitlines()
    stores = [n for n, line in enumerate(lines) if re.match(r"\s*p\d+\[\d+\] = ", line)]
    reads = [n for n, line in enumerate(lines) if re.search(r"v\d+ \+= p\d+\[", line)]
    assert len(stores) == 8
    assert max(reads) < min(stores)
    assert sum("if (" in line for line in lines) == 1, "one condition around all"


def test_either_way_can_be_decided() -> None:
    _, lowered, chooser = cut(product(8, 12, 384), 4, HOPPER, AddsUp.LAUNCH)
    assert chooser.decisions["y.adds_up"] == (0,)
    assert len(render_launches(lowered, 0, CUDA, HOPPER).launches) == 2


@pytest.mark.parametrize(("rows", "asked"), [(3, False), (4, True)])
def test_chunks_are_for_products_that_tiles_are_for(rows: int, asked: bool) -> None:
    chooser = AnalyticChooser()
    schedule_func(product(rows, 32, 512), {}, SM_90, chooser)
    assert ("y.chunks" in chooser.decisions) == asked


LAUNCHES = Option((0,), 3.0)
WAYS: Ways = {(1,): [Option((0,), 9.0)], (2,): [LAUNCHES, Option((AddsUp.CLUSTER,), 2.0)], (4,): [LAUNCHES]}


def test_what_is_refused_is_not_tried_again_but_one_piece_is() -> None:
    tried = [*islice(chosen_chunks(AnalyticChooser(), "y", WAYS), 3)]
    assert tried == [((2,), Adder("y", 2, AddsUp.CLUSTER)), ((2,), None), ((1,), None)]


def test_a_search_that_tries_everything_ends_where_ways_are_refused() -> None:
    tree, made = DecisionTree(), list[int]()
    while not tree.is_closed:
        recording = RecordingChooser(OpenChooser(tree, FirstChooser()))
        ways = chosen_chunks(AskedOnce(recording), "y", WAYS)
        made.append(next(chunks for (chunks,), adder in ways if chunks == 1 or (chunks == 4 and not adder)))
        tree.add(recording.decisions, recording.offered)
    assert sorted(made) == [1, 1, 1, 1, 1, 4, 4]
