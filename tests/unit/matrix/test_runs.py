"""Trials are made once, apart from the others, whatever becomes of them and of who makes them."""

from __future__ import annotations

import inspect
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from compiler.core.answer import yes
from tests.support.command import ROOT, environment, tk
from tests.support.matrix import agenda, calls, machine, make, plan_of, tell
from tests.support.processes import ended
from toolchain.matrix.reasons import why_made
from toolchain.matrix.runs import RunStore, records_named, records_of_run
from toolchain.records.record import Record, State
from toolchain.records.store import RecordStore
from toolchain.zoo import networks

_WRONG = {"name": "y", "where": [0, 3], "actual": 2.0, "expected": 1.0, "needed": 0.5, "tolerance": 1e-5,
          "problem": "", "passed": False}  # fmt: skip
_REFUSED = {"document": {"error": {"what": "refused", "where": "", "why": "line 3", "hint": "", "code": 5}}}


Case = tuple[dict[str, dict[str, object]], State, str]
_ENDS: tuple[Case, ...] = (
    ({"verify": {"seconds": 30}}, State.TIMED_OUT, "verify: did not end within 2.5 s"),  # beside the others
    ({}, State.VERIFIED, ""),
    ({"verify": {"code": 6, "document": {"outputs": [_WRONG]}}}, State.WRONG, "y[0,3] is 2"),
    ({"compile": {"code": 5, **_REFUSED}}, State.COMPILE_FAILED, "refused: line 3"),
    ({"compile": {"code": 70, "said": "error: x"}}, State.COMPILE_FAILED, "error: x"),
    ({"compile": {"signal": signal.SIGSEGV}}, State.CRASHED, "compile was ended by SIGSEGV"),
    ({"verify": {"code": 7, "said": "the library crashed"}}, State.CRASHED, "library crashed"),
    ({"verify": {"code": 99, "said": "?"}}, State.CRASHED, "?"),
    ({"verify": {"signal": signal.SIGKILL}}, State.OUT_OF_MEMORY, "SIGKILL"),
    ({"compile": {"code": 4, "said": "out of memory"}}, State.OUT_OF_MEMORY, "out of memory"),
    ({"compile": {"code": 4, "said": "no g++"}}, State.NOT_RUN, "no g++"),
    ({"compile": {"code": 5, "said": "No space left on device"}}, State.NOT_RUN, "No space"),
    ({"verify": {"code": 70, "said": "Disk quota exceeded"}}, State.NOT_RUN, "Disk quota exceeded"),
    ({"compile": {"writes": 900_000}}, State.OUT_OF_DISK, "compile: 9"),
    ({"verify": {"writes": 900_000, "seconds": 9}}, State.OUT_OF_DISK, "the limit is 800,000"),
    ({"compile": {"code": 137}}, State.OUT_OF_MEMORY, ""),
    ({"verify": {"code": 4, "said": "no device"}}, State.COMPILED_ONLY, "no device"),
    ({"zoo": {"code": 4, "said": "no connection"}}, State.NOT_RUN, "no model: no connection"),
    (
        {"compile": {"code": 3}, "inspect": {"document": {"unsupported": [
            {"op": "Loop", "node": "a", "reason": "control flow"},
            {"op": "Loop", "node": "b", "reason": "control flow"}]}}},
        State.UNSUPPORTED, "operators: Loop",
    ),
)  # fmt: skip
"""What becomes of the steps of a trial, the state that it ends in, and a part of the reason."""
_NETWORKS = sorted(networks())[: len(_ENDS)]


@pytest.fixture(scope="module")
def ended_trials(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Record]]:
    """One run of as many networks as there are ends, each of which meets one."""
    folder = tmp_path_factory.mktemp("ends")
    each = zip(_NETWORKS, _ENDS, strict=True)
    tell(folder, {f"{name} {step}": what for name, (told, _, _) in each for step, what in told.items()})
    made = make(folder, plan_of(_NETWORKS, targets=["cpu"], limits={"seconds": 2.5, "disk": 800_000}))
    return folder, {one.subject.network: one for one in made}


@pytest.mark.parametrize(("network", "case"), list(zip(_NETWORKS, _ENDS, strict=True)))
def test_each_end_is_a_state(ended_trials: tuple[Path, dict[str, Record]], network: str, case: Case) -> None:
    folder, records = ended_trials
    record, (_, state, why) = records[network], case
    assert (record.state, why in record.why) == (state, True), record
    assert "$ tk " in record.log
    assert str(folder) not in record.log
    assert list(record.command[:3]) == ["tk", "matrix", "run"]
    assert record.operators == () or (record.operators[0].operator, record.operators[0].count) == ("Loop", 2)


