"""What decides how a trial ends, as one key: equal keys need no second trial."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import compiler
from compiler import TkError, content_key
from toolchain.matrix.models import ModelDigests
from toolchain.matrix.trials import Machine, Trial, TrialPlace, steps_at
from toolchain.records.host import host_versions, processor_name
from toolchain.records.record import Record, State, Versions

_COMPILER = Path(compiler.__file__).parent
_REFERENCES = ("onnxruntime", "onnx")
_BOUNDED = frozenset({State.TIMED_OUT, State.OUT_OF_MEMORY, State.OUT_OF_DISK})
"""States that another limit may change."""


class Elsewhere(Protocol):
    """Machines whose workers make trials: `toolchain.matrix.cluster`."""

    @property
    def devices(self) -> Mapping[str, int]: ...
    def versions(self, place: TrialPlace) -> Versions: ...
    def make(self, trial: Trial) -> Record: ...


@dataclass(slots=True)
class Surroundings:
    """Versions of everything that a result depends on, beside the model."""

    machine: Machine
    cluster: Elsewhere | None = None
    _of: dict[TrialPlace, Versions] = field(default_factory=dict)
    _images: dict[tuple[str, str], str] = field(default_factory=dict)
    _own: str = ""

    def versions(self, place: TrialPlace) -> Versions:
        """What a record of a place says."""
        if place not in self._of:
            self._of[place] = self._find(place)
        return self._of[place]

    def _find(self, place: TrialPlace) -> Versions:
        self._own = self._own or compiler.package_digest(_COMPILER)
        if place.worker:
            there = self.cluster is not None and place.worker in self.cluster.devices
            return self.cluster.versions(place) if self.cluster and there else Versions()
        tk = {"tk": compiler.__version__, "tk_sha256": self._own}
        if not place.is_here:
            return Versions(**tk, toolchain=self._image(place))
        report, host = self.machine.targets[place.target], host_versions()
        return Versions(
            **tk,
            toolchain=self.machine.compiles(place.target, place.arch).reason,
            driver="; ".join(dict.fromkeys((report.loads.reason, report.runs.reason))),
            reference=_reference(),
            system=host.system,
            python=host.python,
        )

    def _image(self, place: TrialPlace) -> str:
        """The image as its engine knows it, where one answers; else its name."""
        key = place.image, place.engine
        if key not in self._images:
            self._images[key] = _image_now(place.image, place.engine)
        return self._images[key]


def trial_key(trial: Trial, digests: ModelDigests, around: Surroundings) -> str:
    """The key of a trial that ends as it does whatever its limits are; raises what a model's digest does."""
    place, versions = trial.place, around.versions(trial.place)
    do = steps_at(place, around.machine)
    measured = repr(place.bench) if "bench" in do else ""
    return content_key(
        "trial",
        digests.digest(trial.model),
        repr((versions.tk_sha256, versions.toolchain, versions.driver, versions.reference)),
        f"{processor_name()}, {os.cpu_count()}",
        around.machine.arch(place),
        repr((place.target, place.selector, place.image, place.engine, place.worker)),
        repr((place.threads, place.precision, do)),
        measured,
        *((f"{place.runs} runs",) if place.runs and "verify" in do else ()),
    )


def key_of_result(key: str, trial: Trial, state: State) -> str:
    """The key that a record gets: of what a limit ended, one that the limit is part of."""
    return _within_limits(key, trial) if state in _BOUNDED else key


def _within_limits(key: str, trial: Trial) -> str:
    return content_key("within", key, repr(trial.place.limits))


def finished_record(key: str, trial: Trial, latest: dict[str, Record], why_not: str) -> Record | None:
    """The record that makes a trial needless.

    What was not run is tried again, unless nothing has changed in why it cannot be.
    """
    for one in (key, _within_limits(key, trial)):
        record = latest.get(one)
        if record is not None and (record.state != State.NOT_RUN or (why_not and record.why == why_not)):
            return record
    return None


def _reference() -> str:
    """The package that results are compared with."""
    for name in _REFERENCES:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _image_now(image: str, engine: str) -> str:
    from toolchain.engine.choice import EngineChoice
    from toolchain.engine.client import open_chosen

    try:
        reference = _reference_of(image)
        found = open_chosen(EngineChoice(docker_host=engine or None)).image(reference)
    except TkError:  # the trial will say so
        return image
    return f"{reference} {found['Id']}" if found else reference


def _reference_of(image: str) -> str:
    if "/" in image or ":" in image:
        return image
    from toolchain.images.named import plan_named

    return plan_named(image).plan.reference
