"""A 1 x 1 convolution and what makes its image are one launch on devices: windows, or element by element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.core.types import F32
from compiler.graph.fuse_factors import fuse_factors
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Value
from compiler.graph.ops.windows import Windows
from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.render.device import render_launches
from compiler.render.vocabulary import Vocabulary
from compiler.render.vocabulary_cuda import CUDA, HIP
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.threads.made_factor import made_product
from compiler.schedule.schedule import Schedule
from compiler.stages.made_factors import pays
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.group_functions import group_func
from tests.support.kernels import lower_all, pack_inputs, run_flat
from tests.support.sketch import Sketch

Make = Callable[[Sketch], Value]
SM_80 = get_target("cuda:sm_80").facts


def pair(
    channels: int,
    image: int,
    rows: int,
    *,
    size: int = 3,
    stride: int = 1,
    samples: int = 1,
    shuffle: int = 0,
    add: bool = False,
) -> Make:
    """Windows padded by half of their size, a bias, a clip and a 1 x 1 convolution with its bias."""

    def make(s: Sketch) -> Value:
        source = np.random.default_rng(channels)

        def weights(*shape: int) -> Value:
            return s.constant(source.integers(-2, 3, shape).astype(np.float32))

        half = (size // 2,) * 2
        windows = Windows((size, size), (stride, stride), (1, 1), half, half)
        inputs = (
            s.input(samples, channels, image, image),
            weights(channels, 1, size, size),
            weights(channels),
        )
        x = s.emit("Conv", *inputs, group=channels, **windows.attrs())
        x = s.emit("Min", s.emit("Relu", x), s.constant(np.float32(6)))
        if shuffle:
            x = s.emit("ChannelShuffle", x, axis=1, groups=shuffle)
        one = Windows((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
        groups = shuffle or 1
        y = s.emit(
            "Conv", x, weights(rows, channels // groups, 1, 1), weights(rows), group=groups, **one.attrs()
        )
        return s.emit("Add", y, s.input(*y.type.shape)) if add else y

    return make


def chained(
    channels: int, image: int, rows: int, kind: str, *, samples: int = 1, groups: int = 1, add: bool = False
) -> Make:
    """Element by element a gate, of one channel too, a normalisation with ReLU, or a sum; then 1 x 1."""

    def make(s: Sketch) -> Value:
        source = np.random.default_rng(channels)

        def weights(*shape: int) -> Value:
            return s.constant(source.integers(-2, 3, shape).astype(np.float32))

        x = s.input(samples, channels, image, image) if kind != "outer" else s.input(samples, 1, image, image)
        if kind in ("gate", "outer"):
            x = s.emit("Mul", x, s.input(samples, channels, 1, 1))
        if kind == "norm":
            scaled = s.emit("Mul", x, weights(channels, 1, 1))
            x = s.emit("Relu", s.emit("Add", scaled, weights(channels, 1, 1)))
        if kind == "sum":
            x = s.emit("Add", x, s.input(samples, channels, image, image))
        one = Windows((1, 1), (1, 1), (1, 1), (0, 0), (0, 0)).attrs()
        known = weights(rows, channels // groups, 1, 1), weights(rows)
        y = s.emit("Conv", x, *known, group=groups, **one)
        return s.emit("Add", y, s.input(*y.type.shape)) if add else y

    return make


def joined(make: Make) -> tuple[Graph, Func, list[Value]]:
    """The graph, the function of its one group, and the tensors behind the parameters."""
    s = Sketch()
    fused = fuse_factors(s.fused(make(s)), lambda _first, _product: True)
    (group,) = fused.groups
    made = group_func(group, fused.graph.constants)
    return fused.graph, made.func, list(made.values)


def arrays(graph: Graph, func: Func, values: list[Value]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Whole numbers for the parameters of a function, and what numpy makes of them."""
    source = np.random.default_rng(1)
    names = dict(zip(graph.inputs, graph.input_names, strict=True))
    given = {value: source.integers(-3, 4, value.type.shape).astype(np.float32) for value in graph.inputs}
    wanted = evaluate(graph, {names[value]: array for value, array in given.items()})
    known = {**graph.constants, **given}
    pairs = zip(func.params[: -func.outputs], values, strict=False)
    return {buffer.name: known[value] for buffer, value in pairs}, wanted[graph.output_names[0]]


CASES = {
    "3 x 3": pair(16, 12, 8),
    "3 x 3, every second": pair(16, 12, 8, stride=2, add=True),
    "5 x 5, odd image": pair(12, 9, 7, size=5, add=True),
    "5 x 5, every second": pair(12, 11, 6, size=5, stride=2),
    "channels of no tile": pair(22, 7, 10),
    "two samples": pair(8, 6, 5, samples=2),
    "groups, shuffled": pair(16, 6, 12, shuffle=2),
    "in chunks": pair(128, 4, 6, add=True),
    "gate": chained(24, 8, 12, "gate"),
    "gate, 7 x 7": chained(128, 7, 12, "gate", add=True),
    "gate, two samples": chained(15, 5, 6, "gate", samples=2),
    "outer product": chained(24, 8, 12, "outer"),
    "norm, odd": chained(13, 9, 7, "norm"),
    "norm, in groups": chained(24, 6, 16, "norm", groups=2),
    "sum, 14 x 14": chained(20, 14, 9, "sum", add=True),
}


