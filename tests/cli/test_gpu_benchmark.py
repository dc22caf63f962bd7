"""`just gpu` and its peers: the tables, what is said where something is missing, batches."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import compiler
from compiler.stages.optional import OPTIONAL_PASSES
from tests.support.command import environment

ROOT = Path(__file__).parents[2]
onnxruntime = pytest.importorskip("onnxruntime", reason="the reference of the measurements")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module, without PyTorch, with its files in a folder of the test."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    peers, support = import_module("gpu_peers"), import_module("support")
    monkeypatch.setattr(support, "WORK", tmp_path)
    monkeypatch.setattr(peers, "_torch", lambda: None)
    return peers


def no_gpu() -> None:
    if next(one for one in compiler.list_targets() if one.name == "cuda-nvidia").runs:
        pytest.skip("this machine has a GPU")


def test_the_table_on_host_cores(bench: Any, tmp_path: Path) -> None:
    cases = bench.cases_of(["mnist"], [1, 2], ["f32"])
    text = bench.measure_all("cpu", cases, bench.ENGINES, 0.05, tmp_path / "models", "peers")
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| mnist")]
    assert [row[2].strip() for row in rows] == ["1", "2"]
    for row in rows:
        tk, *torch, reference = (cell.strip() for cell in row[4:9])
        assert torch == ["not run"] * 3
        assert float(row[12]) == pytest.approx(float(tk) / float(reference), rel=0.2, abs=0.02)
    assert "- mnist, batch 2, f32, compile: not run: torch is not installed" in text
    assert "for batch 1: not measured" in text
    record = json.loads((tmp_path / "peers.json").read_text())
    assert [one["case"]["batch"] for one in record["results"]] == [1, 2]
    assert (tmp_path / "peers.md").read_text().strip() == text


def test_a_wrong_result_gets_no_time(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    open_tk = bench.OPEN["tk"]

    def broken(*arguments: Any) -> Any:
        engine = open_tk(*arguments)
        return bench.Engine("tk", engine.run, lambda: {k: v + 1 for k, v in engine.outputs().items()})

    monkeypatch.setattr(bench, "OPEN", {**bench.OPEN, "tk": broken})
    bed = bench.Bed("cpu")
    one = bench.measure(bench.Case("mnist", 1, "f32"), bed, ["tk", "onnxruntime"], 0.05, tmp_path / "models")
    assert list(one.times) == ["onnxruntime"]
    assert one.not_run["tk"].startswith("wrong result: off by ")
    assert one.ratio("onnxruntime") is None


def test_the_goal(bench: Any) -> None:
    def measured(network: str, batch: int, tk: float) -> Any:
        one = bench.Measured(bench.Case(network, batch, "f32"))
        one.times = {
            key: bench.Times(value, value, value, 9) for key, value in (("tk", tk), ("compile", 2.0))
        }
        return one

    assert "reached; geometric mean 1.50, worst 1.50 in a." in bench.verdict([measured("a", 1, 3.0)])
    found = bench.verdict([measured("a", 1, 1.0), measured("b", 1, 9.0), measured("c", 16, 99.0)])
    assert "not reached; geometric mean 1.50, worst 4.50 in b." in found


def test_times_of_a_device(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU each run waits for an event behind it, and the device's own time is kept."""
    calls: list[str] = []

    class Event:
        def __init__(self, **_: bool) -> None: ...
        def record(self) -> None:
            calls.append("record")

        def synchronize(self) -> None:
            calls.append("wait")

        def elapsed_time(self, _: object) -> float:
            return 0.25

    cuda = SimpleNamespace(
        is_available=lambda: True,
        Stream=lambda: SimpleNamespace(cuda_stream=77),
        Event=Event,
        get_device_name=lambda: "Stand-in",
    )
    monkeypatch.setattr(bench, "_torch", lambda: SimpleNamespace(cuda=cuda))
    bed, times = bench.Bed("cuda"), list[float]()
    bed.timed(lambda: calls.append("run"), times)()
    assert calls == ["record", "run", "record", "wait"]
    assert times == [0.25]
    assert bed.stream == 77
    assert "Stand-in; inputs and outputs lie on the device" in bed.describe()
    one = bench.Measured(bench.Case("mnist", 1, "tf32"), {"tk": bench.Times(2, 2, 2, 9)}, {"tk": 1.5})
    assert "2.000 (1.500)" in bench.table([one], bench.ENGINES)


@pytest.mark.parametrize("name", ["squeezenet", "mnist"])
def test_a_batch_is_the_same_network(bench: Any, tmp_path: Path, name: str) -> None:
    path = import_module("batches").batched_path(name, 2, tmp_path)
    single = onnxruntime.InferenceSession(str(tmp_path / f"{name}.onnx"))
    double = onnxruntime.InferenceSession(str(path))
    given = single.get_inputs()[0]
    x = np.random.default_rng(3).standard_normal((2, *given.shape[1:]), dtype=np.float32)
    for got, want in zip(
        double.run(None, {given.name: x})[0],
        [single.run(None, {given.name: one[None]})[0][0] for one in x],
        strict=True,
    ):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_network_without_a_batch_is_refused(bench: Any) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (float[1, 2] x, float[1, 2] y) => (float[1, 4] z) '
        "{ t = Concat<axis=1>(x, y) s = Constant<value_ints=[1, 4]>() z = Reshape(t, s) }"
    )
    with pytest.raises(ValueError, match="does not take a batch of 3"):
        import_module("batches").batched(model, 3)


