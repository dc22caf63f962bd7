"""Builds candidates and has them measured: what goes wrong is the candidate's class, and costs no other one.

All of a batch are compiled at the same time, then nothing compiles while they run. They run in a process of
their own (`child.py`), which ends with the first one that crashes, hangs or takes too much memory; the rest
goes on in a new one.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from compiler.core.diagnostics import BuildError, CrashError, InternalError, MemoryLimitError
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment
from compiler.loops.text import print_func
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.workload import Workload
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.measure.references import RightResults, reference_of, sum_length
from compiler.tune.record import OK, Measured
from compiler.verify.isolate import python_module
from compiler.verify.report import Difference
from compiler.workbench.build import link_kernel

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


class Measurer(Protocol):
    """Says what became of candidates."""

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """Candidates of one workload: built, checked against the right results, and timed."""
        ...


@dataclass(frozen=True, slots=True)
class Default:
    """The default schedule of a workload: as text, the number of its form, and its library."""

    scheduled: str
    form: int
    library: bytes


@dataclass(slots=True)
class LibraryMeasurer:
    """Makes a library of each candidate and runs it on this machine, with its runtime and threads.

    working_set: bytes of weights that an inference of the network goes through; as many are read between two
    runs on the same ones. defaults: the default schedules by the keys of their workloads;
    references: the right results of their forms. pace: seconds of default schedules when they were first
    measured: what later times are scaled to. noise: for each workload, how far the default schedule's turns
    were apart at most, as a part of their median.
    """

    target: Target
    settings: Settings
    threads: int | None
    seed: int = 0
    limits: TrialLimits = field(default_factory=TrialLimits)
    working_set: int = 32 << 20
    defaults: dict[str, Default] = field(default_factory=dict)
    references: dict[tuple[str, int], RightResults] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)
    noise: dict[str, float] = field(default_factory=dict)

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """See `Measurer`."""
        if not candidates:
            return []
        with private_directory("tk-trials") as directory:
            found: dict[int, Measured] = {}
            paths = dict(self._built(candidates, directory, found))
            if paths:
                self._run_all(candidates, paths, directory, found)
            return [found[number] for number in range(len(candidates))]

    def _run_all(
        self,
        candidates: Sequence[KernelCandidate],
        paths: Mapping[int, Path],
        directory: Path,
        found: dict[int, Measured],
    ) -> None:
        """Run what was built, in as many processes as it takes."""
        workload = candidates[0].workload
        default = self._default(workload, directory)
        forms = self._forms([candidates[number] for number in paths], directory, [default.form])
        path = directory / "default.so"
        write_atomic(path, default.library, durable=False)
        place = list(forms).index(default.form)
        described = {"library": str(path), "scheduled": default.scheduled, "form": place}
        request = self._request("measure", forms) | {"default": described}
        while left := [number for number in paths if number not in found]:
            todo = [self._described(number, candidates[number], paths[number], forms) for number in left]
            self._run(workload.key, {**request, "candidates": todo}, forms, found)

    def settle(self, candidates: Sequence[KernelCandidate], seconds: float = 5.0) -> list[list[Difference]]:
        """How each of some candidates of one workload compares with each, in turns: rows in their order.

        Until every pair is decided or called the same, or for `seconds`. Raises BuildError where one cannot
        be built, and CrashError where the process does not end well: they were measured before.
        """
        with private_directory("tk-trials") as directory:
            found: dict[int, Measured] = {}
            paths = dict(self._built(candidates, directory, found))
            if found:
                raise BuildError("a candidate cannot be built", why=next(iter(found.values())).message)
            forms = self._forms(candidates, directory)
            todo = [self._described(n, candidates[n], path, forms) for n, path in paths.items()]
            request = self._request("settle", forms) | {"candidates": todo, "time": seconds}
            heard = _Heard()
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

    def _default(self, workload: Workload, directory: Path) -> Default:
        """The default schedule of the workload, which says how fast the machine is now."""
        if workload.key not in self.defaults:
            made = make_candidate(workload, self.target, AnalyticChooser())
            path = directory / "default.so"
            link_kernel(made.kernel, self.target, self.settings, path)
            self.defaults[workload.key] = Default(
                print_func(made.scheduled), form_of(made), path.read_bytes()
            )
        return self.defaults[workload.key]

    def _forms(
        self, candidates: Sequence[KernelCandidate], directory: Path, others: Sequence[int] = ()
    ) -> dict[int, dict[str, Any]]:
        """The forms of candidates, and others, by number, with files of right results."""
        if not candidates:
            return {}
        workload = candidates[0].workload
        forms: dict[int, dict[str, Any]] = {}
        for number in dict.fromkeys((*map(form_of, candidates), *others)):
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

    def _built(
        self, candidates: Sequence[KernelCandidate], directory: Path, found: dict[int, Measured]
    ) -> Iterator[tuple[int, Path]]:
        """Libraries of those that the compiler takes; the others are found out."""
        settings = replace(self.settings, jobs=1)  # so many at a time are built already

        def build(number: int) -> Path:
            path = directory / f"{number}.so"
            link_kernel(candidates[number].kernel, self.target, settings, path)
            return path

        with ThreadPoolExecutor(self.settings.jobs) as pool:
            made = [pool.submit(build, number) for number in range(len(candidates))]
        for number, one in enumerate(made):
            try:
                yield number, one.result()
            except BuildError as error:
                found[number] = Measured("build", message=_complaint(error.why or error.what))

    def _described(
        self, number: int, candidate: KernelCandidate, path: Path, forms: Mapping[int, object]
    ) -> dict[str, Any]:
        """A candidate as the child gets it: its library, how its parameters lie in memory, and its form."""
        form = list(forms).index(form_of(candidate))
        scheduled = print_func(candidate.scheduled)
        return {"number": number, "library": str(path), "scheduled": scheduled, "form": form}

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


def form_of(candidate: KernelCandidate) -> int:
    """The number of the form that a candidate's work has."""
    (number,) = candidate.decisions.get(candidate.workload.decision, (0,))
    return number if 0 <= number < len(candidate.workload.forms) else 0


def _size(references: Mapping[tuple[str, int], RightResults]) -> int:
    return sum(len(one.results) for one in references.values())


def _complaint(text: str) -> str:
    """The first line of a compiler's message that says what is wrong, or the first one at all."""
    lines = text.strip().splitlines()
    return next((line for line in lines if "error" in line), lines[0] if lines else "")
