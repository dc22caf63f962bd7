"""Outputs behind operators that select by value: rounding may select others, a defect may not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler.verify import exposed, selections
from compiler.verify.check import verify_here
from compiler.verify.report import VerifyReport, VerifyRequest

ROWS, TERMS, BEST = 128, 768, 40


def _model(path: Path, seed: int = 0) -> Path:
    """Scores that only rounding tells apart, sums of the same numbers in another order each; the best."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal(TERMS).astype(np.float32)
    weights = np.stack([random.permutation(numbers) for _ in range(ROWS)], axis=1)
    constants = {"weights": weights, "k": np.array([BEST]), "table": np.arange(ROWS, dtype=np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "weights"], ["scores"]),
        helper.make_node("TopK", ["scores", "k"], ["best", "places"]),
        helper.make_node("Gather", ["table", "places"], ["rows"]),
    ]
    graph = helper.make_graph(
        nodes,
        "best",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, TERMS])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, BEST]) for name in ("best", "rows")],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A model, its library, and an input of ones."""
    folder = tmp_path_factory.mktemp("selections")
    model = _model(folder / "best.onnx")
    library = folder / "best.so"
    compiler.compile_model(model, compiler.CompileOptions(output=library))
    np.save(folder / "x.npy", np.ones((1, TERMS), np.float32))
    return model, library, folder / "x.npy"


def _verified(library: Path, model: Path, ones: Path) -> VerifyReport:
    return verify_here(VerifyRequest(library, model, inputs=(f"x={ones}",), runs=1))


def test_rounding_selects_others(made: tuple[Path, Path, Path]) -> None:
    model, library, ones = made
    report = _verified(library, model, ones)
    assert [(one.name, one.passed) for one in report.outputs] == [("best", True), ("rows", False)]
    assert [(one.name, one.passed) for one in report.selections] == [
        ("scores", True),
        ("best", True),
        ("rows", True),
    ]
    assert report.passed
    assert report.needed == max(one.needed for one in report.selections)


def test_another_library_says_nothing_about_this_one(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    _, library, ones = made
    report = _verified(library, _model(tmp_path / "other.onnx", seed=1), ones)
    assert report.selections == ()
    assert not report.passed


@pytest.mark.parametrize("name", ["scores", "rows"])
def test_defects_are_found(made: tuple[Path, Path, Path], name: str) -> None:
    """Of what is selected from, and of what is selected."""
    model, library, ones = made
    run = selections.run_exposed

    def wrong(*args: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
        actual, manifest = run(*args)
        return {**actual, name: np.roll(actual[name], 1) + np.float32(0.5)}, manifest

    with patch.object(selections, "run_exposed", wrong), patch.object(np, "array_equal", return_value=True):
        report = _verified(library, model, ones)
    assert not report.passed
    assert not next(one for one in report.selections if one.name == name).passed


def test_why_it_is_not_compared(made: tuple[Path, Path, Path]) -> None:
    model, library, ones = made
    with patch.object(selections, "run_exposed", side_effect=compiler.BuildError("no compiler")):
        report = _verified(library, model, ones)
    assert not report.passed
    assert "not compared from the library's own values: no compiler" in report.notes


def test_compiled_as_the_library_was(made: tuple[Path, Path, Path], tmp_path: Path) -> None:
    model, _, ones = made
    library = tmp_path / "unfused.so"
    compiler.compile_model(model, compiler.CompileOptions(output=library, without=("fuse",)))
    with patch.object(exposed, "compile_model", wraps=exposed.compile_model) as compiled:
        assert _verified(library, model, ones).passed
    assert {call.args[1].without for call in compiled.call_args_list} == {("fuse",)}


def test_what_is_selected_from(made: tuple[Path, Path, Path]) -> None:
    assert selections.selected_from(onnx.load(made[0])) == ("scores",)
