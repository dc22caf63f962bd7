"""A job is resolved once, and what it says reaches the stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.pipeline import run_job
from compiler.schedule.chooser import AnalyticChooser, Option
from compiler.stages import job
from compiler.stages.job import CompileJob
from compiler.targets import Target, get_target
from tests.support.onnx_models import model


@pytest.fixture
def convolution(tmp_path: Path) -> Path:
    """A network with a choice of forms, and of tiles."""
    x, w = np.zeros((1, 32, 20, 20), np.float32), np.zeros((32, 32, 3, 3), np.float32)
    path = tmp_path / "m.onnx"
    onnx.save(model([helper.make_node("Conv", ["x", "w"], ["y"])], {"x": x}, ["y"], {"w": w}), path)
    return path


def test_one_chooser_fills_every_decision(convolution: Path, tmp_path: Path) -> None:
    asked = []

    class Spy:
        def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
            asked.append(name)
            return AnalyticChooser().choose(name, options)

    options = compiler.CompileOptions(tmp_path / "m.so", arch="x86-64-v3", stop_after="schedule")
    run_job(replace(CompileJob.of(convolution, options), chooser=Spy()))
    assert asked.index("graph.layout") < asked.index("Conv.form")
    assert len(set(asked)) > 1, "those of schedules, too"


def test_a_target_is_looked_up_once(
    convolution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Target] = []

    def counted(*args: str | None, precision: str) -> Target:
        found.append(get_target(*args, precision=precision))
        return found[-1]

    monkeypatch.setattr(job, "get_target", counted)
    options = compiler.CompileOptions(tmp_path / "m.so", arch="x86-64-v3")
    assert [compiler.compile_model(convolution, options).cached for _ in range(2)] == [False, True]
    assert len(found) == 2


def test_a_mistake_leaves_the_earlier_dump(
    convolution: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = compiler.CompileOptions(tmp_path / "m.so", arch="x86-64-v3", dump=tmp_path / "dump")
    CompileJob.of(convolution, options)
    (tmp_path / "dump" / "mine").touch()
    monkeypatch.setenv("TK_JOBS", "many")
    with pytest.raises(compiler.UsageError, match="TK_JOBS"):
        CompileJob.of(convolution, options)
    assert (tmp_path / "dump" / "mine").exists()
