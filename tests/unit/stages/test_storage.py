"""Where tensors lie: views and joins share memory, results go straight to the caller's buffers."""

from __future__ import annotations

from itertools import combinations

import pytest

from compiler.graph.convert import LaidOut
from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Value
from compiler.render.host import ArgKind, PlanArg
from compiler.stages.storage import Storage, Use, plan_storage
from tests.support.sketch import Sketch, layouts_of

LANES = 8


@pytest.fixture
def s() -> Sketch:
    return Sketch()


def stored(
    s: Sketch, *outputs: Value, workspace: tuple[int, ...] = ()
) -> tuple[FusedGraph, list[Use], Storage]:
    fused = s.fused(*outputs)
    laid_out = LaidOut(fused, layouts_of(fused, LANES))
    constants = fused.graph.constants
    uses = [
        Use(tuple(value for value in group.inputs if value not in constants), group.outputs, workspace)
        for group in laid_out.computed
    ]
    return fused, uses, plan_storage(laid_out, uses)


def softmax(s: Sketch, x: Value) -> Value:
    """A kernel of its own: nothing fuses with it."""
    return s.emit("Softmax", x, axis=x.type.rank - 1)


def test_inputs_and_outputs_are_the_callers(s: Sketch) -> None:
    x, y = s.input(4, 4), s.input(4, 4)
    a, b = softmax(s, x), softmax(s, y)
    _, _, storage = stored(s, b, a)
    assert storage.slots[x] == PlanArg(ArgKind.INPUT, 0)
    assert storage.slots[y] == PlanArg(ArgKind.INPUT, 1)
    assert storage.slots[b] == PlanArg(ArgKind.OUTPUT, 0)
    assert storage.slots[a] == PlanArg(ArgKind.OUTPUT, 1)
    assert storage.plan.bytes == 0


def test_what_passes_between_kernels_is_in_the_arena(s: Sketch) -> None:
    x = s.input(16, 4)
    a = softmax(s, x)
    b = softmax(s, a)
    _, _, storage = stored(s, softmax(s, b))
    assert {storage.slots[a].kind, storage.slots[b].kind} == {ArgKind.ARENA}
    assert storage.slots[a].offset != storage.slots[b].offset
    assert storage.plan.bytes == 2 * 256


def test_each_step_has_counters_of_its_own(s: Sketch) -> None:
    """Behind the other workspace, and in no memory that anything else shares."""
    x = s.input(16, 4)
    fused = s.fused(softmax(s, softmax(s, x)))
    laid_out = LaidOut(fused, layouts_of(fused, LANES))
    uses = [Use(one.inputs, one.outputs, (100,), (12, 80)) for one in laid_out.computed]
    storage = plan_storage(laid_out, uses)
    assert [one[0].kind for one in storage.workspace] == [ArgKind.ARENA] * 2
    counters = [place for one in storage.workspace for place in one[1:]]
    assert counters == [PlanArg(ArgKind.COUNTERS, 0, at) for at in (0, 64, 192, 256)]
    assert storage.counter_bytes == 384


def test_an_output_that_is_read_again_stays_the_callers(s: Sketch) -> None:
    a = softmax(s, s.input(4, 4))
    _, _, storage = stored(s, a, softmax(s, a))
    assert storage.slots[a] == PlanArg(ArgKind.OUTPUT, 0)
    assert storage.plan.bytes == 0


def test_a_view_shares_the_memory_of_what_it_views(s: Sketch) -> None:
    a = softmax(s, s.input(4, 16))
    view = s.emit("Reshape", a, shape=(8, 8))
    again = s.emit("Reshape", view, shape=(2, 32))
    _, _, storage = stored(s, softmax(s, again))
    assert storage.slots[a] == storage.slots[view] == storage.slots[again]
    assert storage.slots[a].kind is ArgKind.ARENA
    assert storage.plan.bytes == 256


def test_a_view_of_an_input_is_the_input(s: Sketch) -> None:
    x = s.input(4, 16)
    view = s.emit("Reshape", x, shape=(64,))
    _, _, storage = stored(s, softmax(s, view))
    assert storage.slots[view] == PlanArg(ArgKind.INPUT, 0)


def test_the_kernel_before_an_output_that_is_a_view_writes_to_the_output(s: Sketch) -> None:
    a = softmax(s, s.input(4, 16))
    view = s.emit("Reshape", a, shape=(64,))
    _, _, storage = stored(s, view)
    assert storage.slots[a] == storage.slots[view] == PlanArg(ArgKind.OUTPUT, 0)


def test_memory_is_kept_as_long_as_a_view_of_it_is_read(s: Sketch) -> None:
    a = softmax(s, s.input(16, 4))
    view = s.emit("Reshape", a, shape=(4, 16))
    b = softmax(s, s.emit("Reshape", softmax(s, softmax(s, a)), shape=(4, 16)))
    fused, uses, storage = stored(s, s.emit("MatMul", b, s.emit("Transpose", view, perm=(1, 0))))
    assert_apart(fused, uses, storage)


def test_parts_of_a_join_lie_inside_of_it(s: Sketch) -> None:
    x = s.input(1, 3, 5, 5)
    a, b = s.conv(x, 8), s.conv(x, 16)
    joined = s.emit("Concat", a, b, axis=1)
    fused, uses, storage = stored(s, s.conv(joined, 4))
    base = storage.slots[joined]
    assert base.kind is ArgKind.ARENA
    assert storage.slots[a] == base
    assert storage.slots[b] == PlanArg(ArgKind.ARENA, 0, base.offset + 8 * 25 * 4)
    assert storage.plan.bytes == 24 * 25 * 4 + (-24 * 25 * 4) % 64
    assert len(uses) == len(fused.groups) - 1


