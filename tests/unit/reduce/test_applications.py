"""The application of a pass that is wrong, the rule behind a step, and runs without an end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.passes import Limits
from compiler.frontend.onnx import import_model
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph
from compiler.graph.rewrites import PASSES, rewrite_graph
from compiler.pipeline import run_job
from compiler.reduce.applications import Counts, first_wrong_application
from compiler.reduce.rules import WatchedChooser, WatchedSteps
from compiler.reduce.runs import Runs
from compiler.runtime.tensors import Array
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.stages.finished import PACKAGE
from compiler.stages.groups import fused_groups, laid_out_groups
from compiler.stages.job import CompileJob
from compiler.stages.kernels import model_steps
from tests.support.onnx_models import model
from tests.support.reduction_models import write_reduction_model


@pytest.mark.parametrize("wrong", [1, 2, 20, 21])
def test_the_first_wrong_application_is_found(wrong: int) -> None:
    asked: list[int] = []

    def shows(most: int) -> bool:
        asked.append(most)
        return most >= wrong

    def count(most: int | None) -> Counts:
        made = 21 if most is None else min(most, 21)
        return {"other": (3, "x"), "fold": (made, f"node {made}")}

    found = first_wrong_application("fold", shows, count)
    assert found is not None
    assert (found.number, found.total, found.what) == (wrong, 21, f"node {wrong}")
    assert found.text("the model") == f"fold, application {wrong} of 21 in the model: node {wrong}"
    assert len(asked) <= 2 + 5


@pytest.mark.parametrize(("total", "always"), [(0, False), (4, True), (4, None)])
def test_without_a_difference_there_is_none(total: int, always: bool | None) -> None:
    def count(_most: int | None) -> Counts:
        return {"fold": (total, "")} if total else {}

    assert first_wrong_application("fold", lambda _: bool(always), count) is None


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_reduction_model("deep", tmp_path_factory.mktemp("deep"))


def test_every_number_of_applications_keeps_the_meaning(imported: Path) -> None:
    """Of the rewrites that go place by place, in the middle of each."""
    graph = import_model(imported)
    feeds = {"image": np.random.default_rng(3).standard_normal((1, 3, 12, 12), np.float32)}
    wanted = evaluate(graph, feeds)
    whole = Limits()
    rewrite_graph(graph, limits=whole)
    counts = {name: made.count for name, made in whole.made.items() if made.count > 1}
    assert counts["fold-batchnorm"] == 28
    optional = {item.name for item in PASSES if item.optional}
    for name in optional & counts.keys():
        limits = Limits({name: counts[name] // 2})
        made = evaluate(rewrite_graph(graph, limits=limits), feeds)
        assert limits.of(name).count == counts[name] // 2
        assert not Runs().differ(lambda made=made: made, wanted), name


def test_steps_and_decisions_name_their_rules(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    constants = {"w": np.ones((48, 32), np.float32)}
    onnx.save(model(nodes, {"x": np.zeros((24, 48), np.float32)}, ["y"], constants), tmp_path / "m.onnx")
    job = CompileJob.of(tmp_path / "m.onnx", compiler.CompileOptions(tmp_path / "m.so", arch="x86-64-v3"))
    graph: Graph = rewrite_graph(import_model(tmp_path / "m.onnx"))
    (task, *_), _ = model_steps(laid_out_groups(fused_groups(graph, job), job), job)
    steps, chooser = WatchedSteps(), WatchedChooser(AnalyticChooser())
    func, layouts = task.work
    trace = schedule_func(func, dict(layouts), job.target.facts, chooser, observe=steps).trace
    rules = {steps.rule(item).partition(":")[0] for item in trace.instructions}
    assert any(rule.startswith("schedule/rules/vector/") for rule in rules)
    assert all((PACKAGE / rule).is_file() for rule in rules if rule)
    assert chooser.rules
    assert all(rule.startswith("schedule/rules/vector/") for rule in chooser.rules.values()), chooser.rules


def test_a_run_without_an_end_differs() -> None:
    def forever() -> Mapping[str, Array]:
        while True:
            time.sleep(0.01)

    wanted = {"y": np.zeros(2)}
    assert Runs(0.1).differ(forever, wanted)
    assert not Runs(5.0).differ(lambda: wanted, wanted)


def test_limits_are_told_by_the_compile(imported: Path, tmp_path: Path) -> None:
    limits = {"fold-batchnorm": 5, "fuse": 1, "in-place": 7}
    options = compiler.CompileOptions(tmp_path / "m.so", limits=limits, stop_after="layout")
    report = run_job(CompileJob.of(imported, options))
    told = {one.name: (one.applied, one.last) for one in report.limited}
    assert told["fold-batchnorm"] == (5, "Mul (BatchNormalization_8)")
    assert told["fuse"][0] == 1
    assert told["in-place"] == (0, ""), "it has no concatenation"
