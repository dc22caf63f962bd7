"""What is measured of right candidates: in every form, in turns, and again from records."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.core.diagnostics import BadInputError
from compiler.core.settings import load_settings
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.stages.workload import Workload
from compiler.targets import get_target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.measure import references
from compiler.tune.measure.built import form_of
from compiler.tune.measure.measurer import LibraryMeasurer
from compiler.tune.measure.references import reference_of, sum_length
from compiler.tune.measure.replay import ReplayMeasurer
from compiler.tune.measure.trials import TrialLimits
from compiler.tune.record import OK, Measured
from tests.support import command
from tests.support.onnx_models import model
from tests.support.tuned import HERE, product, record_of, workloads_of

TARGET = get_target("cpu")
SLOW_BODY = "  for (volatile int turn = 0; turn < 200000;) turn = turn + 1;\n"
BODY = "void tk_k0(void *const *bufs, tk_exec *exec) {\n"


def measurer() -> LibraryMeasurer:
    limits = TrialLimits(timed=0.01)
    return LibraryMeasurer(TARGET, load_settings(), 2, limits=limits, working_set=1 << 20)


def default_of(workload: Workload, **decisions: tuple[int, ...]) -> KernelCandidate:
    return make_candidate(workload, TARGET, ReplayChooser(decisions, AnalyticChooser()))


def slowed(candidate: KernelCandidate) -> KernelCandidate:
    assert BODY in candidate.text
    return replace(candidate, text=candidate.text.replace(BODY, BODY + SLOW_BODY, 1))


def test_every_form_is_checked_and_timed(tmp_path: Path) -> None:
    """Filters of Winograd's forms are no inputs of the direct one: each form has its own right results."""
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    inputs = {"x": np.zeros((1, 16, 8, 8), np.float32)}
    onnx.save(model([node], inputs, ["y"], {"w": weights}), tmp_path / "m.onnx")
    workload = next(one for one in workloads_of(tmp_path / "m.onnx") if len(one.forms) > 1)
    made = [default_of(workload, **{workload.decision: (number,)}) for number in range(len(workload.forms))]
    assert [form_of(one) for one in made] == list(range(len(workload.forms)))
    measuring = measurer()
    found = measuring.measure(made)
    assert [one.status for one in found] == [OK] * len(made), found
    assert {one.checked_by for one in found} <= {"interpreter", "unscheduled loops"}
    assert measuring.noise[workload.key] >= 0.0


def test_the_order_of_candidates_is_settled() -> None:
    default = default_of(product(24, 32, 48))
    (same, slower), (faster, _) = measurer().settle([default, slowed(default)], seconds=2.0)
    assert same.verdict == "same"
    assert (slower.verdict, faster.verdict) == ("faster", "slower"), (slower, faster)


def test_a_reference_by_compiled_loops_where_the_interpreter_takes_too_long() -> None:
    workload = product(64, 64, 64)
    func, _ = workload.forms[0][1]
    assert sum_length(func) == 64
    (found,) = measurer().measure([default_of(workload)])
    assert (found.status, found.checked_by) == (OK, "unscheduled loops")


@pytest.mark.parametrize(("target", "by"), [("cuda:sm_90", "host schedule"), ("cpu", "unscheduled loops")])
def test_long_work_of_a_device_is_checked_by_the_host(
    target: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops as they stand take minutes for a network's convolutions of many images."""
    monkeypatch.setattr(references, "_PATIENT", 64**3 - 1)

    def run(request: Mapping[str, Any]) -> bool:
        Path(request["results"]).write_bytes(Path(request["by"]["library"]).read_bytes()[:4])
        return True

    found = reference_of(product(64, 64, 64), 0, get_target(target), load_settings(), tmp_path, 0, run)
    assert found is not None
    assert (found.by, found.results) == (by, b"\x7fELF")


def test_what_was_measured_is_replayed() -> None:
    workload = product(24, 32, 48)
    made, other = default_of(workload), default_of(product(8, 8, 8))
    replaying = ReplayMeasurer.of([record_of(made, HERE, (1e-3, 2e-3)), record_of(made, HERE, (9.0,))])
    assert [one.seconds for one in replaying.measure([made, made])] == [(1e-3, 2e-3)] * 2
    with pytest.raises(BadInputError, match="never measured"):
        replaying.measure([other])
    assert replaying.asked[-1] == (other.workload.key, other.program)
    forgiving = ReplayMeasurer.of([], Measured("timeout"))
    assert forgiving.measure([made]) == [Measured("timeout")]


HANGING = """
from tests.unit.tune.measure.test_planted_faults import FAULTS, candidates, measurer, with_fault
measurer().measure([with_fault(candidates(1)[0], FAULTS["hang"][1])])
"""


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["measuring child", "its parent"])
def test_kill_9_leaves_no_process_and_no_file(whom: str, tmp_path: Path) -> None:
    environment = command.environment({"TMPDIR": str(tmp_path)})
    parent = subprocess.Popen([sys.executable, "-c", HANGING], env=environment, start_new_session=True)
    try:
        child = _wait_for(lambda: _measuring(parent.pid))
        os.kill(child if whom == "measuring child" else parent.pid, signal.SIGKILL)
        if whom == "measuring child":
            assert parent.wait(60) == 0  # the candidate is a `crash`, and the measurer goes on
        parent.wait()
        _wait_for(lambda: not Path(f"/proc/{child}").exists())
    finally:
        parent.kill()
        parent.wait()
    sweep = "from compiler import remove_abandoned_directories as sweep; sweep('tk')"
    subprocess.run([sys.executable, "-c", sweep], env=environment, check=True)
    assert [one.name for one in tmp_path.iterdir()] == []


def _measuring(parent: int) -> int:
    """The process of that parent which measures; 0 where there is none."""
    for one in Path("/proc").glob("[0-9]*"):
        try:
            words = (one / "cmdline").read_bytes().split(b"\0")
            above = int((one / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"compiler.tune.measure.child" in words and above == parent:
            return int(one.name)
    return 0


def _wait_for(look: Callable[[], int], seconds: float = 60.0) -> int:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return int(found)
