"""Every primitive, before and after, as text: the files in `golden/` are the test cases.

A file has the instruction as a trace stores it, the program before it and the program after it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from compiler.loops.interp import interpret
from compiler.loops.text import parse_func, print_func
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.tensor_intrinsics import find_tensor_intrinsic
from compiler.schedule.trace import TRACE_VERSION, Trace
from tests.support.intrinsics import OUTER_PRODUCT

ROUNDED = {"online_softmax"}
"""What gives other roundings, as it says: of small integers the others give none."""

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))


def read(path: Path) -> tuple[str, str, str]:
    step, _, programs = path.read_text().partition("before:\n")
    before, _, after = programs.partition("after:\n")
    return step.strip(), before.strip() + "\n", after.strip() + "\n"


def test_the_intrinsic_of_the_cases_is_registered() -> None:
    assert find_tensor_intrinsic(OUTER_PRODUCT.name) is OUTER_PRODUCT


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_before_and_after(path: Path) -> None:
    step, before, after = read(path)
    trace = Trace.from_json(json.dumps({"version": TRACE_VERSION, "instructions": [json.loads(step)]}))
    schedule = replay(trace, parse_func(before))
    assert print_func(schedule.func).strip() + "\n" == after
    assert schedule.trace == trace
    assert Trace.from_json(trace.to_json()) == trace


def test_every_primitive_has_a_case() -> None:
    shown = {json.loads(read(path)[0])["do"] for path in GOLDEN}
    assert shown == set(PRIMITIVES)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_before_and_after_compute_the_same(path: Path) -> None:
    before, after = (parse_func(text) for text in read(path)[1:])
    if before.params != after.params:
        pytest.skip("a parameter has another layout; test_layout.py compares those")
    source = np.random.default_rng(0)
    inputs = {
        item.name: source.integers(-3, 4, [int(n.value) for n in item.shape]).astype(np.float32)
        for item in before.params[: -before.outputs]
    }
    for name, value in interpret(before, inputs).items():
        rounded = 1e-6 if path.stem in ROUNDED else 0.0
        np.testing.assert_allclose(
            interpret(after, inputs, shuffle=1)[name], value, rtol=rounded, atol=rounded
        )


@pytest.mark.parametrize("name", PRIMITIVES)
def test_every_primitive_is_described_the_same_way(name: str) -> None:
    cls = PRIMITIVES[name]
    assert cls.name == name
    text = cls.__doc__ or ""
    first = text.partition("\n")[0]
    assert first.endswith("."), "one sentence first"
    for word in ("Outputs:", "rewrite:", "TVM"):
        assert word in text, word
    for field in dataclasses.fields(cls):
        assert field.name == "decision" or field.name in text, field.name


def test_a_schedule_is_not_changed_by_a_refusal() -> None:
    schedule = Schedule(parse_func(read(GOLDEN[0])[1]))
    before = schedule.func
    with pytest.raises(Exception, match="no loop"):
        schedule.unroll("nowhere")
    assert schedule.func is before
    assert len(schedule.trace) == 0
