"""Small layers that read each other are one launch of a cluster of blocks."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from compiler.core.types import F16, F32
from compiler.graph.fuse_chains import fuse_chains
from compiler.graph.ir import Value
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import CLUSTER, RANK, Barrier, Buffer, Cast, For, Func, maximum, statements
from compiler.loops.layout import channels_last
from compiler.loops.queries import extent_of
from compiler.render.device import render_launches
from compiler.render.vocabulary_cuda import CUDA
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.threads.chain import cluster_chain
from compiler.schedule.rules.threads.chain_cost import Layer, seconds_saved
from compiler.schedule.rules.threads.chain_links import find_chain
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from compiler.verify.interpreted import pack_inputs, run_flat, unpack_outputs
from tests.support.gpu import HOPPER
from tests.support.group_functions import group_func
from tests.support.kernels import lower_all
from tests.support.schedules import random_inputs
from tests.support.sketch import Sketch
from tests.unit.schedule.test_gpu_rules import assert_close

Make = Callable[[Sketch], Value]
SM_90 = get_target("cuda:sm_90").facts


def gate(channels: int, fewer: int, image: int, samples: int = 1) -> Make:
    """Squeeze-and-excitation: the mean of each channel, two dense layers."""

    def make(s: Sketch) -> Value:
        x = s.emit("ReduceSum", s.input(samples, channels, image, image), axes=(2, 3), keepdims=True)
        x = s.emit("Mul", x, s.constant(np.array(1 / image**2, np.float32)))
        x = s.emit("Relu", s.emit("Add", s.conv(x, fewer), s.weights(fewer, 1, 1)))
        return s.emit("Sigmoid", s.conv(x, channels))

    return make


def head(channels: int, rows: int) -> Make:
    """A global pool, and a matrix product behind a view."""

    def make(s: Sketch) -> Value:
        x = s.emit("ReduceSum", s.input(1, channels, 6, 6), axes=(2, 3), keepdims=True)
        x = s.emit("Reshape", x, shape=(1, channels))
        return s.emit("Add", s.emit("MatMul", x, s.weights(channels, rows)), s.weights(rows))

    return make


def dense(*sizes: int) -> Make:
    def make(s: Sketch) -> Value:
        x = s.input(1, sizes[0])
        for before, size in pairwise(sizes):
            x = s.emit("Relu", s.emit("MatMul", x, s.weights(before, size)))
        return x

    return make


def joined(make: Make) -> Func:
    s = Sketch()
    fused = fuse_chains(s.fused(make(s)), lambda parts: float(len(parts)))
    (group,) = fused.groups
    return group_func(group, fused.graph.constants).func


def scheduled(func: Func, blocks: int, threads: int = 128) -> Func:
    return schedule_func(
        func, {}, HOPPER, ReplayChooser({"chain.team": (blocks, threads)}, AnalyticChooser())
    ).func


def ranks(func: Func) -> set[int]:
    loops = (item for item in statements(func.body) if isinstance(item, For) and item.tag == RANK)
    return {extent_of(loop.extent) for loop in loops}


CASES = {
    "even shares": (gate(48, 36, 6), 4),
    "odd shares": (gate(21, 5, 6), 4),
    "of two blocks, one less": (gate(35, 3, 3), 2),
    "short sums": (gate(24, 10, 3), 3),
    "samples": (gate(37, 9, 6, samples=3), 2),
    "a pool and a product": (head(40, 11), 3),
    "dense layers": (dense(40, 34, 33, 7), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_what_it_computes_in_one_launch(name: str) -> None:
    """In any order of threads and blocks, and without a race."""
    make, blocks = CASES[name]
    func = joined(make)
    done = scheduled(func, blocks)
    lowered = lower_all(done, HOPPER)
    assert ranks(lowered) == {blocks}
    (launch,) = render_launches(lowered, 0, CUDA, HOPPER).launches
    assert launch.grid == (3 if name == "samples" else 1, 1, blocks)
    inputs = random_inputs(func)
    wanted = interpret(func, inputs)
    assert_close(wanted, run_flat(done, lowered, inputs, shuffle=1))
    watched = interpret(lowered, pack_inputs(done, inputs), races=True)
    assert_close(wanted, unpack_outputs(done, watched))


def test_blocks_meet_once_between_two_layers_and_read_each_element_once() -> None:
    lowered = lower_all(scheduled(joined(gate(48, 36, 6)), 4), HOPPER)
    meetings = [
        item for item in statements(lowered.body) if isinstance(item, Barrier) and item.scope == CLUSTER
    ]
    assert len(meetings) == 2
    text = render_launches(lowered, 0, CUDA, HOPPER).text
    assert text.count("tk_in_block") == 2 * 4, "of each block, for each of two layers"
    assert text.count("tk_cluster_end") == 1


def test_narrow_factors_are_shared_as_they_are_multiplied() -> None:
    b = Builder("narrow")
    x, w, v = b.input("x", (1, 64)), b.constant("w", (64, 40), F16), b.constant("v", (40, 20), F16)

    def product(name: str, left: Buffer, right: Buffer, rows: int, terms: int) -> Buffer:
        return b.reduce(
            name,
            (1, rows),
            (terms,),
            lambda i, j, k: Cast(F32, Cast(F16, left[i, k])) * Cast(F32, right[k, j]),
        )

    y = product("y", x, w, 40, 64)
    func = b.finish([product("z", b.compute("r", (1, 40), lambda i, j: maximum(y[i, j], 0.0)), v, 20, 40)])
    done = scheduled(func, 4)
    shared = {item.name: item.dtype for item in done.allocs if item.scope == "shared"}
    assert shared["z_a"] == F16
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(done, lower_all(done, HOPPER), inputs, shuffle=1))


def test_channels_side_by_side_are_left_to_other_rules() -> None:
    """Lanes take neighbouring pixels, which a channels-last image does not have."""
    func = joined(gate(48, 36, 6))
    done = schedule_func(func, {"x0": channels_last((1, 48, 6, 6))}, HOPPER, AnalyticChooser()).func
    assert not ranks(done)


def image_of_sums(b: Builder) -> Buffer:
    """The second sum reads windows of the first one, several places of it for a term."""
    x, w = b.input("x", (1, 64, 9)), b.constant("w", (40, 64, 3))
    first = b.reduce("first", (1, 64, 9), (40,), lambda n, c, i, k: x[n, c, i] * w[k, c, 0])
    return b.reduce("y", (1, 40, 7), (64, 3), lambda n, c, i, k, t: first[n, k, i + t] * w[c, k, t])


def read_twice(b: Builder) -> Buffer:
    x, w = b.input("x", (1, 64)), b.constant("w", (64, 64))
    first = b.reduce("first", (1, 64), (64,), lambda n, c, k: x[n, k] * w[k, c])
    second = b.reduce("second", (1, 40), (64,), lambda n, c, k: first[n, k] * w[k, c])
    return b.compute("y", (1, 40), lambda n, c: second[n, c] + first[n, c])


def mixed(b: Builder) -> Buffer:
    """What is multiplied with a weight depends on the row, too."""
    x, w = b.input("x", (1, 64)), b.constant("w", (64, 64))
    first = b.reduce("first", (1, 64), (64,), lambda n, c, k: x[n, k] * w[k, c])
    return b.reduce("y", (1, 40), (64,), lambda n, c, k: maximum(first[n, k], x[0, c]) * w[k, c])


def normalised(b: Builder) -> Buffer:
    """The second sum has no term for each result of the first one."""
    x = b.input("x", (4, 64))
    first = b.reduce("first", (4,), (64,), lambda n, k: x[n, k] * x[n, k])
    return b.reduce("y", (4,), (64,), lambda n, k: (x[n, k] - first[n]) * x[n, k])


@pytest.mark.parametrize("make", [image_of_sums, read_twice, mixed, normalised])
def test_other_sums_are_left_alone(make: Callable[[Builder], Buffer]) -> None:
    b = Builder("other")
    schedule = Schedule(b.finish([make(b)]))
    before = schedule.func
    assert find_chain(schedule.program) == [], "nor is one launch asked for"
    assert not cluster_chain(schedule, HOPPER, AnalyticChooser())
    assert schedule.func == before


@pytest.mark.parametrize(
    ("sizes", "image", "pays"),
    [((72, 24), 28, True), ((960, 240), 7, True), ((2048, 1000), 7, False), ((144, 6), 56, False)],
)
def test_where_one_launch_pays(sizes: tuple[int, int], image: int, pays: bool) -> None:
    channels, fewer = sizes
    pool = Layer(channels, image * image, 32, known=False)
    layers = [pool, Layer(fewer, channels, 32, known=True), Layer(channels, fewer, 32, known=True)]
    assert (seconds_saved(1, layers, SM_90) > 0) == pays
    assert seconds_saved(1, layers, get_target("cuda:sm_80").facts) < 0