def test_what_has_a_record_is_not_made_again(tmp_path: Path) -> None:
    plan = plan_of(["mnist"], ("compile", "verify", "bench"))
    first = make(tmp_path, plan)
    assert [one.state for one in first] == [State.VERIFIED] * 2
    assert all(one.latency and one.latency.high_ms == 2.05 for one in first)
    made = len(calls(tmp_path))
    assert make(tmp_path, plan) == []
    assert len(calls(tmp_path)) == made
    assert len(make(tmp_path, plan, again=True)) == 2
    assert len(RecordStore(tmp_path / "records").read()) == 4


def test_a_record_says_whether_the_emulator_watched(tmp_path: Path) -> None:
    cards = {"target": "cuda-nvidia", "archs": ["sm_90"], "devices": ["emulator", "emulator-unchecked"]}
    made = make(tmp_path, plan_of(["mnist"], targets=[cards]))
    found = {one.place.selector: one.state for one in made}
    assert found == {"emulator": State.EMULATED, "emulator-unchecked": State.EMULATED_UNCHECKED}


def test_what_changed_is_made_again(tmp_path: Path) -> None:
    plan = plan_of(["mnist"])
    make(tmp_path, plan)
    other = agenda(tmp_path, plan, machine("g++ 2"))
    assert [why_made(one, other) for one in other.trials] == ["changed: toolchain"] * 2
    device = machine(**{"opencl-cpu": (yes("g++ 1"), yes("PoCL 4.0"))})
    found = {one.trial.place.target: why_made(one, agenda(tmp_path, plan, device))
             for one in agenda(tmp_path, plan, device).trials}  # fmt: skip
    assert found == {"cpu": "", "opencl-cpu": "changed: driver"}
    timed = agenda(tmp_path, plan_of(["mnist"], ("compile", "verify", "bench")))
    assert len(timed.to_make) == 2
    longer = agenda(tmp_path, plan_of(["mnist"], limits={"seconds": 99}))
    assert longer.to_make == ()


def test_what_a_limit_ended_is_made_again_with_another(tmp_path: Path) -> None:
    tell(tmp_path, {"mnist verify": {"writes": 900_000}})
    narrow = plan_of(["mnist"], targets=["cpu"], limits={"disk": 800_000})
    assert [one.state for one in make(tmp_path, narrow)] == [State.OUT_OF_DISK]
    assert make(tmp_path, narrow) == []
    tell(tmp_path, {})
    wider = plan_of(["mnist"], targets=["cpu"], limits={"disk": 8_000_000})
    assert [one.state for one in make(tmp_path, wider)] == [State.VERIFIED]
    assert make(tmp_path, narrow) == []


def test_what_cannot_be_tried_says_so_once_and_what_may_change_is_tried_again(tmp_path: Path) -> None:
    plan = plan_of(["mnist"], targets=["rocm-amd", "cuda-nvidia"])
    tell(tmp_path, {"mnist compile": {"code": 4, "said": "no space"}})
    found = {one.place.target: (one.state, one.why) for one in make(tmp_path, plan)}
    assert found["rocm-amd"] == (State.NOT_RUN, "hipcc was not found; install hipcc")
    assert found["cuda-nvidia"] == (State.NOT_RUN, "no space")
    tell(tmp_path, {})
    (record,) = make(tmp_path, plan)
    assert (record.state, record.why) == (State.COMPILED_ONLY, "there is no GPU")
    assert [call[3] for call in calls(tmp_path) if "verify" in call] == []


def test_known_causes_are_kept(tmp_path: Path) -> None:
    said = "Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x2. Reason: Page not present"
    tell(tmp_path, {"mnist verify": {"code": 7, "said": said}})
    (record,) = make(tmp_path, plan_of(["mnist"], targets=["cpu"]))
    assert [bool(one.action) for one in record.causes] == [True]


def test_a_trial_in_an_image_says_so_to_each_command(tmp_path: Path) -> None:
    engine = "tcp://127.0.0.1:1"
    targets = [{"target": "rocm-amd", "images": ["team/rocm:5"], "engines": [engine]}]
    tell(tmp_path, {"mnist verify": {"code": 4, "said": "no device was given"}})
    (record,) = make(tmp_path, plan_of(["mnist"], targets=targets))
    assert (record.state, record.why) == (State.COMPILED_ONLY, "no device was given")
    assert (record.place.image, record.place.worker) == ("team/rocm:5", engine)
    commands = [line for line in record.log.splitlines() if line.startswith("$ tk")]
    assert [" --image=team/rocm:5 --docker-host=tcp://127.0.0.1:1" in one for one in commands] == [
        True, True,
    ]  # fmt: skip


