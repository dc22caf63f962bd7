"""Launches side by side: any order that the branches of a plan allow gives what onnxruntime gives."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.target import TargetFacts
from compiler.graph.branches import Branches
from compiler.pipeline import run_job
from compiler.schedule.chooser import ReplayChooser
from compiler.stages import storage
from compiler.stages.branches import Planned, Work
from compiler.stages.compilation import Compilation
from compiler.stages.dump import PLAN
from compiler.stages.graph_decisions import BRANCHES
from compiler.stages.job import CompileJob
from compiler.stages.tuned import BranchChoice
from tests.support.branching import any_branches
from tests.support.emulated_models import TARGETS, text_only
from tests.support.onnx_models import model, run_onnxruntime

RUNS = 8
ONE_QUICK = [TARGETS[0], pytest.param(TARGETS[1], marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def _any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)
    monkeypatch.setenv("TK_EMULATOR_ORDER", "1")


class Net:
    """An image through convolutions."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.numbers = np.random.default_rng(3)

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        return name

    def conv(self, x: str, terms: int, rows: int, size: int = 1, stride: int = 1) -> str:
        weights = f"w{len(self.nodes)}"
        scale = 1 / (size * terms**0.5)
        shape = (rows, terms, size, size)
        self.constants[weights] = scale * self.numbers.standard_normal(shape, dtype=np.float32)
        pads = [size // 2] * 4
        return self.add("Relu", self.add("Conv", x, weights, pads=pads, strides=[stride, stride]))


def branching() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A module as Inception's, whose branches end in one tensor, and a residual one with two convolutions."""
    net = Net()
    parts = [
        net.conv("x", 8, 8),
        net.conv(net.conv("x", 8, 6), 6, 8, 3),
        net.conv(net.conv(net.conv("x", 8, 4), 4, 4, 3), 4, 4, 3),
        net.conv(net.add("MaxPool", "x", kernel_shape=[3, 3], pads=[1, 1, 1, 1]), 8, 4),
    ]
    x = net.add("Concat", *parts, axis=1)
    short = net.conv(x, 24, 12, 1, 2)
    x = net.conv(net.conv(net.conv(x, 24, 6), 6, 6, 3, 2), 6, 12)
    y = net.add("GlobalAveragePool", net.add("Add", x, short))
    feeds = {"x": np.zeros((1, 8, 9, 9), np.float32)}
    return model(net.nodes, feeds, [y, short], net.constants), feeds


def built(proto: onnx.ModelProto, target: str, directory: Path) -> Path:
    onnx.save(proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target=target)
    run_job(CompileJob.of(directory / "m.onnx", options))
    return directory / "m.so"


def branches_of(library: Path) -> int:
    return max(step.get("branch", 0) for step in compiler.manifest_of(library)["steps"]) + 1


def differences(library: Path, proto: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Iterator[float]:
    """Of some runs on the same memory, from the third on in other orders, how far the worst output is off."""
    numbers = np.random.default_rng(5)
    with compiler.load(library, device="emulator") as loaded:
        out = {item.name: np.empty(item.shape, np.float32) for item in loaded.outputs}
        for _ in range(RUNS):
            for array in feeds.values():
                array[...] = numbers.standard_normal(array.shape)
            loaded.run(feeds, out=out)
            wanted = run_onnxruntime(proto, feeds)
            yield max(float(np.abs(out[name] - wanted[name]).max()) for name in out)


def test_a_last_block_on_a_branch(tmp_path: Path) -> None:
    """Long sums, which are cut into chunks, beside others: counters are memory that a step touches, too."""
    net = Net()
    ends = [net.conv(net.conv("x", 256, 24, 3), 24, 8), net.conv(net.conv("x", 256, 16, 3), 16, 8)]
    feeds = {"x": np.zeros((1, 256, 7, 7), np.float32)}
    proto = model(net.nodes, feeds, [net.add("Concat", *ends, axis=1)], net.constants)
    library = built(proto, "cuda:sm_80", tmp_path)
    assert branches_of(library) > 1
    assert any("blockPart" in kernel["trace"] for kernel in compiler.manifest_of(library)["kernels"])
    assert max(differences(library, proto, feeds)) < 1e-3


@pytest.mark.parametrize("target", ONE_QUICK)
def test_any_order_is_right(target: str, tmp_path: Path) -> None:
    proto, feeds = branching()
    library = built(proto, target, tmp_path)
    assert branches_of(library) > 1
    assert max(differences(library, proto, feeds)) < 1e-4


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ONE_QUICK)
def test_branches_that_do_not_pay_are_right_too(
    target: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps on any of six branches, however much memory it takes."""

    def plan(_works: Sequence[Work], needs: Sequence[int], *_: TargetFacts, free: bool) -> list[Planned]:
        assert not free
        return [Planned(any_branches(needs, 6, random.Random(seed)), 0.0)]

    monkeypatch.setattr(storage, "possible_branches", plan)
    monkeypatch.setattr(storage, "_MOST_GROWTH", float("inf"))
    proto, feeds = branching()
    library = built(proto, target, tmp_path)
    assert branches_of(library) > 4
    assert max(differences(library, proto, feeds)) < 1e-4


def test_a_missing_wait_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = storage._stored

    def loose(*args: object) -> tuple[storage.Storage, Branches]:
        stored, branches = whole(*args)  # type: ignore[arg-type]
        number = max(number for number, waits in enumerate(branches.waits) if waits)
        waits = [() if one == number else found for one, found in enumerate(branches.waits)]
        return stored, replace(branches, waits=tuple(waits))

    monkeypatch.setattr(storage, "_stored", loose)
    proto, feeds = branching()
    library = built(proto, TARGETS[0], tmp_path)
    assert max(differences(library, proto, feeds)) > 1e-2


def planned(directory: Path, **options: Any) -> str:
    """The plan of the model as text."""
    onnx.save(branching()[0], directory / "m.onnx")
    chosen = compiler.CompileOptions(
        output=directory / "m.so", target=TARGETS[0], dump=directory / "dump", stop_after="plan", **options
    )
    run_job(CompileJob.of(directory / "m.onnx", chosen))
    return (directory / "dump" / f"{PLAN}.txt").read_text()


def test_steps_say_what_they_come_behind(tmp_path: Path) -> None:
    assert re.search(r"\) on branch 1 behind \d", planned(tmp_path))


def test_they_can_be_left_out(tmp_path: Path) -> None:
    assert "branch" not in planned(tmp_path, without=("parallel-branches",))


def test_memory_bounds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes too much more than steps in order is not done."""
    monkeypatch.setattr(storage, "_MOST_GROWTH", 0.99)
    assert "branch" not in planned(tmp_path)


@pytest.mark.parametrize("decided", BranchChoice)
def test_a_decision_of_the_graph(decided: BranchChoice, tmp_path: Path) -> None:
    job = CompileJob.of(tmp_path / "m.onnx", compiler.CompileOptions(tmp_path / "m.so", TARGETS[0]))
    onnx.save(branching()[0], tmp_path / "m.onnx")
    job = replace(job, chooser=ReplayChooser({BRANCHES: (decided,)}, job.chooser))
    found: list[Compilation] = []
    run_job(job, found.append)
    assert found[0].graph.branches is decided
    assert (branches_of(tmp_path / "m.so") > 1) == (decided is not BranchChoice.NONE)
