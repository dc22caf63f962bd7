"""The tool that runs ONNX's cases: each way to end is told apart, also where many cases are one model."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conformance import __main__ as tool
from tests.conformance import judge
from tests.conformance.attempt import Place, attempt
from tests.conformance.cases import NODE, OnnxCase
from tests.conformance.disputed import Dispute
from tests.conformance.outcome import Outcome, Outcomes, State
from tests.conformance.page import write_page
from tests.support.onnx_models import value_info

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def case(
    name: str, op: str, given: Sequence[np.ndarray], made: np.ndarray, *, declared: bool = True
) -> OnnxCase:
    """A case of one node."""
    names = [f"in{number}" for number in range(len(given))]
    output = value_info("out", made)
    if not declared:
        output.type.tensor_type.ClearField("shape")
    graph = helper.make_graph(
        [helper.make_node(op, names, ["out"])],
        name,
        [value_info(one, array) for one, array in zip(names, given, strict=True)],
        [output],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return OnnxCase(name, NODE, proto, [(list(given), [made])], 1e-3, 1e-7)


CASES = (
    case("right", "Neg", [X], -X),
    case("differs", "Abs", [X], X + 1),
    case("shaped", "Reshape", [X, np.array([3, 2])], X.reshape(3, 2), declared=False),
    case("nobody knows it", "NoSuchOperator", [X], X),
    case("rounded", "Neg", [X.astype(np.float16)], (-X * (1 + 2.0**-10)).astype(np.float16)),
    case("disputed", "Abs", [X], X + 1),
)


def strings() -> OnnxCase:
    info = helper.make_tensor_value_info("in0", TensorProto.STRING, [1])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["in0"], ["out"])], "g", [info], [onnx.ValueInfoProto(name="out")]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    words = np.array(["a"], object)
    return OnnxCase("strings", NODE, proto, [([words], [words])], 1e-3, 1e-7)


def test_ways_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    others = {
        "disputed": Dispute("because", lambda _model, given: [np.abs(given[0])]),
        "differs": Dispute("because", lambda _model, given: [given[0] + 2]),
    }
    monkeypatch.setattr(judge, "DISPUTED", others)
    found = {one.case: one for one in attempt([*CASES, strings()], Place("cpu"), told.append)}
    assert {name: one.state for name, one in found.items()} == {
        "right": State.PASSED,
        "differs": State.WRONG,
        "shaped": State.BOUND,
        "nobody knows it": State.UNSUPPORTED,
        "strings": State.UNSUPPORTED,
        "rounded": State.ROUNDED,
        "disputed": State.DISPUTED,
    }
    assert found["disputed"].reason == "because"
    assert "differs by at most 1" in found["differs"].reason
    assert "does not declare" in found["shaped"].reason
    assert told


def test_a_crash_is_that_of_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def crashing(cases: Sequence[OnnxCase], place: Place, tell: Any) -> list[Outcome]:
        if any(one.name == "differs" for one in cases):
            os.kill(os.getpid(), signal.SIGKILL)
        return [Outcome(one.name, State.PASSED) for one in cases]

    monkeypatch.setattr(tool, "attempt", crashing)
    found = {one.case: one.state for one in tool._outcomes(CASES, Place("cpu"))}
    assert found.pop("differs") is State.CRASHED
    assert set(found.values()) == {State.PASSED}


def test_outcomes_and_page(tmp_path: Path) -> None:
    outcomes = Outcomes(tmp_path / "cpu.jsonl")
    for one in (
        Outcome("right", State.FAILED),
        Outcome("right", State.PASSED),
        Outcome("differs", State.WRONG, "a|b"),
    ):
        outcomes.add(one)
    with (tmp_path / "cpu.jsonl").open("a") as file:
        file.write('{"case": "shaped", "sta')  # its writer was killed
    assert {name: one.state for name, one in outcomes.read().items()} == {
        "right": State.PASSED,
        "differs": State.WRONG,
    }
    same, other = outcomes.read(), {**outcomes.read(), "right": Outcome("right", State.CRASHED, "signal 11")}
    by_target = {"cpu": outcomes.read(), "same": same, "other": other}
    keys = {"cpu": {"right": ""}, "same": {"right": "", "differs": ""}, "other": {"right": "", "differs": ""}}
    write_page(tmp_path / "page.md", by_target, CASES, keys)
    text = (tmp_path / "page.md").read_text()
    assert "| cpu | 2 node | 1 | 0 | 0 | 0 | 0 | 1 |" in text
    assert "\nOf an earlier state of the compiler are 1 on cpu.\n" in text
    assert text.count("| wrong | a\\|b | differs |") == 1
    assert "## Otherwise on same\n\nEach of the 2 cases ends as on cpu.\n" in text
    assert text.endswith("| crashed | signal 11 | right |\n")


def test_equal_cases_have_equal_digests() -> None:
    assert strings().digest == strings().digest
    assert len({one.digest for one in CASES}) == len(CASES)