def test_the_command_of_a_record_is_its_trial(tmp_path: Path) -> None:
    """Typed again, it is the same model at the same place, with the same key."""
    from toolchain.commands.matrix import plan_words

    plan = plan_of(["mnist"], ("compile", "verify", "bench"), bench={"seconds": 0.5}, threads=[2], runs=3,
                   targets=[{"target": "opencl-cpu", "archs": ["arch-opencl-cpu"], "devices": ["pocl"]}],
                   limits={"seconds": 77, "memory": "3 GB", "disk": "2 GB"})  # fmt: skip
    (record,) = make(tmp_path, plan)
    words = dict(one.removeprefix("--").split("=") for one in record.command[3:-1])
    assert words.pop("target") == "opencl-cpu:arch-opencl-cpu"
    assert words == {"network": "mnist", "device": "pocl", "threads": "2", "do": "compile,verify,bench",
                     "seconds": "77", "memory": "3000000000", "disk": "2000000000", "bench-seconds": "0.5",
                     "warmup": "0.5", "runs": "3"}  # fmt: skip
    known = inspect.signature(plan_words).parameters
    assert [one for one in words if one.replace("-", "_") not in known] == []


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_makes_nothing_twice(tmp_path: Path) -> None:
    """Five times, at any moment; no child is left, and no trial that has its record is made again."""
    names = ["mnist", "squeezenet", "unet", "vgg16"]
    tell(tmp_path, {f"{name} {step}": {"seconds": 0.12} for name in names for step in ("compile", "bench")})
    argv = [sys.executable, "-m", "tests.support.matrix", str(tmp_path), "compile,verify,bench", *names]
    store = RecordStore(tmp_path / "records")
    for number in range(5):
        run = subprocess.Popen(argv, cwd=ROOT, env=environment(), stderr=subprocess.PIPE)
        before, deadline = len(calls(tmp_path)), time.monotonic() + 30
        while len(calls(tmp_path)) < before + 3 + 2 * number and run.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        run.kill()
        run.communicate()
        assert all(ended(int(call[0])) for call in calls(tmp_path))
        finished = {(one.subject.network, one.place.target) for one in store.read()}
        assert len(finished) == len(store.read())
    done = subprocess.run(argv, cwd=ROOT, env=environment(), check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = store.read()
    assert Counter((one.subject.network, one.place.target) for one in records) == {
        (name, target): 1 for name in names for target in ("cpu", "opencl-cpu")
    }
    assert {one.state for one in records} == {State.VERIFIED}
    assert all(one.latency for one in records)
    run = RunStore(store.directory).read("last")
    assert len(records_of_run(run, records)) == 8
    assert len(records_named("last", store)) == 8


def test_a_killed_run_goes_on_behind_what_was_checked(tmp_path: Path) -> None:
    """No child of it is left, and neither a record nor a check is made twice."""
    plan = plan_of(["mnist"], ("compile", "verify", "bench"))
    tell(tmp_path, {"mnist bench": {"seconds": 60}})
    argv = [sys.executable, "-m", "tests.support.matrix", str(tmp_path), "compile,verify,bench", "mnist"]
    run = subprocess.Popen(argv, cwd=ROOT, env=environment())
    deadline = time.monotonic() + 30
    while not any("bench" in call for call in calls(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    runs = RunStore(tmp_path / "records")
    told = runs.progress(runs.read("last").id)
    assert told is not None
    assert ([one.title for one in told.running], told.done, told.total) == (["mnist on cpu"], 0, 2)
    run.kill()
    run.wait()
    assert all(ended(int(call[0])) for call in calls(tmp_path))
    assert runs.progress(runs.read("last").id) is None
    status = tk("matrix", "status", "--records", tmp_path / "records", "--json").json
    assert (status["left"], status["checked"]) == (["mnist on cpu", "mnist on opencl-cpu"],) * 2
    tell(tmp_path, {})
    records = make(tmp_path, plan)
    assert [(one.state, one.latency is not None) for one in records] == [(State.VERIFIED, True)] * 2
    verified = [call for call in calls(tmp_path) if call[1:] == ["ended", "mnist", "verify"]]
    assert len(verified) == 2  # one for each of the places, by the run that was killed
    assert [one.log.count("tk verify") for one in records] == [1, 1]
    assert make(tmp_path, plan) == []
