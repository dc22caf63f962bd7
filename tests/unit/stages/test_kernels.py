"""From a loop function to a source text: what is verified on the way, and what an edited stage may change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.diagnostics import BadInputError, InternalError
from compiler.core.node import rewrite_nodes
from compiler.core.target import TargetFacts
from compiler.loops.ir import For, ForKind, Func
from compiler.loops.text import print_func
from compiler.lower import PASSES
from compiler.reports import CompileOptions
from compiler.schedule.schedule import Schedule
from compiler.schedule.trace import TRACE_VERSION
from compiler.stages import kernels
from compiler.stages.dump import LOOPS, RENDER, SCHEDULE, TRACE, Edit
from compiler.stages.job import CompileJob
from compiler.stages.kernels import Kernel, KernelTask, make_kernel, replay_kernel
from tests.support.sketch import Work
from tests.support.works import works_of

JOB = CompileJob.of(Path("m.onnx"), CompileOptions(Path("m.so"), "cpu", "x86-64-v3"))


@pytest.fixture(scope="module")
def work() -> Work:
    """A convolution whose operand and result are in channel blocks."""
    return works_of("deep conv", 8)[1]


def made(work: Work, edit: Edit | None = None, *, check: bool = True) -> Kernel:
    func, layouts = work
    settings = replace(JOB.settings, debug=check)
    kernel = make_kernel(0, KernelTask.of(func, layouts), replace(JOB, edit=edit, settings=settings))
    assert kernel is not None
    return kernel


def edited(stage: str, text: str) -> Edit:
    return Edit(stage, 0, text, Path("dump") / stage / "k000.loops")


def test_a_kernel_replays_from_its_record(work: Work) -> None:
    kernel = made(work)
    assert replay_kernel(0, kernel.func, kernel.trace, JOB.target).text == kernel.text


def test_maps_of_a_parameter_are_those_of_the_schedule(work: Work) -> None:
    kernel = made(work)
    names = [item.name for item in kernel.func.params]
    assert kernel.maps(names.index("x0")) == work[1]["x0"].maps
    weights = [n for n, item in enumerate(kernel.func.params) if item.scope == "constant"]
    assert all(kernel.maps(n) for n in weights)


def test_workspace_is_counted_in_bytes() -> None:
    (one,) = works_of("softmax of columns", 8)
    kernel = made(one)
    assert len(kernel.workspace) == len(kernel.lowered.workspace) > 0
    assert all(size > 0 for size in kernel.workspace)


# ---------------------------------------------------------------- verification


def widened(func: Func, _: TargetFacts) -> Func:
    """A defective pass: the first loop runs one time too often."""

    loop = next(item for item in func.body.walk() if isinstance(item, For))
    longer = loop.replace(extent=loop.extent + 1)
    return func.replace(body=rewrite_nodes(func.body, lambda item: longer if item == loop else None))


@pytest.mark.parametrize("position", range(len(PASSES)))
def test_a_defective_pass_is_named(work: Work, monkeypatch: pytest.MonkeyPatch, position: int) -> None:
    name, step = PASSES[position]
    passes = list(PASSES)
    passes[position] = (name, lambda func, facts: widened(step(func, facts), facts))
    monkeypatch.setattr("compiler.lower.PASSES", tuple(passes))
    with pytest.raises(InternalError) as caught:
        made(work)
    assert name in caught.value.where


def test_a_defective_rule_is_found(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(func: Func, *_: object, **__: object) -> Schedule:
        schedule = Schedule(func)
        schedule.func = widened(func, JOB.target.facts)
        return schedule

    monkeypatch.setattr(kernels, "schedule_func", broken)
    with pytest.raises(InternalError, match="schedule"):
        made(work)


def test_nothing_is_verified_unless_asked(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(kernels, "verify_func", refuse)
    assert made(work, check=False).text


# ---------------------------------------------------------------- edited stages


def test_unchanged_files_give_the_same_kernel(work: Work) -> None:
    kernel = made(work)
    texts = {
        LOOPS: print_func(kernel.func),
        TRACE: kernel.trace.to_json(),
        SCHEDULE: print_func(kernel.scheduled),
        RENDER: kernel.text,
    }
    for stage, text in texts.items():
        assert made(work, edited(stage, text)).text == kernel.text


def test_an_edited_schedule_is_what_is_lowered(work: Work) -> None:
    kernel = made(work)
    text = print_func(kernel.scheduled).replace(" unrolled", "")
    again = made(work, edited(SCHEDULE, text))
    assert again.text != kernel.text
    loops = [item for item in again.scheduled.body.walk() if isinstance(item, For)]
    assert ForKind.UNROLLED not in {item.kind for item in loops}


def test_an_edit_of_another_kernel_changes_nothing(work: Work) -> None:
    edit = Edit(RENDER, 1, "other", Path("k001.cpp"))
    assert made(work, edit).text == made(work).text


@pytest.mark.parametrize(
    ("stage", "change", "said"),
    [
        (LOOPS, lambda text: text.replace("for ", "fro ", 1), "k000.loops, line 3"),
        (LOOPS, lambda text: text.replace("reads ", "reads nothing[0], ", 1), "nothing"),
        (LOOPS, lambda text: text.replace("x0: f32[1, 10", "x0: f32[1, 11"), "other parameters or layouts"),
        (SCHEDULE, lambda text: text.replace("b // 8", "b // 4"), "other parameters or layouts"),
        (SCHEDULE, lambda text: re.sub(r"(for conv_r\w* in \S+)", r"\1 parallel", text), "valid scheduled"),
        (TRACE, lambda text: text[:-20], "not JSON"),
        (TRACE, lambda text: text.replace(f'"version": {TRACE_VERSION}', '"version": 99'), "version"),
    ],
)
def test_an_edit_that_does_not_fit_is_refused(
    work: Work, stage: str, change: Callable[[str], str], said: str
) -> None:
    kernel = made(work)
    texts = {
        LOOPS: print_func(kernel.func),
        SCHEDULE: print_func(kernel.scheduled),
        TRACE: kernel.trace.to_json(),
    }
    text = change(texts[stage])
    assert text != texts[stage]
    with pytest.raises(BadInputError) as caught:
        made(work, edited(stage, text))
    message = str(caught.value)
    assert said in message
    assert "k000.loops" in message, "the file is named"


def test_an_edited_trace_keeps_the_layouts_between_kernels(work: Work) -> None:
    """Leaving the layout of an operand out gives a valid schedule of another interface."""
    func, _ = work
    plain = make_kernel(0, KernelTask.of(func, {}), JOB)
    assert plain is not None
    with pytest.raises(BadInputError, match="changes the layout of `x0`"):
        made(work, edited(TRACE, plain.trace.to_json()))
