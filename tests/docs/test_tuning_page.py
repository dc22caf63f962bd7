"""What docs/tuning.md shows of the database is done here, line by line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from tests.support.command import ROOT, Result
from tests.support.onnx_models import model
from tests.support.tuned import tune

TEXT = (ROOT / "docs" / "tuning.md").read_text()
OF_THE_DATABASE = ("compile", "stats", "show", "export", "import", "merge", "prune", "migrate")


def shown(*, sized: bool = False) -> list[list[str]]:
    """The lines that are about the database, in order: of a model of fixed sizes, or of another one."""
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    lines = [line.partition("#")[0].split() for block in blocks for line in block.splitlines()]
    return [words for words in lines if {*words[1:3]} & {*OF_THE_DATABASE} and ("--dim" in words) == sized]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model, and databases as the page calls them."""
    monkeypatch.setenv("TK_TUNING_DB", str(tmp_path / "own.db"))
    x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    onnx.save(model([node], {"x": x}, ["y"], {"w": w}), tmp_path / "model.onnx")
    return tmp_path


def test_each_line_does_what_it_is_for(folder: Path, tk: Callable[..., Result]) -> None:
    databases = [folder / name for name in ("own.db", "theirs.db", "more.db")]
    (record,), *_ = [tune(folder / "model.onnx", one) for one in databases]
    names = {"KERNEL": record.workload, "RECORD": record.id}
    lines = shown()
    assert {word for words in lines for word in words[1:3]} >= {*OF_THE_DATABASE}
    for words in lines:
        done = tk(*(names.get(word, word) for word in words[1:]))
        assert done.code == 0, (words, done.err)
        assert "warning" not in done.err, (words, done.err)


def test_a_specialisation_takes_what_was_tuned_for_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tk: Callable[..., Result]
) -> None:
    monkeypatch.setenv("TK_TUNING_DB", str(tmp_path / "own.db"))
    x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "tokens"
    onnx.save(proto, tmp_path / "model.onnx")
    (record,) = tune(tmp_path / "model.onnx", tmp_path / "own.db", options={"dims": {"tokens": 128}})
    (words,) = shown(sized=True)
    done = tk(*words[1:])
    assert done.code == 0, done.err
    kernels = compiler.manifest_of(tmp_path / "model.so")["kernels"]
    assert [one["record"] for one in kernels].count(record.id) == 1
