"""Runs candidates that were built: what goes wrong is the candidate's class, and costs no other one.

They run in a process of their own (`child.py`), which ends with the first one that crashes, hangs or takes
too much memory; the rest goes on in a new one.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import CrashError, InternalError, MemoryLimitError
from compiler.core.files import write_atomic
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment
from compiler.loops.text import print_func
from compiler.stages.workload import Workload
from compiler.targets import Target
from compiler.tune.measure.built import BuiltCandidate
from compiler.tune.measure.references import RightResults, reference_of, sum_length
from compiler.tune.record import OK, Measured
from compiler.verify.isolate import python_module
from compiler.verify.report import Difference

_PATIENCE = 60.0
"""Seconds for what is ours: starting the process, loading libraries, packing inputs."""
_KEPT_BYTES = 256 << 20
"""Of right results: beyond, the oldest are computed again when they are needed."""


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What a candidate may take: seconds in all, bytes that it may hold, seconds of timed runs."""

    seconds: float = 10.0
    memory: int = 4 << 30
    timed: float = 0.12


@dataclass(slots=True)
class Trials:
    """Runs libraries of candidates on this machine, with their runtime and threads.

    working_set: bytes of weights that an inference of the network goes through; as many are read between two
    runs on the same ones. references: the right results of workloads' forms. pace: seconds of default
    schedules when they were first measured: what later times are scaled to. noise: for each workload, how far
    the default schedule's turns were apart at most, as a part of their median.
    """

    target: Target
    settings: Settings
    threads: int | None
    seed: int = 0
    limits: TrialLimits = field(default_factory=TrialLimits)
    working_set: int = 32 << 20
    references: dict[tuple[str, int], RightResults] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)

    def try_all(
        self,
        workload: Workload,
        default: BuiltCandidate,
        built: Mapping[int, BuiltCandidate],
        directory: Path,
    ) -> dict[int, Measured]:
        """What becomes of candidates of a workload, run in as many processes as it takes.

        default: the default schedule, which says how fast the machine is now. directory: for files between
        the processes.
        """
        found: dict[int, Measured] = {}
        forms = self._forms(workload, (default.form, *(one.form for one in built.values())), directory)
        request = self._request("measure", forms) | {"default": _described(default, forms)}
        while left := [number for number in built if number not in found]:
            todo = [{"number": number, **_described(built[number], forms)} for number in left]
            self._run(workload.key, {**request, "candidates": todo}, forms, found)
        return found

    def compare(
        self, workload: Workload, built: Mapping[int, BuiltCandidate], seconds: float, directory: Path
    ) -> list[list[Difference]]:
        """How each compares with each in turns, until that is decided or for `seconds`: see `settle`."""
        forms = self._forms(workload, (one.form for one in built.values()), directory)
        todo = [{"number": number, **_described(one, forms)} for number, one in built.items()]
        heard = _Heard()
        request = self._request("settle", forms) | {"candidates": todo, "time": seconds}
        ended = self._child(request, heard, _PATIENCE + 10 * seconds)
        if heard.last is None or "differences" not in heard.last:
            raise CrashError("candidates could not be compared", why=ended.message)
        return [[Difference(**one) for one in row] for row in heard.last["differences"]]

    def _request(self, do: str, forms: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
        return {
            "do": do,
            "forms": list(forms.values()),
            "threads": self.threads,
            "seed": self.seed,
            "limits": asdict(self.limits),
            "working_set": self.working_set,
        }

    def _forms(
        self, workload: Workload, numbers: Iterable[int], directory: Path
    ) -> dict[int, dict[str, Any]]:
        """Forms of a workload by number, with files of right results."""
        forms: dict[int, dict[str, Any]] = {}
        for number in dict.fromkeys(numbers):
            reference = self._reference(workload, number, directory)
            func, _ = workload.forms[number][1]
            path = directory / f"form{number}.npz"
            write_atomic(path, reference.results, durable=False)
            forms[number] = {
                "func": print_func(func),
                "length": sum_length(func),
                "results": str(path),
                "by": reference.by,
            }
        return forms

    def _reference(self, workload: Workload, form: int, directory: Path) -> RightResults:
        key = (workload.key, form)
        if key in self.references:
            return self.references[key]

        def works(request: Mapping[str, Any]) -> bool:
            heard = _Heard()
            self._child(request, heard, _PATIENCE)
            return heard.last is not None

        made = reference_of(workload, form, self.target, self.settings, directory, self.seed, works)
        if made is None:
            raise InternalError("nothing can run a kernel's work", where=workload.key)
        while self.references and _size(self.references) + len(made.results) > _KEPT_BYTES:
            del self.references[next(iter(self.references))]
        self.references[key] = made
        return made

    def _run(
        self,
        key: str,
        request: Mapping[str, Any],
        forms: Mapping[int, Mapping[str, Any]],
        found: dict[int, Measured],
    ) -> None:
        """Run candidates until one ends the process; at least one of them is in `found` afterwards."""
        todo = request["candidates"]
        heard = _Heard(patience=self.limits.seconds + _PATIENCE)
        seconds = _PATIENCE + len(todo) * (self.limits.seconds + _PATIENCE)
        ended = self._child(request, heard, seconds)
        checked_by = {one["number"]: list(forms.values())[one["form"]]["by"] for one in todo}
        for number, answer in heard.answers.items():
            found[number] = self._scaled(key, answer, checked_by[number])
        if heard.running is not None and heard.running not in heard.answers:
            found[heard.running] = ended
        elif not heard.answers:  # the default schedule or the process itself: nobody's fault but ours
            raise CrashError("the measuring process ended before it measured", why=ended.message)

    def _child(self, request: Mapping[str, Any], heard: _Heard, seconds: float) -> Measured:
        """What became of the candidate that ran last, if the process did not end by itself."""
        limits = self.limits
        try:
            done = run(
                python_module("compiler.tune.measure.child"),
                timeout=seconds,
                env=child_environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
                input=json.dumps(request).encode(),
                on_line=heard.line,
                check=heard.check,
                memory=2 * limits.memory + 4 * self.working_set,  # a second wall: the child looks more often
            )
        except MemoryLimitError as error:
            return Measured("memory", message=error.why)
        except CrashError:
            return Measured("timeout", message="the process did not end")
        if done.returncode == -signal.SIGALRM:
            return Measured("timeout", message=f"not done within {limits.seconds:g} s")
        if done.returncode < 0:
            return Measured("crash", message=signal.Signals(-done.returncode).name)
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return Measured("crash", message=last[0])

    def _scaled(self, key: str, answer: Mapping[str, Any], checked_by: str) -> Measured:
        """Times as they would be on the machine as it was when the default schedule was first measured."""
        if answer["status"] != OK:
            return Measured(answer["status"], message=answer["message"])
        others = answer["others"]
        middle = statistics.median(others)
        pace = self.pace.setdefault(key, middle)
        self.noise[key] = max(self.noise.get(key, 0.0), (max(others) - min(others)) / middle)
        seconds = tuple(mine * pace / other for mine, other in zip(answer["seconds"], others, strict=True))
        return Measured(OK, seconds, checked_by=checked_by)


@dataclass(slots=True)
class _Heard:
    """What the child says: a line when it begins with a candidate, and one with what became of it.

    patience: seconds that it may say nothing.
    """

    patience: float = float("inf")
    running: int | None = None
    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    last: Mapping[str, Any] | None = None
    at: float = field(default_factory=time.monotonic)

    def line(self, text: str) -> None:
        with suppress(ValueError):  # half a line of a process that was killed
            self.last = said = json.loads(text)
            self.at = time.monotonic()
            if "begin" in said:
                self.running = said["begin"]
            elif "number" in said:
                self.answers[said["number"]] = said

    def check(self) -> None:
        """Raise CrashError where it was silent for too long."""
        if time.monotonic() - self.at > self.patience:
            raise CrashError("the measuring process says nothing")


def _described(one: BuiltCandidate, forms: Mapping[int, object]) -> dict[str, Any]:
    """A candidate as the child gets it."""
    place = list(forms).index(one.form)
    return {"library": str(one.library), "scheduled": one.scheduled, "form": place}


def _size(references: Mapping[tuple[str, int], RightResults]) -> int:
    return sum(len(one.results) for one in references.values())
