"""What is decided about a graph: asked by name, replayed from a record, the same results whatever it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.graph.fuse import MOST_NODES
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Value
from compiler.loops.evaluate import evaluate_func
from compiler.reports import CompileOptions
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.stages.graph_decisions import ATTENTION, FUSION, LAYOUT, choose_graph, graph_workload
from compiler.stages.groups import fused_groups, laid_out_groups
from compiler.stages.job import CompileJob
from compiler.stages.kernels import model_steps
from compiler.stages.tuned import Layouts, Tuned
from compiler.stages.workload import Workload
from tests.support.kernels import lower_all, run_flat
from tests.support.sketch import Sketch


def network(channels: int = 16) -> Graph:
    """Convolutions, one with an epilogue of two operators, one of 3 x 3 between tensors of the model."""
    s = Sketch()
    x = s.conv(s.input(1, 3, 10, 10), channels, 3)
    y = s.emit("Relu", s.emit("Add", s.conv(x, channels, 1), x))
    return s.graph(s.conv(y, 8, 3))


def job_of(tmp_path: Path, **decisions: int) -> CompileJob:
    options = CompileOptions(tmp_path / "m.so", "cpu", "x86-64-v3")
    job = CompileJob.of(tmp_path / "m.onnx", options)
    return replace(
        job, chooser=ReplayChooser({f"graph.{k}": (v,) for k, v in decisions.items()}, job.chooser)
    )


def test_by_default_it_is_what_is_estimated(tmp_path: Path) -> None:
    made = choose_graph(network(), job_of(tmp_path))
    assert (made.fusion, made.attention, made.layout) == (MOST_NODES, True, Layouts.BY_COST)
    assert made.decisions == {FUSION: (MOST_NODES,), LAYOUT: (0,)}
    assert [option.value for option in made.offered[LAYOUT]] == [(n,) for n in range(5)]


def test_attention_is_asked_for_where_there_may_be_one(tmp_path: Path) -> None:
    s = Sketch()
    graph = s.graph(s.emit("Softmax", s.input(3, 5), axis=1, flatten=False))
    assert choose_graph(graph, job_of(tmp_path, attention=0)).attention is False
    assert ATTENTION in choose_graph(graph, job_of(tmp_path)).decisions


def test_decisions_change_groups_and_layouts(tmp_path: Path) -> None:
    graph = network()

    def made(**decisions: int) -> tuple[int, set[int]]:
        job = job_of(tmp_path, **decisions)
        job = replace(job, graph=choose_graph(graph, job))
        laid_out = laid_out_groups(fused_groups(graph, job), job)
        return len(laid_out.fused.groups), {layout.lanes for layout in laid_out.layouts.values()}

    groups, lanes = made()
    assert 8 in lanes
    assert made(layout=Layouts.ROW_MAJOR)[1] == {0}
    assert made(fusion=1)[0] > groups
    assert made(layout=Layouts.WITHOUT_COPIES)[0] <= groups


def test_a_record_of_the_graph_decides(tmp_path: Path) -> None:
    graph, job = network(), job_of(tmp_path)
    key = graph_workload(graph).key

    def records(workload: Workload) -> Tuned:
        return Tuned({LAYOUT: (1,)}, "a record") if workload.key == key else Tuned()

    made = choose_graph(graph, replace(job, records=records))
    assert (made.layout, made.record) == (Layouts.ROW_MAJOR, "a record")


def test_graphs_are_told_apart_by_what_they_do() -> None:
    key = graph_workload(network()).key
    assert graph_workload(network()).key == key
    assert graph_workload(network(24)).key != key


def test_a_workload_of_a_graph_is_read_back() -> None:
    workload = graph_workload(network())
    again = Workload.from_json(workload.to_json())
    assert again.key == workload.key


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "decisions", [*({"layout": layout} for layout in [*Layouts][1:]), {"fusion": 1}, {"fusion": 2}]
)
def test_whatever_is_decided_the_kernels_compute_the_same(decisions: dict[str, int], tmp_path: Path) -> None:
    graph, job = network(), job_of(tmp_path, **decisions)
    job = replace(job, graph=choose_graph(graph, job))
    laid_out = laid_out_groups(fused_groups(graph, job), job)
    source = np.random.default_rng(2)
    image = source.integers(-3, 4, graph.inputs[0].type.shape).astype(np.float32)
    (wanted,) = evaluate(graph, dict(zip(graph.input_names, [image], strict=True))).values()
    made: dict[Value, Any] = {graph.inputs[0]: image, **laid_out.fused.graph.constants}
    tasks, steps = model_steps(laid_out, job)
    for step in steps:
        func, layouts = tasks[step.kernel].work
        schedule = schedule_func(func, dict(layouts), job.target.facts, AnalyticChooser())
        derived = {
            value: evaluate_func(one.func, [made[item] for item in one.inputs])[0]
            for value, one in step.derived.items()
        }
        inputs = {
            item.name: (made | derived)[value]
            for item, value in zip(func.params, step.values, strict=True)
            if value in made or value in derived
        }
        got = run_flat(schedule.func, lower_all(schedule.func, job.target.facts), inputs)
        made |= {v: got[p.name] for p, v in zip(func.params, step.values, strict=True) if p.name in got}
    (result,) = graph.outputs
    np.testing.assert_allclose(made[result].reshape(result.type.shape), wanted, 1e-4, 1e-4)
