"""Builds candidates and has them measured on this machine.

All of a batch are compiled at the same time, then nothing compiles while they run (`trials.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from compiler.core.diagnostics import BuildError
from compiler.core.files import private_directory, write_atomic
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.workload import Workload
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.measure.built import BuiltCandidate, build_candidate, failed_build
from compiler.tune.measure.trials import Trials
from compiler.tune.record import Measured
from compiler.verify.report import Difference


class Measurer(Protocol):
    """Says what became of candidates."""

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """Candidates of one workload: built, checked against the right results, and timed."""
        ...


@dataclass(slots=True)
class LibraryMeasurer(Trials):
    """Makes a library of each candidate and runs it on this machine: see `Trials`.

    defaults: the default schedules by the keys of their workloads, with their libraries' bytes.
    """

    defaults: dict[str, tuple[BuiltCandidate, bytes]] = field(default_factory=dict)

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """See `Measurer`."""
        if not candidates:
            return []
        workload = candidates[0].workload
        with private_directory("tk-trials") as directory:
            found: dict[int, Measured] = {}
            built = dict(self._built(candidates, directory, found))
            if built:
                found |= self.try_all(workload, self._default(workload, directory), built, directory)
            return [found[number] for number in range(len(candidates))]

    def settle(self, candidates: Sequence[KernelCandidate], seconds: float = 5.0) -> list[list[Difference]]:
        """How each of some candidates of one workload compares with each, in turns: rows in their order.

        Until every pair is decided or called the same, or for `seconds`. Raises BuildError where one cannot
        be built, and CrashError where the process does not end well: they were measured before.
        """
        with private_directory("tk-trials") as directory:
            found: dict[int, Measured] = {}
            built = dict(self._built(candidates, directory, found))
            if found:
                raise BuildError("a candidate cannot be built", why=next(iter(found.values())).message)
            return self.compare(candidates[0].workload, built, seconds, directory)

    def _default(self, workload: Workload, directory: Path) -> BuiltCandidate:
        """The default schedule of the workload, with its library in `directory`."""
        path = directory / "default.so"
        if workload.key not in self.defaults:
            made = make_candidate(workload, self.target, AnalyticChooser())
            built = build_candidate(made, self.target, self.settings, path)
            self.defaults[workload.key] = built, path.read_bytes()
        built, library = self.defaults[workload.key]
        write_atomic(path, library, durable=False)
        return replace(built, library=path)

    def _built(
        self, candidates: Sequence[KernelCandidate], directory: Path, found: dict[int, Measured]
    ) -> Iterator[tuple[int, BuiltCandidate]]:
        """Libraries of those that the compiler takes; the others are found out."""
        settings = replace(self.settings, jobs=1)  # so many at a time are built already

        def build(number: int) -> BuiltCandidate:
            return build_candidate(candidates[number], self.target, settings, directory / f"{number}.so")

        with ThreadPoolExecutor(self.settings.jobs) as pool:
            made = [pool.submit(build, number) for number in range(len(candidates))]
        for number, one in enumerate(made):
            try:
                yield number, one.result()
            except BuildError as error:
                found[number] = failed_build(error)
