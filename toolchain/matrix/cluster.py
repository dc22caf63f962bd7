"""Trials on workers of a Dask cluster, each of which has a device: the resource `device:KEY`.

A worker has tk installed and does there what is done here; models that are files are sent along. Whoever
can reach a cluster's scheduler can run programs on it: that is Dask's way, and its owner keeps it closed.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import compiler
from compiler import ClusterAddress, HostError, external_files, private_directory, write_atomic
from toolchain.matrix.attempt import Workshop, begin, make_model
from toolchain.matrix.keys import Surroundings
from toolchain.matrix.models import TrialModel
from toolchain.matrix.plan import BenchPlan, TrialLimits
from toolchain.matrix.trials import Machine, Trial, TrialPlace
from toolchain.records.record import Record, Subject, Versions

_RESOURCE = "device:"


class Cluster:
    """A connection to a scheduler; raises HostError where there is none, or no package `distributed`."""

    def __init__(self, address: str) -> None:
        self._cluster = compiler.Cluster(ClusterAddress(address, option="--scheduler"))

    @functools.cached_property
    def devices(self) -> Mapping[str, int]:
        """The keys of devices, and how many workers have each."""
        found: dict[str, int] = {}
        for resources in self._cluster.workers().values():
            for name in resources:
                if name.startswith(_RESOURCE):
                    key = name.removeprefix(_RESOURCE)
                    found[key] = found.get(key, 0) + 1
        return found

    def versions(self, place: TrialPlace) -> Versions:
        """What a worker with the place's device has; raises HostError where it cannot say."""
        return Versions.model_validate_json(self._ask(place.worker, versions_there, _document(place)))

    def make(self, trial: Trial) -> Record:
        """Make a trial on a worker with its device; raises HostError where the worker is lost."""
        model = {"kind": trial.model.kind, "subject": trial.model.subject.model_dump()}
        answer = self._ask(
            trial.place.worker, make_there, model, _document(trial.place), _files_of(trial.model)
        )
        return Record.model_validate_json(answer)

    def close(self) -> None:
        """Leave the cluster; what nobody waits for any more is dropped there."""
        self._cluster.close()

    def _ask(self, key: str, task: Callable[..., str], *arguments: object) -> str:
        future = self._cluster.submit(task, *arguments, resource=_RESOURCE + key)
        try:
            return str(future.result())
        except Exception as error:  # whatever a worker raised arrives here
            why = f"{type(error).__name__}: {error}"
            raise HostError(f"a worker with `{_RESOURCE}{key}` failed", why=why) from error


def versions_there(place: Mapping[str, Any]) -> str:
    """On a worker: what it has, as JSON."""
    return Surroundings(_machine()).versions(_place_of(place)).model_dump_json()


def make_there(model: Mapping[str, Any], place: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """On a worker: make a trial, from its model to its record, as JSON."""
    with private_directory("tk-matrix") as folder:
        for name, content in files.items():
            write_atomic(folder / name, content)
        path = folder / next(iter(files)) if files else None
        trial = Trial(TrialModel(model["kind"], Subject(**model["subject"]), path=path), _place_of(place))
        shop = Workshop(folder, Surroundings(_machine()), "")
        made = make_model(trial.model, folder / "model", trial.place.limits, shop)
        attempt = begin(trial, shop, made, "", folder / "trial")
        attempt.check()
        if attempt.awaits_bench:
            attempt.bench()
        there = attempt.record.place.model_copy(update={"worker": str(place["worker"])})
        return attempt.record.model_copy(update={"place": there}).model_dump_json()


@functools.cache
def _machine() -> Machine:
    """What this worker can do; it is asked once."""
    return Machine()


def _document(place: TrialPlace) -> dict[str, Any]:
    """A place as it is sent."""
    models = {"limits": place.limits.model_dump(), "bench": place.bench.model_dump()}
    return {one.name: getattr(place, one.name) for one in dataclasses.fields(place)} | models


def _place_of(document: Mapping[str, Any]) -> TrialPlace:
    """The place as the worker sees it: its own machine."""
    limits, bench = TrialLimits(**document["limits"]), BenchPlan(**document["bench"])
    return TrialPlace(
        **{**document, "worker": "", "limits": limits, "bench": bench, "do": tuple(document["do"])}
    )


def _files_of(model: TrialModel) -> dict[str, bytes]:
    """The files of a model, the model itself first; none where the worker makes it."""
    if model.path is None:
        return {}
    try:
        names = (model.path.name, *external_files(model.path))
        return {name: (model.path.parent / name).read_bytes() for name in names}
    except OSError as error:
        raise HostError("a model cannot be read", where=model.name, why=error.strerror or "") from error
