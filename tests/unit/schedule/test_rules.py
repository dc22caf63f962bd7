"""The structure of what the rules write: register tiles, vectors innermost, threads outermost.

Sizes are large enough to be worth a second thread; nothing is run here, `test_rules_meaning.py` does that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest

from compiler.core.target import TargetFacts
from compiler.graph.fuse_attention import fuse_attention
from compiler.graph.ir import Value
from compiler.loops.annotations import PREFETCH
from compiler.loops.ir import GLOBAL, REGISTER, SCRATCH, Alloc, Block, Call, Const, For, ForKind, Func, If
from compiler.loops.queries import variables
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.layout_changes import layouts_of
from compiler.schedule.rules import common, schedule_func
from compiler.schedule.rules.vector.attention import Attention, AttentionTile, attention_tiles
from compiler.schedule.rules.vector.register_tile import (
    ContractionProblem,
    RegisterTile,
    has_shorter_tile,
    outer_orders,
    register_tiles,
)
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.kernels import lower_all
from tests.support.sketch import NARROW, Sketch, works
from tests.support.works import dense, heads, layer_norm, norm_of_channels, swishes

WIDE = replace(NARROW, vector_bits=512, vector_registers=32)
AVX2 = replace(NARROW, vector_bits=256, vector_registers=16)
HALVES = replace(WIDE, fma_per_cycle=1)
LANES = 16
VECTOR, PARALLEL, SERIAL = ForKind.VECTORIZED, ForKind.PARALLEL, ForKind.SERIAL


def blocked(
    size: int, *, stride: int = 1, outer: int = 32, channels: int = 32, groups: int = 1, image: int = 18
) -> Callable[[Sketch], Value]:
    """A convolution, its bias and ReLU between two others."""

    def make(s: Sketch) -> Value:
        x = s.conv(s.input(1, 3, image, image), channels)
        y = s.conv(x, outer, size, stride=stride, groups=groups)
        y = s.emit("Relu", s.emit("Add", y, s.weights(outer, 1, 1)))
        return s.conv(y, 3)

    return make


CONTRACTIONS: dict[str, Callable[[Sketch], Value]] = {
    "3x3": blocked(3),
    "3x3 odd": blocked(3, outer=37),
    "7 x 7 image": blocked(3, channels=256, outer=128, image=9),
    "1x1": blocked(1, outer=96),
    "strided": blocked(3, stride=2, outer=64),
    "grouped": blocked(3, groups=2),
    "odd groups": blocked(3, groups=2, channels=40, outer=40),
    "depthwise": blocked(3, channels=64, outer=64, groups=64),
    "dense of one row": dense(1, 128, 256),
    "dense of seven rows": dense(7, 64, 128),
    "matmul of activations": lambda s: s.emit("MatMul", s.input(4, 16, 24), s.input(4, 24, 32)),
}


def schedules(make: Callable[[Sketch], Value]) -> list[Schedule]:
    sketch = Sketch()
    fused = sketch.fused(make(sketch))
    return [schedule_func(func, own, WIDE, AnalyticChooser()) for func, own in works(fused, LANES)]


def middle(make: Callable[[Sketch], Value]) -> Schedule:
    """The schedule of the work that is looked at: the second of three, or the only one."""
    found = schedules(make)
    return found[len(found) // 2]


def reductions(func: Func) -> list[Block]:
    return [item for item in func.blocks() if item.is_reduction]


def kinds(schedule: Schedule, block: str) -> list[ForKind]:
    return [schedule.loop(name).kind for name in schedule.loops(block)]


def trips(loop: For) -> int:
    assert isinstance(loop.extent, Const)
    return int(loop.extent.value)


@pytest.mark.sample(2, each=("name",))
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_a_contraction_accumulates_vectors_in_registers(name: str) -> None:
    schedule = middle(CONTRACTIONS[name])
    (sums,) = reductions(schedule.func)
    assert [region.buffer.scope for region in sums.writes] == [REGISTER]
    loops = [schedule.loop(loop) for loop in schedule.loops(sums.name)]
    assert loops[-1].kind is VECTOR
    assert trips(loops[-1]) == LANES
    assert VECTOR not in [loop.kind for loop in loops[:-1]]


@pytest.mark.sample(2, each=("name",))
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_the_tile_fits_the_registers_and_lies_inside_of_the_reduction(name: str) -> None:
    schedule = middle(CONTRACTIONS[name])
    (sums,) = reductions(schedule.func)
    loops = [schedule.loop(loop) for loop in schedule.loops(sums.name)]
    summed = {name for item in sums.iters if item.kind == "reduce" for name in variables(item.binding)}
    last = max(n for n, loop in enumerate(loops) if loop.var.name in summed)
    tile = 1
    for loop in loops[last + 1 : -1]:
        assert loop.kind is ForKind.UNROLLED
        tile *= trips(loop)
    assert 2 <= tile <= WIDE.vector_registers, "a single sum would wait for itself"


def test_a_tile_takes_several_lines_of_a_narrow_image() -> None:
    schedule = middle(CONTRACTIONS["7 x 7 image"])
    (sums,) = reductions(schedule.func)
    loops = [schedule.loop(loop) for loop in schedule.loops(sums.name)]
    lines, row, vectors, lane = loops[-4:]
    assert [trips(loop) for loop in (lines, row, vectors, lane)] == [2, 7, 2, LANES]
    assert sums.predicate is not None, "seven lines are no multiple of two"


def test_no_step_of_a_sum_asks_whether_the_last_vector_is_there() -> None:
    sketch = Sketch()
    fused = sketch.fused(blocked(5, outer=48, image=17)(sketch))
    func, layouts = list(works(fused, LANES))[1]
    chosen = ReplayChooser({"conv.tile": (2, 13, 1)}, AnalyticChooser())
    lowered = lower_all(schedule_func(func, layouts, WIDE, chosen).func, WIDE)
    loops = [item for item in lowered.body.walk() if isinstance(item, For)]
    written_out = {item.var.name for item in loops if item.kind is ForKind.UNROLLED}
    asked = [item.cond for loop in loops for item in loop.body.walk() if isinstance(item, If)]
    inside = [cond for cond in asked if variables(cond) & written_out]
    assert inside, "tiles of two vectors, and those of one"
    assert all(variables(cond) <= written_out for cond in inside), "decided where it is written out"


def test_sums_stay_in_registers_where_a_last_vector_is_stored_lane_by_lane() -> None:
    facts = replace(get_target("cpu:x86-64-v4").facts, intrinsics=frozenset())  # no masks
    sketch = Sketch()
    fused = sketch.fused(sketch.emit("MatMul", sketch.input(64, 768), sketch.weights(768, 50257)))
    (work,) = works(fused)
    chosen = ReplayChooser({"matmul.tile": (2, 13, 1)}, AnalyticChooser())
    lowered = lower_all(schedule_func(*work, facts, chosen).func, facts)
    held = [item.buffer for item in lowered.body.walk() if isinstance(item, Alloc)]
    assert REGISTER in {item.scope for item in held}, "but for the last columns"


def test_weights_from_memory_are_used_in_chunks_and_the_next_chunk_is_fetched() -> None:
    schedule = middle(CONTRACTIONS["7 x 7 image"])
    (sums,) = reductions(schedule.func)
    marked = [schedule.loop(loop) for loop in schedule.loops(sums.name)]
    notes = [dict(loop.annotations).get(PREFETCH) for loop in marked]
    weights = schedule.func.params[1]
    assert notes.count(weights.name) == 1
    chunk = notes.index(weights.name)
    assert trips(marked[chunk]) == 256 // LANES
    assert [loop.kind for loop in marked[:chunk]] == [PARALLEL], (
        "no tile of an image is outside of the chunks"
    )
    scopes = [buffer.scope for buffer in schedule.func.allocs]
    assert sorted(scopes) == sorted([REGISTER, SCRATCH]), "a tile, and the sums of all tiles"


def test_large_images_go_through_all_weights_at_once() -> None:
    for name in ("3x3", "1x1", "strided"):
        assert all(item.scope == REGISTER for item in middle(CONTRACTIONS[name]).func.allocs), name


@pytest.mark.parametrize(
    ("make", "fetched"),
    [(CONTRACTIONS["strided"], True), (blocked(1, outer=96, channels=16), False), (blocked(3), False)],
    ids=["several panels", "short ones", "one panel"],
)
def test_the_next_panel_is_fetched_if_there_is_one_longer_than_hardware_foresees(
    make: Callable[[Sketch], Value], *, fetched: bool
) -> None:
    func = middle(make).func
    notes = [dict(item.annotations).get(PREFETCH) for item in func.body.walk() if isinstance(item, For)]
    assert (func.params[1].name in notes) is fetched
    lowered = lower_all(func, WIDE)
    calls = [item for item in lowered.body.walk() if isinstance(item, Call) and item.name == "prefetch"]
    assert bool(calls) is fetched


def test_lines_stay_apart_where_a_row_fills_the_registers_or_threads_would_have_nothing_to_do() -> None:
    for name in ("3x3", "1x1", "strided"):
        (sums,) = reductions(middle(CONTRACTIONS[name]).func)
        assert sums.predicate is None, name
    schedule = middle(blocked(3, channels=64, outer=32, image=9))
    first = schedule.loop(schedule.loops(reductions(schedule.func)[0].name)[0])
    assert first.kind is PARALLEL
    assert trips(first) >= 4


@pytest.mark.sample(2, each=("name",))
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_one_loop_outermost_is_shared_by_the_threads(name: str) -> None:
    schedule = middle(CONTRACTIONS[name])
    outermost = {schedule.loops(block)[0] for block in schedule.blocks()}
    assert len(outermost) == 1, "start values, sums and epilogue share their loops"
    for block in schedule.blocks():
        found = kinds(schedule, block)
        assert found[0] is PARALLEL
        assert PARALLEL not in found[1:]


@pytest.mark.parametrize("rows", [784, 392])
def test_threads_share_rows_where_columns_do_not_come_out_even(rows: int) -> None:
    def make(s: Sketch) -> Value:
        return s.emit("Relu", s.emit("MatMul", s.input(rows, 384), s.weights(384, 192)))

    outermost = middle(make).func.body
    assert isinstance(outermost, For)
    assert (outermost.kind, trips(outermost) % 4) == (PARALLEL, 0)


@pytest.mark.sample(2, each=("name",))
@pytest.mark.parametrize("name", CONTRACTIONS)
def test_the_epilogue_is_vectors_under_the_loops_of_the_sums(name: str) -> None:
    schedule = middle(CONTRACTIONS[name])
    output = schedule.func.params[-1].name
    (writer,) = [b for b in schedule.func.blocks() if any(r.buffer.name == output for r in b.writes)]
    assert kinds(schedule, writer.name)[-1] is VECTOR


@pytest.mark.parametrize("name", ["3x3", "1x1", "dense of one row", "dense of seven rows", "depthwise"])
def test_weights_are_repacked_so_that_lanes_are_neighbours(name: str) -> None:
    schedule = middle(CONTRACTIONS[name])
    weights = schedule.func.params[1]
    assert layouts_of(schedule.func, weights.name)
    last = weights.shape[-1]
    assert isinstance(last, Const)
    assert int(last.value) % LANES == 0


def test_no_accumulator_is_left_in_memory() -> None:
    for name, make in CONTRACTIONS.items():
        if name == "7 x 7 image":  # its sums are in memory from one chunk of the weights to the next
            continue
        for schedule in schedules(make):
            assert [b.name for b in schedule.func.allocs if b.scope != REGISTER] == [], name


def product(rows: int, inner: int, columns: int, heads: int = 2) -> Callable[[Sketch], Value]:
    """A product of two computed tensors."""
    return lambda s: s.emit("MatMul", s.input(heads, rows, inner), s.input(heads, inner, columns))


def transposed(rows: int, inner: int, columns: int) -> Callable[[Sketch], Value]:
    """The same with a right factor whose terms of a sum are neighbours."""
    right = lambda s: s.emit("Transpose", s.input(2, columns, inner), perm=(0, 2, 1))  # noqa: E731
    return lambda s: s.emit("MatMul", s.input(2, rows, inner), right(s))


@pytest.mark.parametrize(
    ("make", "scope"),
    [
        (product(128, 64, 64), None),
        (product(256, 256, 1024), SCRATCH),
        (product(2, 256, 1024), None),
        (product(2, 64, 197), REGISTER),
        (product(197, 64, 197), SCRATCH),
        (transposed(128, 64, 128), SCRATCH),
    ],
    ids=[
        "in place",
        "on few sets of the cache",
        "few rows",
        "few rows, odd columns",
        "odd columns",
        "transposed",
    ],
)
def test_what_lanes_read_of_a_computed_tensor_is_packed_where_it_pays(
    make: Callable[[Sketch], Value], scope: str | None
) -> None:
    (schedule,) = schedules(make)
    (sums,) = reductions(schedule.func)
    assert sums.predicate is None or len(variables(sums.predicate)) < len(sums.iters), "whole vectors only"
    read = {region.buffer.scope for region in sums.reads} - {GLOBAL}
    assert read == ({scope} if scope else set())
    copies = [block for block in schedule.func.blocks() if any(r.buffer.scope == scope for r in block.writes)]
    for block in copies if scope else ():
        assert kinds(schedule, block.name)[-1] is VECTOR, block.name


def test_a_panel_is_filled_once_for_all_rows() -> None:
    (schedule,) = schedules(product(197, 64, 197))
    (sums,) = reductions(schedule.func)
    (panel,) = (b.name for b in schedule.func.blocks() if any(r.buffer.scope == SCRATCH for r in b.writes))
    shared = set(schedule.loops(panel)) & set(schedule.loops(sums.name))
    assert [schedule.loop(name).kind for name in shared] == [PARALLEL]


def test_few_rows_times_a_transposed_factor_are_sums_along_its_rows() -> None:
    (schedule,) = schedules(transposed(1, 64, 1024))
    sums = reductions(schedule.func)
    assert {region.buffer.scope for block in sums for region in block.reads} == {GLOBAL}
    assert all(VECTOR in kinds(schedule, block.name) for block in sums)


@pytest.mark.parametrize("inner", [64, 72])
def test_a_transposed_factor_is_copied_in_tiles_as_wide_as_a_vector(inner: int) -> None:
    (schedule,) = schedules(transposed(128, inner, 128))
    (panel,) = (b for b in schedule.func.blocks() if any(r.buffer.scope == SCRATCH for r in b.writes))
    *_, beside, lane = (schedule.loop(loop) for loop in schedule.loops(panel.name))
    assert (beside.kind, trips(beside)) == (ForKind.UNROLLED, LANES)
    assert (lane.kind, trips(lane)) == (VECTOR, LANES)
    assert panel.predicate is None


SHAPE = ContractionProblem(vectors=4, rows=56, steps=768, outer=1, broadcast=True, packed_bytes=1 << 20)


def cheapest(problem: ContractionProblem, facts: TargetFacts) -> tuple[int, ...]:
    return min(register_tiles(problem, facts), key=lambda option: option.cost).value


def pixels(vectors: int, steps: int, hw: int, row_bytes: int) -> ContractionProblem:
    """A convolution of single pixels of a square image."""
    weights = vectors * 32 * steps
    return ContractionProblem(
        vectors, hw, steps, 1, True, weights, lines=hw, row_bytes=row_bytes, remainder=True
    )


@pytest.mark.parametrize("facts", [get_target(f"cpu:x86-64-v3{row}").facts for row in ("", "+zen3", "+zen4")])
def test_tiles_read_less_than_they_multiply(facts: TargetFacts) -> None:
    """One vector of weights for 14 pixels would need 15 loads for 14 products."""
    vectors, rows, lines = cheapest(pixels(256, 512, 7, 4 * 512 * 49), facts)
    assert vectors + rows * lines <= vectors * rows * lines * 0.75


@pytest.mark.parametrize(("kib", "lines"), [(256, 0), (1600, 2), (1024, 7), (4000, 1)])
def test_as_many_lines_are_taken_together_as_the_second_level_cache_holds(kib: int, lines: int) -> None:
    facts = get_target("cpu:x86-64-v3+zen4").facts
    orders = outer_orders(pixels(32, 1024, 14, kib << 10), 3, facts, 14)
    assert min(orders, key=lambda option: option.cost).value == (lines,)


@pytest.mark.parametrize("facts", [WIDE, replace(NARROW, vector_bits=256)], ids=["512", "256"])
def test_no_more_rows_are_read_at_a_time_than_a_set_of_the_cache_holds(facts: TargetFacts) -> None:
    _, rows, _ = cheapest(replace(SHAPE, row_stride=4096 * 3), facts)
    assert rows <= 8
    assert cheapest(replace(SHAPE, row_stride=4096 * 3 + 64), facts) == cheapest(SHAPE, facts)


@pytest.mark.parametrize("rows", [13, 14, 49, 128, 197, 200])
def test_odd_rows_cost_little(rows: int) -> None:
    facts, problem = replace(NARROW, vector_bits=256), replace(SHAPE, rows=rows)
    tile = RegisterTile(*cheapest(problem, facts))
    twice = 0 if has_shorter_tile(tile, problem, facts) else -rows % tile.rows
    assert twice <= 0.02 * rows
    assert tile.vectors * (rows % tile.rows or tile.rows) >= 4, "a single sum would wait for itself"


POOLS: dict[str, Callable[[Sketch], Value]] = {
    "pool": lambda s: s.conv(s.pool(s.conv(s.input(1, 3, 34, 34), 32), 3, 2, "MaxPool"), 3),
    "sum": lambda s: s.conv(s.pool(s.conv(s.input(1, 3, 34, 34), 32), 2, 2), 3),
}


@pytest.mark.parametrize("name", POOLS)
def test_pools_work_on_whole_channel_blocks(name: str) -> None:
    schedule = middle(POOLS[name])
    (sums,) = reductions(schedule.func)
    found = kinds(schedule, sums.name)
    assert found[0] is PARALLEL
    assert found[-1] is VECTOR
    assert [region.buffer.scope for region in sums.writes] == [REGISTER]


def global_mean(s: Sketch) -> Value:
    x = s.conv(s.input(1, 3, 14, 14), 128)
    return s.emit("Mul", s.emit("ReduceSum", x, axes=(2, 3), keepdims=True), s.weights(1))


ROWS: dict[str, Callable[[Sketch], Value]] = {
    "softmax": lambda s: s.emit("Softmax", s.input(64, 300), axis=1, flatten=False),
    "layer norm": layer_norm,
    "layer norm of channels": norm_of_channels(96, 56, 56),
    "global mean": global_mean,
    "sum of columns": lambda s: s.emit("ReduceSum", s.input(70, 300), axes=(0,), keepdims=False),
}


@pytest.mark.parametrize("name", CONTRACTIONS | ROWS)
def test_the_copies_of_a_block_fit_the_registers(name: str) -> None:
    for schedule in schedules((CONTRACTIONS | ROWS)[name]):
        for block in schedule.blocks():
            loops = [schedule.loop(loop) for loop in schedule.loops(block)]
            copies = prod(trips(loop) for loop in loops if loop.kind is ForKind.UNROLLED)
            assert copies <= WIDE.vector_registers, f"{block} is printed {copies} times"


@pytest.mark.parametrize("name", ["softmax", "global mean", "sum of columns", "layer norm of channels"])
def test_rows_are_reduced_in_vectors_and_shared_by_the_threads(name: str) -> None:
    schedule = schedules(ROWS[name])[-1]
    for block in reductions(schedule.func):
        found = kinds(schedule, block.name)
        assert VECTOR in found, block.name
        assert PARALLEL in found, block.name


@pytest.mark.parametrize("make", [heads(40, 50, 16, 32), heads(5, 197, 64, 64)])
def test_attention_is_one_nest(make: Callable[[Sketch], Value]) -> None:
    sketch = Sketch()
    ((func, own),) = works(fuse_attention(sketch.fused(make(sketch))), LANES)
    schedule = schedule_func(func, own, WIDE, AnalyticChooser())
    outermost = {schedule.loops(block)[0] for block in schedule.blocks()}
    assert [schedule.loop(loop).kind for loop in outermost] == [PARALLEL]


@pytest.mark.parametrize(("keys", "facts", "packed"), [(600, AVX2, 2), (600, HALVES, 1), (60, AVX2, 1)])
def test_values_of_an_attention_are_packed_where_they_come_too_slowly(
    keys: int, facts: TargetFacts, packed: int
) -> None:
    """Many of them, far apart, and tiles that compute little on each; keys always are."""
    sketch = Sketch()
    lanes = facts.lanes(32)
    ((func, own),) = works(fuse_attention(sketch.fused(heads(48, keys, 64, 64)(sketch))), lanes)
    schedule = schedule_func(func, own, facts, AnalyticChooser())
    assert sum(item.scope == SCRATCH for item in schedule.func.allocs) == packed


def test_rows_of_an_attention_fill_whole_tiles() -> None:
    """The last rows are computed as part of a whole tile: five of 10 rows are less than four of 13."""
    found = Attention("s", (), "w", batch=64, rows=49, keys=49, depth=32, width=32)
    best = min(attention_tiles(found, WIDE), key=lambda option: option.cost)
    rows = AttentionTile(*best.value).rows
    assert -(-49 // rows) * rows <= 50


@pytest.mark.parametrize("name", ["softmax", "layer norm"])
def test_a_row_is_reduced_and_filled_in_one_loop(name: str) -> None:
    (schedule,) = schedules(ROWS[name])
    assert len({schedule.loops(block)[0] for block in schedule.blocks()}) == 1


def test_nothing_small_wakes_another_thread() -> None:
    for make in (layer_norm, dense(3, 8, 16), lambda s: s.emit("Exp", s.input(5, 7))):
        for schedule in schedules(make):
            assert all(PARALLEL not in kinds(schedule, block) for block in schedule.blocks())


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.emit("Tanh", s.emit("Add", s.input(48, 1000), s.input(1000))),
        lambda s: s.emit("Exp", s.input(3, 5, 7, 1001)),
        lambda s: s.emit("Relu", s.input(100_003)),
    ],
)
def test_elementwise_work_is_vectors_inside_and_threads_outside(make: Callable[[Sketch], Value]) -> None:
    (schedule,) = schedules(make)
    (block,) = schedule.blocks()
    assert kinds(schedule, block)[0] is PARALLEL
    assert kinds(schedule, block)[-1] is VECTOR


def test_injective_producers_are_computed_where_they_are_used() -> None:
    def make(s: Sketch) -> Value:
        y = s.emit("Mul", s.input(64, 512), s.emit("Sigmoid", s.input(64, 512)))
        return s.emit("ReduceSum", s.emit("Abs", y), axes=(1,), keepdims=False)

    (schedule,) = schedules(make)
    assert {block.writes[0].buffer.name for block in schedule.func.blocks()} == {
        schedule.func.params[-1].name
    }


@pytest.mark.parametrize("shape", [(64, 512), (5, 7), (9,), ()])
def test_what_is_read_again_and_again_is_computed_once(shape: tuple[int, ...]) -> None:
    """Sixteen values that each double what they read: written out, 65,535 operations."""
    (schedule,) = schedules(swishes(16, *shape))
    sizes = [len(list(block.body.walk())) for block in schedule.func.blocks()]
    assert sum(sizes) < 16 * 100
    made = {buffer.name for buffer in schedule.func.allocs}
    assert made, "some values have names"
    if shape:
        assert {buffer.scope for buffer in schedule.func.allocs} == {REGISTER}
        assert len({schedule.loops(block)[0] for block in schedule.blocks()}) == 1


def test_a_join_of_odd_channels_is_written_channel_by_channel() -> None:
    def make(s: Sketch) -> Value:
        x = s.input(1, 3, 18, 18)
        joined = s.emit("Concat", s.conv(x, 12), s.conv(x, 21), axis=1)
        return s.conv(joined, 3)

    join = schedules(make)[2]
    assert all(VECTOR not in kinds(join, block) for block in join.blocks())
    outer = {kinds(join, block)[0] for block in join.blocks()}
    assert outer <= {PARALLEL, SERIAL, ForKind.UNROLLED}


def test_the_parts_of_a_join_are_scheduled_without_looking_at_all_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each part writes the result: nothing can be its consumer."""
    asked: list[str] = []
    plain = common.intermediates
    monkeypatch.setattr(
        common, "intermediates", lambda schedule, name: asked.append(name) or plain(schedule, name)
    )

    def join(s: Sketch) -> Value:
        return s.emit("Concat", *(s.emit("Relu", s.input(1 + n % 7, 8)) for n in range(16)), axis=0)

    (schedule,) = schedules(join)
    assert len(schedule.blocks()) == 16
    assert asked == []
