"""Builds candidates and has them measured: what goes wrong is the candidate's class, and costs no other one.

All of a batch are compiled at the same time, then nothing compiles while they run. They run in a process of
their own (`child.py`), which ends with the first one that crashes, hangs or takes too much memory; the rest
goes on in a new one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from compiler.core.diagnostics import BuildError, CrashError, MemoryLimitError
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment
from compiler.loops.text import print_func
from compiler.schedule.chooser import AnalyticChooser
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.record import OK, Measured
from compiler.verify.isolate import python_module
from compiler.workbench.build import link_kernel


@dataclass(frozen=True, slots=True)
class TrialLimits:
    """What a candidate may take: seconds in all, bytes that its process may hold, seconds of timed runs."""

    seconds: float = 10.0
    memory: int = 4 << 30
    timed: float = 0.12


class Measurer(Protocol):
    """Says what became of candidates."""

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """Candidates of one workload, built, checked against its default schedule's results, and timed."""
        ...


@dataclass(slots=True)
class LibraryMeasurer:
    """Makes a library of each candidate and runs it on this machine, with its runtime and threads.

    working_set: bytes that an inference of the network goes through; as many are touched between two runs on
    the same buffers. defaults: libraries of default schedules, by the keys of their workloads.
    """

    target: Target
    settings: Settings
    threads: int | None
    seed: int = 0
    limits: TrialLimits = field(default_factory=TrialLimits)
    working_set: int = 32 << 20
    defaults: dict[str, bytes] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)
    """Seconds of default schedules when they were first measured: what later ones are scaled to."""

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """See `Measurer`."""
        if not candidates:
            return []
        with private_directory("tk-trials") as directory:
            default = self._default(candidates[0], directory)
            found: dict[int, Measured] = {}
            paths = dict(self._built(candidates, directory, found))
            while left := [number for number in paths if number not in found]:
                self._run([(number, candidates[number], paths[number]) for number in left], default, found)
            return [found[number] for number in range(len(candidates))]

    def _default(self, candidate: KernelCandidate, directory: Path) -> dict[str, Any]:
        """The default schedule of the workload, which says what is right and how fast the machine is now."""
        workload = candidate.workload
        default = make_candidate(workload, self.target, AnalyticChooser())
        path = directory / "default.so"
        if workload.key not in self.defaults:
            link_kernel(default.kernel, self.target, self.settings, path)
            self.defaults[workload.key] = path.read_bytes()
        else:
            write_atomic(path, self.defaults[workload.key])
        return _described(-1, default, path)

    def _built(
        self, candidates: Sequence[KernelCandidate], directory: Path, found: dict[int, Measured]
    ) -> Iterator[tuple[int, Path]]:
        """Libraries of those that the compiler takes; the others are found out."""

        def build(number: int) -> Path:
            path = directory / f"{number}.so"
            link_kernel(candidates[number].kernel, self.target, self.settings, path)
            return path

        with ThreadPoolExecutor(self.settings.jobs) as pool:
            made = [pool.submit(build, number) for number in range(len(candidates))]
        for number, one in enumerate(made):
            try:
                yield number, one.result()
            except BuildError as error:
                found[number] = Measured("build", message=_first_line(error.why or error.what))

    def _run(
        self,
        todo: Sequence[tuple[int, KernelCandidate, Path]],
        default: Mapping[str, Any],
        found: dict[int, Measured],
    ) -> None:
        """Run candidates until one ends the process; at least one of them is in `found` afterwards."""
        request = {
            "default": default,
            "candidates": [_described(*one) for one in todo],
            "threads": self.threads,
            "seed": self.seed,
            "limits": asdict(self.limits),
            "working_set": self.working_set,
        }
        key = todo[0][1].workload.key
        heard = _Heard()
        ended = self._child(request, heard, len(todo))
        for number, answer in heard.answers.items():
            found[number] = self._scaled(key, answer)
        if heard.running is not None and heard.running not in heard.answers:
            found[heard.running] = ended
        elif not heard.answers:  # the default schedule or the process itself: nobody's fault but ours
            raise CrashError("the measuring process ended before it measured", why=ended.message)

    def _child(self, request: Mapping[str, Any], heard: _Heard, count: int) -> Measured:
        """What became of the candidate that ran last, if the process did not end by itself."""
        limits = self.limits
        try:
            done = run(
                python_module("compiler.tune.measure.child"),
                timeout=30 + (count + 1) * (limits.seconds + 1),
                env=child_environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
                input=json.dumps(request).encode(),
                on_line=heard.line,
                memory=limits.memory,
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

    def _scaled(self, key: str, answer: Mapping[str, Any]) -> Measured:
        """Times as they would be on the machine as it was when the default schedule was first measured."""
        if answer["status"] != OK:
            return Measured(answer["status"], message=answer["message"])
        pace = self.pace.setdefault(key, answer["pace"])
        seconds = tuple(one * pace / answer["pace"] for one in answer["seconds"])
        return Measured(OK, seconds, checked_by="default schedule")


@dataclass(slots=True)
class _Heard:
    """What the child says: a line when it begins with a candidate, and one with what became of it."""

    running: int | None = None
    answers: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def line(self, text: str) -> None:
        said = json.loads(text)
        if "begin" in said:
            self.running = said["begin"]
        else:
            self.answers[said["number"]] = said


def _described(number: int, candidate: KernelCandidate, path: Path) -> dict[str, Any]:
    """A candidate as the child gets it: its library, and how its parameters lie in memory."""
    return {"number": number, "library": str(path), "scheduled": print_func(candidate.scheduled)}


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else ""