def test_parts_of_joins_inside_of_joins(s: Sketch) -> None:
    x = s.input(1, 3, 5, 5)
    deep = s.conv(x, 8)
    inner = s.emit("Concat", s.conv(x, 8), deep, axis=1)
    outer = s.emit("Concat", s.conv(x, 16), inner, axis=1)
    _, _, storage = stored(s, s.conv(outer, 8), s.conv(inner, 8))
    steps = [storage.slots[value].offset - storage.slots[outer].offset for value in (inner, deep)]
    assert steps == [16 * 25 * 4, 24 * 25 * 4]


def test_parts_of_an_output_are_written_to_the_callers_buffer(s: Sketch) -> None:
    a, b = softmax(s, s.input(2, 8)), softmax(s, s.input(3, 8))
    joined = s.emit("Concat", a, b, axis=0)
    _, _, storage = stored(s, joined)
    assert storage.slots[a] == PlanArg(ArgKind.OUTPUT, 0)
    assert storage.slots[b] == PlanArg(ArgKind.OUTPUT, 0, 2 * 8 * 4)
    assert storage.plan.bytes == 0


def test_views_of_parts_of_joins(s: Sketch) -> None:
    a = softmax(s, s.input(2, 8))
    b = softmax(s, s.input(4, 8))
    joined = s.emit("Concat", a, b, axis=0)
    view = s.emit("Reshape", joined, shape=(48,))
    _, _, storage = stored(s, softmax(s, view))
    assert storage.slots[view] == storage.slots[joined]
    assert storage.slots[b].offset - storage.slots[view].offset == 2 * 8 * 4


def test_padding_of_a_blocked_tensor_needs_memory_too(s: Sketch) -> None:
    a = s.conv(s.input(1, 3, 5, 5), 9)
    _, _, storage = stored(s, s.conv(a, 4))
    assert storage.plan.bytes == 16 * 25 * 4


def test_workspace_lies_in_the_arena_beside_what_is_alive(s: Sketch) -> None:
    a = softmax(s, s.input(16, 4))
    b = softmax(s, a)
    fused, uses, storage = stored(s, softmax(s, b), workspace=(100, 0, 300))
    assert [len(slots) for slots in storage.workspace] == [3, 3, 3]
    assert_apart(fused, uses, storage)


def test_a_chain_needs_no_more_than_two_tensors(s: Sketch) -> None:
    x = s.input(64, 16)
    for _ in range(12):
        x = softmax(s, x)
    _, _, storage = stored(s, x)
    assert storage.plan.bytes == 2 * 64 * 16 * 4


def test_random_graphs_never_share_memory_while_it_is_needed(s: Sketch) -> None:
    x = s.input(1, 3, 7, 7)
    a = s.conv(x, 12)
    b = s.conv(a, 16)
    join = s.emit("Concat", b, s.conv(b, 8), s.conv(a, 20), axis=1)
    c = s.pool(join, 3, 1)
    d = s.conv(s.emit("Relu", s.emit("Add", c, s.conv(c, 44))), 16)
    e = s.emit("Reshape", d, shape=(16, 25))
    fused, uses, storage = stored(s, softmax(s, e), s.emit("MatMul", e, s.weights(25, 3)), workspace=(1000,))
    assert_apart(fused, uses, storage)


Cell = tuple[ArgKind, int, int]


class Memory:
    """The steps are run on memory that remembers, for every four bytes, whose they are."""

    def __init__(self, fused: FusedGraph, storage: Storage) -> None:
        self.layouts = layouts_of(fused, LANES)
        self.same = {view: source for source, view in fused.views}
        self.storage = storage
        self.owners: dict[Cell, object] = {}
        self.written: set[Value] = set()

    def root(self, value: Value) -> Value:
        while value in self.same:
            value = self.same[value]
        return value

    def cells(self, value: Value) -> set[Cell]:
        layout = self.layouts.get(value)
        return _cells(self.storage.slots[value], 4 * (layout.size if layout else value.type.size))

    def step(self, number: int, use: Use) -> None:
        for value in use.reads:
            if self.root(value) in self.written:
                assert {self.owners[cell] for cell in self.cells(value)} == {self.root(value)}
        slots = zip(self.storage.workspace[number], use.workspace, strict=True)
        spaces = [_cells(slot, size) for slot, size in slots]
        results = [self.cells(value) for value in use.writes]
        operands = set().union(*(self.cells(value) for value in use.reads))
        for one, other in combinations([operands, *results, *spaces], 2):
            assert not one & other
        for cells in spaces:
            self.owners.update(dict.fromkeys(cells, "workspace"))
        for value, cells in zip(use.writes, results, strict=True):
            self.owners.update(dict.fromkeys(cells, self.root(value)))
        self.written.update(use.writes)


def _cells(slot: PlanArg, size: int) -> set[Cell]:
    assert slot.offset % 4 == 0
    return {(slot.kind, slot.index, slot.offset + at) for at in range(0, size, 4)}


def assert_apart(fused: FusedGraph, uses: list[Use], storage: Storage) -> None:
    """Every tensor that a step reads is still what was written; nothing overlaps within a step."""
    memory = Memory(fused, storage)
    for number, use in enumerate(uses):
        memory.step(number, use)


def test_the_check_finds_shared_memory(s: Sketch) -> None:
    a = softmax(s, s.input(16, 4))
    b = softmax(s, a)
    fused, uses, storage = stored(s, softmax(s, b))
    broken = Storage({**storage.slots, b: storage.slots[a]}, storage.workspace, storage.plan)
    with pytest.raises(AssertionError):
        assert_apart(fused, uses, broken)
