"""A machine that is reached through a cluster: described by the worker that has the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from compiler.cluster.address import ClusterAddress
from compiler.cluster.connection import Cluster, Future
from compiler.core.diagnostics import HostError, UsageError
from compiler.core.files import sha256_bytes
from compiler.core.progress import Progress
from compiler.stages.job import CompileJob
from compiler.tune.cluster.measurer import ClusterMeasurer, LostError, answered, await_work
from compiler.tune.cluster.message import Header, environment_from, pack_message
from compiler.tune.cluster.place import target_from
from compiler.tune.cluster.roster import (
    MEASURE,
    PATIENCE_SECONDS,
    Roster,
    answer,
    device_key,
    difference_text,
    made_alike,
)
from compiler.tune.cluster.work import carry_out
from compiler.tune.environment import environment_here
from compiler.tune.measure.measurer import Measurer
from compiler.tune.network import Timing
from compiler.tune.record import Environment

_ATTEMPTS = 3
_KEPT = 3
"""Libraries that stay on workers: the untuned one, and the last ones that it was compared with."""


@dataclass(frozen=True, slots=True)
class ClusterMachine:
    """The machine of the workers that measure: see `TuningMachine`. about: target and threads, as sent."""

    job: CompileJob
    environment: Environment
    roster: Roster
    about: Header
    _sent: dict[tuple[str, str], Future] = field(default_factory=dict)

    @property
    def threads(self) -> int | None:
        """See `TuningMachine`."""
        return self.environment.threads or None

    @property
    def timing(self) -> Timing:
        """See `TuningMachine`."""
        return self._time

    @property
    def warnings(self) -> tuple[str, ...]:
        """See `TuningMachine`: which workers took no part, and why."""
        return tuple(
            f"the worker {address} took no part: {why}" for address, why in self.roster.refused.items()
        )

    def measurer(self, seed: int, working_set: int, pace: Mapping[str, float]) -> Measurer:
        """See `TuningMachine`."""
        return ClusterMeasurer(self.roster, self.job.target, self.about, working_set, seed, pace=dict(pace))

    def _time(
        self, request: Mapping[str, Any], libraries: Sequence[Path], progress: Progress
    ) -> Mapping[str, Any]:
        """A `Timing`: the libraries are sent to the first worker that measures, each once."""
        cluster, resource = self.roster.cluster, MEASURE + self.roster.key
        asked = pack_message({"do": "compare", "request": dict(request)})
        for _ in range(_ATTEMPTS):
            worker = self.roster.wait(resource)[0]
            progress(f"timing on {worker}", 0, 0)
            files = [self._send(path, worker) for path in libraries]
            future = cluster.submit(carry_out, asked, *files, resource=resource, workers=[worker])
            try:
                await_work(cluster, future, [worker])
                made: Mapping[str, Any] = answered(self.roster, future)["compared"]
            except LostError:
                self._sent.clear()
                continue
            return made
        raise HostError(
            "workers that measure are lost while they time the network",
            where=cluster.address.where,
            hint="see what they say; what was recorded is kept",
        )

    def _send(self, path: Path, worker: str) -> Future:
        """A library as a file on a worker; the last ones that were sent are there still."""
        content = path.read_bytes()
        key = (worker, sha256_bytes(content))
        if key not in self._sent:
            while len(self._sent) >= _KEPT:
                del self._sent[next(iter(self._sent))]
            self._sent[key] = self.roster.cluster.send(content, worker)
        return self._sent[key]


@contextmanager
def cluster_machine(
    address: ClusterAddress,
    key: str | None,
    job: CompileJob,
    threads: int | None,
    progress: Progress,
    patience: float = PATIENCE_SECONDS,
) -> Iterator[ClusterMachine]:
    """The machine of a cluster's workers with a device, while the connection lasts.

    Raises UsageError for plugins that they cannot have, HostError where there is no such worker, or where it
    has another tk or compiler than this machine.
    """
    if job.options.plugins:
        raise UsageError(
            "a cluster's workers do not have the plugins of files",
            where=" ".join(f"--plugin {one}" for one in job.options.plugins),
            hint="install them as a package, here and on the workers",
        )
    with closing(Cluster(address)) as cluster:
        named = device_key(cluster, key, patience, progress)
        wanted = {
            "text": job.options.target,
            "arch": job.options.arch,
            "precision": job.options.precision,
            "plugins": job.options.installed_plugins,
        }
        described = _described(cluster, MEASURE + named, {"target": wanted, "threads": threads})
        target = target_from(described["target"])
        environment = environment_from(described["environment"])
        ours = environment_here(target, job.settings, environment.threads)
        if differs := made_alike(environment, ours):
            raise HostError(
                "the worker that measures makes other machine code than this machine",
                where=address.where,
                why="here " + difference_text(differs, environment, ours),
                hint="use the same tk and the same compiler on all machines, as in an image",
            )
        about = {"target": described["target"], "threads": environment.threads or None}
        roster = Roster(cluster, named, about, environment, progress, patience)
        yield ClusterMachine(replace(job, target=target), environment, roster, about)


def _described(cluster: Cluster, resource: str, asked: Header) -> dict[str, Any]:
    """What a worker with a device says of itself; raises HostError where it cannot."""
    found = [one for one, resources in cluster.workers().items() if resources.get(resource)]
    gone = HostError("the worker that measures is gone", where=cluster.address.where)
    if not found:
        raise gone
    future = cluster.submit(carry_out, pack_message({"do": "describe", **asked}), workers=found)
    try:
        await_work(cluster, future, found)
    except LostError as error:
        raise gone from error
    return answer(future.result())
