"""Random graphs of all operators and types; the whole fuzzer is `bin/just fuzz`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.core.files import private_directory
from tests.fuzz import attempt, judge
from tests.fuzz.graphs import FuzzGraph, graph_of, profile_of
from tests.fuzz.grow import BF16, F8, F16, F32, F64, I4, I64, U8
from tests.fuzz.oracle import Expected, by_nodes, by_onnxruntime, by_reference, expected_of
from tests.fuzz.outcome import FAULTS, Outcome, Outcomes, State
from tests.fuzz.shrink import shrink

SEEDS = (tuple(range(520, 525)), tuple(range(140, 145)), tuple(range(387, 392)))
"""With one profile each: a free batch, small types, and free lengths."""


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_graphs_compute_what_oracles_say(seeds: Sequence[int]) -> None:
    found = attempt.attempt([graph_of(seed) for seed in seeds], attempt.PLAIN)
    assert [one for one in found if one.state in FAULTS] == []
    assert sum(one.state is State.PASSED for one in found) > len(seeds) / 2


def test_graphs_are_varied() -> None:
    graphs = [graph_of(seed) for seed in range(0, 3000, 6)]
    assert len(set().union(*(one.operators for one in graphs))) >= 120
    kinds = {array.dtype for one in graphs for array in one.feeds[0].values()}
    assert kinds >= {F16, F32, F64, BF16, I64, U8, I4, *F8}
    assert {one.profile.free for one in graphs} == {True, False}
    assert len({profile_of(block).opset for block in range(150)}) >= 10
    assert any(0 in array.shape for one in graphs for array in one.feeds[0].values())


def test_a_seed_gives_one_graph() -> None:
    first, second = graph_of(7), graph_of(7)
    assert first.proto.SerializeToString() == second.proto.SerializeToString()
    for one, other in zip(first.feeds, second.feeds, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)


# ---------------------------------------------------------------- what is called wrong


def graph(nodes: Sequence[onnx.NodeProto], **given: np.ndarray) -> FuzzGraph:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    made = helper.make_graph(nodes, "g", inputs, [onnx.ValueInfoProto(name="y")])
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return FuzzGraph(0, replace(profile_of(0), free=False), proto, [given])


X = np.linspace(-2, 2, 60, dtype=np.float32).reshape(3, 20)
SUM = graph([helper.make_node("Exp", ["x"], ["y"])], x=X)


def judged(of: FuzzGraph, got: np.ndarray, *wanted: np.ndarray) -> State:
    oracles = zip((by_onnxruntime, by_reference), wanted, strict=False)
    expected = Expected({oracle: [{"y": want}] for oracle, want in oracles}) if wanted else expected_of(of)
    assert not isinstance(expected, str)
    return judge.judge(of, expected, [{"y": got}]).state


def test_a_wrong_element_is_found() -> None:
    right = np.exp(X)
    assert judged(SUM, right) is State.PASSED
    wrong = right.copy()
    wrong[1, 7] *= 1 + 1e-4
    assert judged(SUM, wrong) is State.WRONG
    assert judged(SUM, right[:1]) is State.WRONG
    wrong[1, 7] = np.nan
    assert judged(SUM, wrong) is State.WRONG


def test_oracles_that_disagree_decide_nothing() -> None:
    right = np.exp(X)
    assert judged(SUM, right, right, right + 1) is State.UNDECIDED
    assert judged(SUM, right + 2, right, right + 1) is State.UNDECIDED
    assert judged(SUM, right, right, right) is State.PASSED


def test_what_rounding_moves_is_not_called_wrong() -> None:
    cut = [helper.make_node("Mul", ["x", "x"], ["s"]), helper.make_node("Floor", ["s"], ["y"])]
    squares = np.arange(40, dtype=np.float32) + 0.5
    squares[4] = 5
    of = graph(cut, x=np.sqrt(squares))
    got = np.floor(of.feeds[0]["x"] * of.feeds[0]["x"])
    assert judged(of, got) is State.PASSED
    got[4] = 9 - got[4]  # 5 or just below it
    assert judged(of, got) is State.UNDECIDED
    got[7] -= 1
    assert judged(of, got) is State.WRONG


def test_exact_operators_have_no_tolerance() -> None:
    of = graph([helper.make_node("Neg", ["x"], ["y"])], x=X)
    assert judged(of, np.nextafter(-X, np.float32(9))) is State.WRONG


def test_node_by_node_is_as_the_whole() -> None:
    of = graph_of(3)
    whole, parts = expected_of(of), by_nodes(of.proto, of.feeds)
    assert not isinstance(whole, str)
    assert not isinstance(parts, str)
    for name, array in next(iter(whole.made.values()))[0].items():
        assert judge.compare(name, parts[0][name], array, 1e-5).passed


def test_bf16_is_rounded_after_every_node() -> None:
    """256 + 1 is 256 in bf16, and equal to it."""
    nodes = [helper.make_node("Add", ["x", "one"], ["s"]), helper.make_node("Equal", ["s", "x"], ["y"])]
    of = graph(nodes, x=np.asarray([256, 2], BF16), one=np.asarray([1, 1], BF16))
    expected = expected_of(of)
    assert not isinstance(expected, str)
    assert next(iter(expected.made.values()))[0]["y"].tolist() == [True, False]


# ---------------------------------------------------------------- files


def test_a_fault_is_written_and_made_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.shrink.MINUTES", 0.2)
    nodes = [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Reshape", ["n", "s"], ["y"])]
    of = graph(nodes, x=X, s=np.asarray([-1, 7], np.int64))
    lines = list(shrink(of, Outcome(0, State.INTERNAL, "planted"), tmp_path))
    assert lines[0] == "python -m tests.fuzz --seed 0"
    assert lines[1].startswith("tk reduce ")
    assert (tmp_path / "model.onnx").exists()
    assert len(lines) == 3


def test_outcomes_are_those_of_this_compiler() -> None:
    with private_directory("tk-fuzz") as directory:
        path = directory / "outcomes.jsonl"
        Outcomes(path, "one").add(Outcome(3, State.PASSED))
        Outcomes(path, "other").add(Outcome(4, State.WRONG, "why", (4, 5)))
        with path.open("a") as file:
            file.write('{"seed": 5, "sta')
        assert Outcomes(path, "one").read() == {3: Outcome(3, State.PASSED)}
        assert Outcomes(path, "other").read() == {4: Outcome(4, State.WRONG, "why", (4, 5))}
