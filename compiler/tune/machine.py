"""Where candidates are measured and libraries timed: on this machine, or by a cluster's workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from compiler.stages.job import CompileJob
from compiler.tune.environment import environment_here
from compiler.tune.measure.measurer import LibraryMeasurer, Measurer
from compiler.tune.network import Timing, time_here
from compiler.tune.record import Environment


class TuningMachine(Protocol):
    """What a search is for, seen from the tuner.

    job: with the target as that machine has it. environment: what records are kept under. threads: of a
    library there; None on a device.
    """

    @property
    def job(self) -> CompileJob: ...

    @property
    def environment(self) -> Environment: ...

    @property
    def threads(self) -> int | None: ...

    @property
    def timing(self) -> Timing: ...

    @property
    def warnings(self) -> tuple[str, ...]: ...

    def measurer(self, seed: int, working_set: int, pace: Mapping[str, float]) -> Measurer:
        """What measures candidates of a network with so many bytes of weights.

        pace: seconds of default schedules that are known: times are scaled to them.
        """
        ...


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """This machine; its measurer builds as many candidates at a time as the settings say."""

    job: CompileJob
    environment: Environment

    @property
    def threads(self) -> int | None:
        """See `TuningMachine`."""
        return self.environment.threads or None

    @property
    def timing(self) -> Timing:
        """See `TuningMachine`."""
        return time_here

    @property
    def warnings(self) -> tuple[str, ...]:
        """See `TuningMachine`."""
        return ()

    def measurer(self, seed: int, working_set: int, pace: Mapping[str, float]) -> Measurer:
        """See `TuningMachine`."""
        job = self.job
        return LibraryMeasurer(
            job.target, job.settings, self.threads, seed, working_set=working_set, pace=dict(pace)
        )


def local_machine(job: CompileJob, threads: int | None) -> LocalMachine:
    """This machine, with libraries on so many threads; raises HostError without the target's toolchain."""
    return LocalMachine(job, environment_here(job.target, job.settings, threads))