@pytest.mark.parametrize("name", CASES)
def test_what_it_computes_in_one_launch(name: str) -> None:
    graph, func, values = joined(CASES[name])
    schedule = schedule_func(func, {}, SM_80, AnalyticChooser())
    lowered = lower_all(schedule.func, SM_80)
    inputs, wanted = arrays(graph, func, values)
    (got,) = run_flat(schedule.func, lowered, inputs, shuffle=1).values()
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)
    parts = [one for one in lowered.workspace if one not in lowered.counters]
    assert len(parts) == (name == "in chunks")


@pytest.mark.parametrize("make", [pair(24, 9, 12, add=True), chained(24, 9, 12, "gate")])
@pytest.mark.parametrize(("target", "words"), [("cuda:sm_80", CUDA), ("rocm:gfx90a", HIP)])
def test_in_the_emulator(target: str, words: Vocabulary, make: Make) -> None:
    """Barriers are where one thread reads what another one made."""
    facts = get_target(target).facts
    graph, func, values = joined(make)
    scheduled = schedule_func(func, {}, facts, AnalyticChooser()).func
    device = render_launches(lower_all(scheduled, facts), 0, words, facts)
    (launch,) = device.launches
    assert device.text.count("__shared__ float") == 2
    inputs, wanted = arrays(graph, func, values)
    got = np.zeros_like(wanted)
    given = pack_inputs(scheduled, inputs)
    emulated = Emulated(words.module([device.text]))
    args = [given[item.name] for item in func.params[: -func.outputs]]
    assert emulated.launch(launch.name, launch.grid, launch.block, [*args, got]) == ""
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    "decisions",
    [
        {"made.conv.chunks": (4, 2), "made.conv_rf.tile": (8, 8, 2, 2, 4, 1, 0)},
        {"made.conv.chunks": (1, 4), "made.conv.tile": (4, 16, 4, 4, 16, 2, 0), "made.conv.together": (2,)},
        {"made.conv.at_once": (1,), "made.conv.tile": (4, 16, 4, 4, 16, 2, 1), "made.conv.together": (4,)},
        {"made.conv.at_once": (1,), "made.conv.chunks": (2, 1), "made.conv_rf.tile": (8, 8, 2, 2, 8, 3, 1)},
        {"made.conv.at_once": (0,), "conv.tile": (4, 16, 4, 4, 16, 2, 0)},
    ],
)
def test_decisions_are_taken(decisions: dict[str, tuple[int, ...]]) -> None:
    make = chained(64, 8, 12, "norm") if "made.conv.at_once" in decisions else pair(64, 8, 12)
    graph, func, values = joined(make)
    product = [name for name in Schedule(func).blocks() if name.startswith("conv")][-1]
    named = {key.replace("conv", product): value for key, value in decisions.items()}
    chooser = ReplayChooser(named, AnalyticChooser())
    done = schedule_func(func, {}, SM_80, chooser).func
    assert named.items() <= chooser.decisions.items()
    inputs, wanted = arrays(graph, func, values)
    (got,) = run_flat(done, lower_all(done, SM_80), inputs, shuffle=1).values()
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("make", [pair(64, 8, 12, add=True), chained(64, 7, 12, "norm", add=True)])
def test_a_cluster_adds_chunks_up_in_the_same_launch(make: Make) -> None:
    facts = get_target("cuda:sm_90").facts
    graph, func, values = joined(make)
    product = [name for name in Schedule(func).blocks() if name.startswith("conv")][-1]
    chosen = {f"made.{product}.chunks": (4, 2), f"made.{product}.adds_up": (1,)}
    done = schedule_func(func, {}, facts, ReplayChooser(chosen, AnalyticChooser())).func
    lowered = lower_all(done, facts)
    (launch,) = render_launches(lowered, 0, CUDA, facts).launches
    assert launch.grid[2] == 4, "blocks of a cluster"
    inputs, wanted = arrays(graph, func, values)
    (got,) = run_flat(done, lowered, inputs, shuffle=1).values()
    np.testing.assert_array_equal(got.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("kind", ["gate", "outer", "norm", "sum"])
def test_each_chain_has_a_price(kind: str) -> None:
    """Whether it pays or not: an outer product, no input of which is as large as it, divided by zero."""
    s = Sketch()
    fused = s.fused(chained(64, 14, 32, kind)(s))
    assert len(fuse_factors(fused, lambda first, product: pays(first, product, SM_80)).groups) in (1, 2)


def test_functions_of_another_structure_are_left_alone() -> None:
    """Two sums, of which the second reads the first along its rows."""
    b = Builder("other")
    x, w = b.input("x", (32, 64), F32), b.input("w", (64, 48), F32)
    first = b.reduce("first", (32, 64), (4,), lambda i, j, k: x[i, (j + k) % 64], dtype=F32)
    y = b.reduce("y", (32, 48), (64,), lambda i, d, j: first[i, j] * w[j, d], dtype=F32)
    schedule = Schedule(b.finish([y]))
    before = schedule.func
    assert not made_product(schedule, SM_80, AnalyticChooser())
    assert schedule.func == before
