"""Candidates built by many workers and measured by those that have the device.

A batch goes out as one piece of work for each candidate, and one for each measurer, which gets what was
built from the builders. Dask gives a builder's work to another one when it is lost. A measurer that is lost
costs its part: the candidates are measured again, each by itself, and one that a worker is lost with once
more is recorded as `device-lost`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from compiler.cluster.connection import Cluster, Future
from compiler.core.diagnostics import BuildError, HostError, TkError
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.workload import Workload
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.cluster.message import Header, measured_from, pack_message, unpack_message
from compiler.tune.cluster.roster import BUILD, MEASURE, Roster, answer
from compiler.tune.cluster.work import carry_out
from compiler.tune.measure.trials import TrialLimits
from compiler.tune.record import Measured

_BLINK_SECONDS, _LOOK_SECONDS = 0.02, 1.0
_MOST_LOSSES = 8
"""Times in a row that a batch is begun again without a candidate that got an answer."""


class LostError(Exception):
    """All workers that could do a piece of work are gone."""


@dataclass(slots=True)
class ClusterMeasurer:
    """A `Measurer` whose work is done by the workers of a roster.

    target: as all of them have it. about: what every message about it says. pace: seconds of default
    schedules when they were first measured, by the keys of their workloads.
    """

    roster: Roster
    target: Target
    about: Header
    working_set: int
    seed: int = 0
    limits: TrialLimits = field(default_factory=TrialLimits)
    pace: dict[str, float] = field(default_factory=dict)
    _defaults: dict[str, bytes] = field(default_factory=dict)

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        """See `Measurer`; raises HostError where scheduler or workers stay away."""
        found: dict[int, Measured] = {}
        suspects: set[int] = set()  # a worker was lost with them
        losses = 0
        while left := [number for number in range(len(candidates)) if number not in found]:
            before = len(found)
            self._attempt(candidates, left, suspects, found)
            losses = losses + 1 if len(found) == before else 0
            if losses > _MOST_LOSSES:
                raise HostError(
                    "workers of the cluster are lost again and again",
                    where=self._cluster.address.where,
                    hint="see what they say; what was recorded is kept",
                )
        return [found[number] for number in range(len(candidates))]

    @property
    def _cluster(self) -> Cluster:
        return self.roster.cluster

    @property
    def _resource(self) -> str:
        return MEASURE + self.roster.key

    def _attempt(
        self,
        candidates: Sequence[KernelCandidate],
        left: Sequence[int],
        suspects: set[int],
        found: dict[int, Measured],
    ) -> None:
        """Build and measure what is left; what a loss prevents is not in `found` afterwards."""
        builders, measurers = self.roster.wait(BUILD), self.roster.wait(self._resource)
        workload = candidates[0].workload
        parts = _parts(left, suspects, len(measurers))
        built = {number: self._build(candidates[number], builders) for part in parts for number in part}
        measuring: list[Future] = []
        try:
            default = self._default(workload, builders)
            self._built(built, builders, found)
            parts = [[number for number in part if number not in found] for part in parts]
            for part, worker in zip(parts, measurers, strict=False):
                request = self._request("measure", workload) | self._trial(workload)
                pieces = [built[number] for number in part]
                measuring.append(self._submit(request, (default, *pieces), self._resource, [worker]))
            for part, worker, future in zip(parts, measurers, measuring, strict=False):
                self._part(workload, part, future, (worker, builders), suspects, found)
        except LostError:
            return
        finally:
            self._cluster.forget([*measuring, *built.values()])

    def _built(
        self, built: Mapping[int, Future], builders: Sequence[str], found: dict[int, Measured]
    ) -> None:
        """Wait until all are built; those that no compiler takes, or no builder survives, are found out."""
        for number, future in built.items():
            self._wait(future, builders)
            if future.status == "error":  # Dask gave it to some builders, and all of them died
                why = f"the workers that built it were lost: {type(future.exception()).__name__}"
                found[number] = Measured("build", message=why)
                continue
            made = self._answer(future)
            if "failed" in made:
                found[number] = measured_from(made["failed"])

    def _part(
        self,
        workload: Workload,
        part: Sequence[int],
        future: Future,
        places: tuple[str, Sequence[str]],
        suspects: set[int],
        found: dict[int, Measured],
    ) -> None:
        """What became of the candidates that one worker measures."""
        worker, builders = places
        try:
            self._wait(future, [worker], builders)
            made = self._answer(future)
        except LostError:
            for number in part:
                if number in suspects:
                    message = "a worker was lost twice while it measured it, by itself the second time"
                    found[number] = Measured("device-lost", message=message)
                suspects.add(number)
            return
        found |= zip(part, map(measured_from, made["measured"]), strict=True)
        if made["pace"] is not None:
            self.pace[workload.key] = made["pace"]

    # ------------------------------------------------------------ what is asked

    def _request(self, do: str, workload: Workload) -> dict[str, Any]:
        return {"do": do, **self.about, "workload": workload.to_json()}

    def _trial(self, workload: Workload) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "limits": asdict(self.limits),
            "working_set": self.working_set,
            "pace": self.pace.get(workload.key),
        }

    def _build(self, candidate: KernelCandidate, builders: Sequence[str]) -> Future:
        decisions = [[name, list(value)] for name, value in candidate.decisions.items()]
        asked = self._request("build", candidate.workload)
        asked |= {"decisions": decisions, "program": candidate.program}
        return self._submit(asked, (), BUILD, builders)

    def _default(self, workload: Workload, builders: Sequence[str]) -> bytes:
        """The default schedule as a builder answers it; raises BuildError where no compiler takes it."""
        if workload.key not in self._defaults:
            future = self._build(make_candidate(workload, self.target, AnalyticChooser()), builders)
            self._wait(future, builders)
            made = self._answer(future)
            if "failed" in made:
                raise BuildError("the default schedule cannot be built", why=made["failed"]["message"])
            self._defaults[workload.key] = future.result()
        return self._defaults[workload.key]

    def _submit(
        self, asked: Header, pieces: Sequence[object], resource: str, workers: Sequence[str]
    ) -> Future:
        return self._cluster.submit(
            carry_out, pack_message(asked), *pieces, resource=resource, workers=workers
        )

    # ------------------------------------------------------------ what is answered

    def _wait(self, future: Future, *needed: Sequence[str]) -> None:
        await_work(self._cluster, future, *needed)

    def _answer(self, future: Future) -> dict[str, Any]:
        return answered(self.roster, future)


def await_work(cluster: Cluster, future: Future, *needed: Sequence[str]) -> None:
    """Wait until a future is done.

    Raises LostError where of some workers that it needs none is there, HostError without a scheduler.
    """
    looked = time.monotonic()
    while not future.done():
        if time.monotonic() - looked > _LOOK_SECONDS:
            there = cluster.workers().keys()
            if not all(there & {*group} for group in needed):
                raise LostError
            looked = time.monotonic()
        time.sleep(_BLINK_SECONDS)
    if future.status not in ("finished", "error"):
        cluster.workers()  # raises where it is the scheduler that is gone
        raise LostError


def answered(roster: Roster, future: Future) -> dict[str, Any]:
    """What a worker answered; raises LostError for one that cannot do its work: it takes no part any more."""
    if future.status == "error":
        raise LostError
    try:
        return answer(future.result())
    except TkError as error:
        who, _ = unpack_message(future.result())
        roster.refuse(who["worker"], "; ".join(filter(None, (error.what, error.why))))
        raise LostError from error


def _parts(numbers: Sequence[int], suspects: set[int], count: int) -> list[list[int]]:
    """Candidates that are measured together, at most so many parts: one for each worker.

    Suspects by themselves: what else a worker has to do would be lost with it. The others first, shared out.
    """
    others = [number for number in numbers if number not in suspects]
    if not others:
        return [[number] for number in numbers[:count]]
    return [part for place in range(count) if (part := others[place::count])]
