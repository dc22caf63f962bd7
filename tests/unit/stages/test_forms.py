"""The choice among forms, and what the chosen one computes in f32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Value
from compiler.graph.to_loops import FORM, GroupFunc, group_forms
from compiler.loops.evaluate import evaluate_func
from compiler.loops.layout import Layout
from compiler.schedule.chooser import AnalyticChooser, Option, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.stages.forms import FormChoosers, work_of
from compiler.targets import get_target
from tests.support.group_functions import default_form, group_func
from tests.support.kernels import CompiledKernel, lower_all, pack_inputs, unpack_outputs
from tests.support.sketch import Sketch, layouts_of

Array = np.ndarray[Any, Any]
HOST = get_target("cpu")
WIDE = get_target("cpu", "x86-64-v4").facts


def between(
    channels: int, outer: int, hw: int, *, size: int = 3, source: int = 3
) -> tuple[FusedGraph, Value]:
    """A convolution between two others, and its result."""
    s = Sketch()
    x = s.conv(s.input(1, source, hw + size - 1, hw + size - 1), channels)
    y = s.conv(x, outer, size)
    return s.fused(s.conv(s.emit("Relu", y), 16)), y


def choice(channels: int, outer: int, hw: int) -> str:
    """The form that the analytic chooser takes."""
    fused, _ = between(channels, outer, hw)
    choose = FormChoosers(layouts_of(fused, WIDE.lanes(32)), WIDE).of(AnalyticChooser())
    made = group_func(fused.groups[1], fused.graph.constants, choose)
    return str(dict(made.func.attrs)[FORM])


@pytest.mark.parametrize(
    ("channels", "outer", "hw", "form"),
    [
        (64, 64, 224, "winograd-4"),
        (128, 128, 112, "winograd-4"),
        (256, 256, 56, "winograd-4"),
        (512, 512, 28, "winograd-4"),
        (64, 64, 56, "winograd-4"),
        (128, 128, 28, "winograd-4"),
        (512, 512, 14, "winograd-2"),
        (256, 256, 14, "winograd-2"),
        (512, 512, 7, "direct"),  # reading larger filters takes longer than it saves
    ],
)
def test_the_analytic_chooser_takes_what_was_measured_to_be_fastest(
    channels: int, outer: int, hw: int, form: str
) -> None:
    assert choice(channels, outer, hw) == form


@pytest.mark.parametrize(("channels", "outer"), [(20, 64), (64, 20)])
def test_channels_that_do_not_fill_vectors_are_computed_directly(channels: int, outer: int) -> None:
    assert choice(channels, outer, 28) == "direct"


def test_equal_work_is_estimated_once() -> None:
    fused, _ = between(16, 16, 8)
    seen: list[Sequence[Option]] = []

    class Spy:
        def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
            assert name == "Conv.form"
            seen.append(options)
            return options[-1].value

    choose = FormChoosers(layouts_of(fused, 16), WIDE).of(Spy())
    first, second = (group_func(fused.groups[1], fused.graph.constants, choose) for _ in range(2))
    assert dict(first.func.attrs)[FORM] == dict(second.func.attrs)[FORM] == "im2col"
    assert seen[0] == seen[1]
    assert [option.value for option in seen[0]] == [(number,) for number in range(6)]


def test_a_recorded_decision_is_repeated() -> None:
    fused, _ = between(64, 64, 56)
    chooser = ReplayChooser({"Conv.form": (0,)}, AnalyticChooser())
    choose = FormChoosers(layouts_of(fused, 16), WIDE).of(chooser)
    made = group_func(fused.groups[1], fused.graph.constants, choose)
    assert dict(made.func.attrs)[FORM] == "direct"


def test_where_there_is_one_form_there_is_nothing_to_choose() -> None:
    s = Sketch()
    x = s.conv(s.input(1, 3, 8, 8), 16)
    fused = s.fused(s.conv(s.emit("Relu", s.conv(x, 16, 5, groups=2)), 16))

    def choose(name: str, candidates: Mapping[str, GroupFunc]) -> str:
        raise AssertionError(f"{name} of {list(candidates)}")

    assert FORM not in dict(group_func(fused.groups[1], fused.graph.constants, choose).func.attrs)


@pytest.mark.parametrize(
    ("size", "all_forms"),
    [
        (1, ["direct", "im2col"]),
        (3, ["direct", "winograd-2", "winograd-4", "winograd-1x4", "winograd-4x1", "im2col"]),
    ],
)
def test_what_only_a_search_takes_is_not_built_without_one(size: int, all_forms: list[str]) -> None:
    fused, _ = between(16, 16, 8, size=size)
    group, constants = fused.groups[1], fused.graph.constants
    found, few = group_forms(group, constants), group_forms(group, constants, searched=False)
    assert list(found) == all_forms
    assert list(few) == all_forms[: len(few)], "a form has the same number for everybody"
    assert list(few) == [name for name in all_forms if name in {"direct", "winograd-2", "winograd-4"}]
    assert few["direct"].func == found["direct"].func, "the same workload"


def test_the_default_is_the_first_form_of_the_record() -> None:
    fused, _ = between(16, 16, 8)
    made = group_func(fused.groups[1], fused.graph.constants, default_form)
    assert dict(made.func.attrs)[FORM] == "direct"
    assert not made.derived


# ---------------------------------------------------------------- accuracy


def computed(
    made: GroupFunc, layouts: Mapping[str, Layout], arrays: Mapping[Value, Array], to: Path
) -> Array:
    """The result of a group's kernel, compiled for this machine."""
    known = dict(arrays)
    for value, item in made.derived.items():
        (known[value],) = evaluate_func(item.func, [arrays[source] for source in item.inputs])
    schedule = schedule_func(made.func, layouts, HOST.facts, AnalyticChooser())
    kernel = CompiledKernel(lower_all(schedule.func, HOST.facts), HOST, to)
    inputs = zip(made.func.params[:-1], made.values[:-1], strict=True)
    packed = pack_inputs(schedule.func, {buffer.name: known[value] for buffer, value in inputs})
    return next(iter(unpack_outputs(schedule.func, kernel(packed)).values()))


@pytest.mark.parametrize(
    "form", ["direct", "winograd-2", "winograd-4", "winograd-1x4", "winograd-4x1", "im2col"]
)
def test_the_error_is_within_1e_5_of_the_scale_of_the_result(form: str, tmp_path: Path) -> None:
    fused, y = between(64, 32, 13)
    group = fused.groups[1]
    made = group_func(group, fused.graph.constants, lambda _, candidates: form if form in candidates else "")
    source, arrays = np.random.default_rng(5), {}
    for value in group.inputs:
        fan = 1 if value not in fused.graph.constants else value.type.size // value.type.shape[0]
        arrays[value] = (source.standard_normal(value.type.shape) * np.sqrt(2 / fan)).astype(np.float32)
    layouts = dict(work_of(made, layouts_of(fused, HOST.facts.lanes(32)))[1])
    got = computed(made, layouts, arrays, tmp_path)
    exact = [arrays[value].astype(np.float64) for value in group.nodes[0].inputs]
    (wanted,) = group.nodes[0].op.reference(exact, group.nodes[0].attrs)
    wanted = np.maximum(np.asarray(wanted), 0)
    assert y.type.shape == got.shape
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert np.abs(got - wanted).max() > 0, "f32 rounds"