@pytest.mark.parametrize("program", ["gpu.py", "gpu_peers.py"])
def test_without_a_gpu_nothing_is_run(program: str) -> None:
    no_gpu()
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / program)],
        env=environment({}), capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout.strip().startswith("not run: cuda-nvidia: ")


def script(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    argv = ["/bin/sh", str(ROOT / "benchmarks" / "gpu_machine.sh"), *arguments]
    env = environment({"PYTHON": sys.executable, **changes})
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param((), marks=pytest.mark.slow),
        ("--peers", "--networks", "resnet50", "--batches", "1"),
    ],
)
def test_the_script_for_a_bare_machine(tmp_path: Path, options: tuple[str, ...]) -> None:
    no_gpu()
    done = script("--wheels", str(tmp_path), *options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith("not run: cuda-nvidia: ")


@pytest.fixture
def plan(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module of `just gpu`, with its files in a folder of the test."""
    module = import_module("gpu")
    monkeypatch.setattr(module, "WORK", tmp_path)
    return module


def made(plan: Any, tmp_path: Path, jobs: list[str], minutes: float) -> Any:
    end = time.monotonic() + 60 * minutes
    wanted = tuple(map(plan.Job.parse, jobs))
    found = plan.Plan("cpu", wanted, ("verify", "time"), end, 0.05, tmp_path / "models")
    record = plan.Record("cpu", "this machine", {"commit": "abc"})
    plan.verify_all(found, record)
    plan.time_all(found, record)
    return record


def test_the_plan_verifies_times_and_resumes(plan: Any, tmp_path: Path) -> None:
    record = made(plan, tmp_path, ["mnist"], 1)
    row = record.rows["mnist"]
    assert not row.problem
    assert row.needed < 1e-5
    assert row.p50_ms > 0
    assert {one.measured is not None for one in row.kernels} == {True}
    later = plan.Record("cpu", "this machine", {"commit": "abc"})
    later.resume()
    assert later.rows == record.rows
    for other in (
        plan.Record("cpu", "another", {"commit": "abc"}),
        plan.Record("cpu", "this machine", {"commit": "d"}),
    ):
        other.resume()
        assert not other.rows


def test_the_plan_says_what_it_had_no_time_for(plan: Any, tmp_path: Path) -> None:
    record = made(plan, tmp_path, ["mnist", "nothing+f16"], 0)
    assert {row.problem for row in record.rows.values()} == {"not run: no time was left"}
    assert "not run: no time was left" in (tmp_path / "gpu-cpu.md").read_text()


def test_what_goes_wrong_is_a_row(plan: Any, tmp_path: Path) -> None:
    record = made(plan, tmp_path, ["mnist+f16"], 1)
    assert "products cannot be rounded to f16" in record.rows["mnist+f16"].problem
    assert record.rows["mnist+f16"].p50_ms is None


def test_what_a_sanitizer_does_not_see_is_said(plan: Any, tmp_path: Path) -> None:
    missing = tmp_path / "none.so"
    assert plan.sanitized("tool", "memcheck", missing, 60) == "not run: it was not compiled"
    missing.touch()
    assert plan.sanitized("tool", "memcheck", missing, 1) == "not run: no time was left"


@pytest.mark.parametrize("target", ["cpu:host", "cpu"])
def test_the_plan_has_peers_for_a_target_with_its_architecture(
    plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(plan, "measure_all", lambda device, *_, **__: asked.append(device))
    found = plan.Plan(target, (), ("peers",), time.monotonic(), 0.05, tmp_path)
    plan.peers_all(found, plan.Record("cpu", "here", {}))
    assert asked == ["cpu"]


def test_rules_are_timed_on_and_off(
    plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    rules = {"fuse": ("mnist", "mnist+f16")}
    monkeypatch.setattr(plan.gpu_rules, "RULES", rules)
    found = plan.Plan("opencl-cpu", (), ("rules",), time.monotonic() + 600, 0.05, tmp_path / "models")
    record = plan.Record("cpu", "this machine", {"commit": "abc"})
    monkeypatch.setattr(plan, "WORK", tmp_path)
    monkeypatch.setattr(
        plan, "save", lambda name, content, _: (tmp_path / f"{name}.json").write_text(json.dumps(content))
    )
    plan.compare_all(found, record)
    assert {"mnist", "mnist-without-fuse", "mnist+f16", "mnist+f16-without-fuse"} == set(record.rows)
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert float(first.removeprefix("fuse, mnist: ")) > 0
    assert "products cannot be rounded to f16" in second
    made = plan.library_path(plan.Job.parse("mnist-without-fuse"), "opencl-cpu", tmp_path / "models")
    assert compiler.manifest_of(made)["without"] == ["fuse"]
    plan.compare_all(found, plan.Record("cpu", "this machine", {"commit": "abc"}))
    (again,) = capsys.readouterr().out.splitlines()[-1:]
    assert again.startswith("fuse, mnist+f16: ")  # what went wrong, and nothing else
    rows = json.loads((tmp_path / "gpu-rules-opencl-cpu.json").read_text())["rows"]
    assert [one["job"] for one in rows] == ["mnist", "mnist+f16"]


def test_turns_weigh_on_both_alike(plan: Any) -> None:
    """A device that slows down with each run: the ratio is 1."""
    taken: list[str] = []

    def time_job(job: Any) -> Any:
        taken.append(str(job))
        return plan.Row(str(job), kernels_ms=float(len(taken)))

    row = plan.gpu_rules.compared("clusters", plan.Job("resnet50", "f16"), time_job)
    assert taken == [
        "resnet50+f16",
        "resnet50+f16-without-clusters",
        "resnet50+f16-without-clusters",
        "resnet50+f16",
    ]
    assert row.ratio == 1
    assert "| 1000.0 4000.0 | 2000.0 3000.0 |" in " ".join(plan.gpu_rules.table([row]).split())


def test_rules_that_are_compared_can_be_left_out(plan: Any) -> None:
    assert {name for rule in plan.gpu_rules.RULES for name in rule.split(",")} <= set(OPTIONAL_PASSES)
    first = plan.gpu_rules.comparisons()[: len(plan.gpu_rules.RULES)]
    assert {rule for rule, _ in first} == set(plan.gpu_rules.RULES)


def test_a_plan_is_foreseen_without_a_gpu() -> None:
    asked = [
        "--plan",
        "--jobs",
        "mnist",
        "resnet50+f16",
        "--stages",
        "time",
        "verify",
        "peers",
        "conform",
        "--seconds",
        "1",
    ]
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *asked],
        env=environment({}), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in done.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["verify", "time", "conform", "peers"]
    assert rows[1] == ["time", "2 jobs, one by one", "0.1"]
    assert rows[3][1] == "18 cases of 5 engines"


def test_onnx_cases_of_a_plan(
    plan: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """As `just conformance TARGET` runs them; what ends them early is said."""
    asked: list[list[str]] = []

    def run(argv: list[str], **_: Any) -> Any:
        asked.append(argv)
        return SimpleNamespace(stdout="failed a: b\ncuda: 3 passed\n", stderr="")

    monkeypatch.setattr(plan, "run", run)
    monkeypatch.setattr(plan, "WORK", tmp_path)
    for left in (0, 60):
        found = plan.Plan("cpu:host", (), ("conform",), time.monotonic() + left, 0.05, tmp_path)
        plan.conform_all(found, plan.Record("cpu", "here", {}))
    assert capsys.readouterr().out.splitlines() == [
        "not run: ONNX's cases: no time was left",
        f"ONNX's cases: cuda: 3 passed; what did not pass: {tmp_path / 'gpu-conformance.txt'}",
    ]
    assert [argv[3:] for argv in asked] == [["-m", "tests.conformance", "cpu:host"]]
    assert "failed a: b" in (tmp_path / "gpu-conformance.txt").read_text()


def test_peers_of_a_plan(plan: Any) -> None:
    assert plan.peer_device("cuda-nvidia:sm_90") == "cuda"
    assert plan.peer_device("opencl-amd") is None
    assert {one.precision for one in plan.peer_cases("hip")} == {"f32"}
    assert plan.peer_cases(None) == []


def test_timing_begins_when_a_file_is_there(bench: Any, tmp_path: Path, capfd: Any) -> None:
    wait_for = import_module("support").wait_for
    wait_for(None)
    waiting = Thread(target=wait_for, args=(tmp_path / "go",), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    (tmp_path / "go").touch()
    waiting.join(10)
    assert not waiting.is_alive()
    assert "ready: waits for" in capfd.readouterr().err


def test_an_unknown_network_of_the_plan() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--jobs", "resnet5O"],
        env=environment({}), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "resnet50" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(
    ("measured", "constants", "least_tau"), [("OF_THREADS", "ON_THREADS", 0.8), ("OF_UNITS", "ON_UNITS", 0.7)]
)
def test_estimates_agree_with_what_was_measured(measured: str, constants: str, least_tau: float) -> None:
    """Of 423 and 440 tiles on an H100: which of two takes longer, and how long."""
    fit = import_module("gpu_fit")
    facts = fit.get_target("cuda", "sm_90").facts
    mean, square, every, inside = fit.judged(
        fit.points(getattr(fit, measured)), facts, getattr(fit, constants)
    )
    assert abs(mean) < 0.1
    assert square < 0.3
    assert every > least_tau
    assert inside > 0.45


def test_the_script_without_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "dirname").symlink_to(shutil.which("dirname") or "/usr/bin/dirname")
    done = script(PATH=str(tmp_path), TK_CXX="")
    assert done.returncode == 4
    assert "no C++ compiler: apt-get install g++" in done.stderr
