"""Random points of every rule's design space, in every language: allowed, replayed, printed, and right."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from compiler.core.node import IRNode, rewrite_nodes
from compiler.graph.fuse_attention import fuse_attention
from compiler.loops.ir import Block, Func, Seq, seq
from compiler.loops.simplify import Simplifier
from compiler.loops.text import parse_func, print_func
from compiler.loops.walk import with_body
from compiler.schedule.chooser import AnalyticChooser, Option, RandomChooser, ReplayChooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.own_values import finds_its_own
from compiler.schedule.program import Program, outer_blocks
from compiler.schedule.races import check_schedule
from compiler.schedule.rules import schedule_func
from compiler.targets import get_target
from tests.support.gpu import TINY
from tests.support.sketch import Sketch, works
from tests.support.spaces import LANGUAGES, assert_right, points, rules_of
from tests.support.works import works_of

CASES = [(language, rule) for language in LANGUAGES for rule in rules_of(language)]
POINTS = 200


@pytest.mark.sample(4, each=("rule",))
@pytest.mark.parametrize(("language", "rule"), CASES)
def test_a_few_points(language: str, rule: str) -> None:
    found = list(points(language, rule, 2, seed=1))
    assert len(found) == 2
    for point in found:
        assert_right(point)


@pytest.mark.slow
@pytest.mark.parametrize(("language", "rule"), CASES)
def test_many_points(language: str, rule: str) -> None:
    found = points(language, rule, POINTS)
    assert sum(assert_right(point) is not None for point in found) == POINTS


def pipelined() -> Func:
    """A convolution whose parts of both factors are fetched a round ahead, through registers."""
    ((func, _),) = works_of("conv strided", 4, joined=False)
    chooser = ReplayChooser({"conv.tile": (8, 4, 1, 8, 9, 2, 0)}, AnalyticChooser())
    return schedule_func(func, {}, TINY, chooser).func


def without(func: Func, block: str) -> Func:
    """The function without the statement of a sequence that holds a block."""

    def drop(node: IRNode) -> IRNode | None:
        if not isinstance(node, Seq):
            return None
        kept = [s for s in node.stmts if not any(isinstance(i, Block) and i.name == block for i in s.walk())]
        return seq(*kept) if len(kept) < len(node.stmts) else None

    return with_body(func, rewrite_nodes(func.body, drop))


def test_what_a_pipeline_fetched_a_round_before_is_its_own() -> None:
    check_schedule(pipelined())


def swizzled() -> Func:
    """The same for a batch, with blocks of threads in groups of two columns: each group has holes."""
    ((func, _),) = works_of("conv batch", 4, joined=False)
    decisions = {"conv.tile": (2, 16, 1, 1, 4, 2, 0), "conv.swizzle": (2,), "conv.unroll": (1,)}
    facts = get_target("cuda-nvidia", "sm_80").facts
    return schedule_func(func, {}, facts, ReplayChooser(decisions, AnalyticChooser())).func


def test_what_a_swizzled_pipeline_fetched_is_its_own() -> None:
    func = swizzled()
    assert "// 2 * 2" in print_func(func)
    check_schedule(func)
    with pytest.raises(ScheduleError, match="needs what another one makes"):
        check_schedule(without(func, "conv_b_write_1"))


def test_a_pipeline_that_nobody_started_reads_what_is_not_its_own() -> None:
    func = pipelined()
    started = without(func, "conv_a_padded_write_1")
    assert started != func
    with pytest.raises(ScheduleError, match="needs what another one makes"):
        check_schedule(started)


def weighted(keys: int) -> Func:
    """A softmax and the product of its rows; 19 keys come to threads unevenly."""
    sketch = Sketch()
    weights = sketch.emit("Softmax", sketch.input(2, 18, keys), axis=2, flatten=False)
    fused = sketch.fused(sketch.emit("MatMul", weights, sketch.input(2, keys, 10)))
    ((func, _),) = works(fuse_attention(fused, threads=True, scores=False), 4)
    return schedule_func(func, {}, get_target("cuda-nvidia", "sm_80").facts, AnalyticChooser()).func


@pytest.mark.parametrize("keys", [32, 19])
def test_sums_over_the_rows_of_a_block_are_its_own(keys: int) -> None:
    """Of a tile that rows do not fill nobody reads the rest; nor of threads without a row."""
    check_schedule(weighted(keys))


def test_sums_that_go_on_were_begun() -> None:
    """The parts of 19 keys grow where the others read them."""
    func = weighted(19)
    started = without(func, "largest_rf_init")
    assert started != func
    with pytest.raises(ScheduleError, match="needs what another one makes"):
        check_schedule(started)


_SUMS = """
func sums(x: f32[4, 8, 8]) -> (y: f32[4, 8])
  local part: f32[8] @shared
  for b in 0..4 bound(blockIdx.x)
    for t in 0..8 bound(threadIdx.x)
      block begin(vt: spatial 8 = t)
        writes part[vt]
        part[vt] = 0.0
    for t_1 in 0..8 bound(threadIdx.x)
      for k in 0..8
        block sum(vb: spatial 4 = b, vt_1: spatial 8 = t_1, vk: reduce 8 = k)
          reads x[vb, vt_1, vk]
          writes part[vt_1]
          part[vt_1] += x[vb, vt_1, vk]
    for t_2 in 0..8 bound(threadIdx.x)
      block out(vb_1: spatial 4 = b, vt_2: spatial 8 = t_2)
        reads part[7 - vt_2]
        writes y[vb_1, vt_2]
        y[vb_1, vt_2] = part[7 - vt_2]
"""


def test_a_sum_that_each_block_goes_on_with_is_not_its_own() -> None:
    def own(func: Func) -> bool:
        program = Program(func)
        loop, known = program.loops["b"], Simplifier({"t": (0, 7), "t_1": (0, 7), "t_2": (0, 7), "k": (0, 7)})
        return finds_its_own(program, loop, func.buffer("part"), outer_blocks(loop), known)

    func = parse_func(_SUMS)
    assert own(func)
    assert not own(without(func, "begin"))


class AskedOnce:
    """Chooses at random, a row's threads as told; no decision may be asked twice."""

    def __init__(self, seed: int) -> None:
        self.random, self.offered = RandomChooser(random.Random(seed)), dict[str, Sequence[Option]]()

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        assert name not in self.offered, "it was refused what it had been offered"
        self.offered[name] = options
        if name == "conv.team":  # most rows for a sub-group first
            return max((option.value for option in options), key=lambda value: value[1])
        return self.random.choose(name, options)


def test_rows_whose_place_is_a_quotient_have_threads_of_their_own() -> None:
    """Pixels by im2col: a sub-group of several rows would write where one number does not say."""
    func, _ = works_of("im2col", 4, joined=False)[1]
    choosers = [AskedOnce(seed) for seed in range(1, 5)]
    for chooser in choosers:
        schedule_func(func, {}, get_target("cuda-nvidia", "sm_80").facts, chooser)
    teams = [one.value for chooser in choosers for one in chooser.offered["conv.team"]]
    assert {each for _, each in teams} == {1}
