"""On a worker: what is asked of it is done by `carry_out`, with messages in and a message out.

Beside the work itself nothing of the tuner's is run here: a candidate comes as decisions, which this tk's own
rules make a kernel of.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from compiler.cluster.connection import here
from compiler.core.cache_space import cache_in_use
from compiler.core.diagnostics import BadInputError, BuildError, InternalError, TkError
from compiler.core.files import private_directory, write_atomic
from compiler.core.progress import silent
from compiler.core.settings import load_settings
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.stages.plugins import load_plugins
from compiler.stages.workload import Workload
from compiler.targets import DEFAULT_TARGET, Target, find_target, get_target
from compiler.tune.candidate import RejectedError, make_candidate
from compiler.tune.cluster.message import Header, fields_of, pack_message, unpack_message
from compiler.tune.cluster.place import described_target, target_from
from compiler.tune.environment import environment_here
from compiler.tune.measure.built import BuiltCandidate, build_candidate, failed_build
from compiler.tune.measure.trials import TrialLimits, Trials
from compiler.tune.network import time_here
from compiler.tune.record import Measured
from compiler.verify.isolate import answer_of

_DIFFERENT_TRIALS = 4


def carry_out(message: bytes, *more: bytes) -> bytes:
    """Do what a message asks for: `describe`, `build`, `measure` or `compare`; `more` are messages, too.

    The answer has `error` where that did not work, as `error_of` reads it, and the worker's address. Nothing
    is raised: Dask would send a Python object, which the tuner would have to believe.
    """
    try:
        asked, files = unpack_message(message)
        with cache_in_use(load_settings().cache_dir):
            return _WORK[asked["do"]](asked, [*files, *more])
    except TkError as error:
        return pack_message({**answer_of(error), "worker": here()})
    except Exception as error:  # noqa: BLE001 - a defect, which the tuner reports
        said = InternalError(f"{type(error).__name__}: {error}", why=traceback.format_exc())
        return pack_message({**answer_of(said), "worker": here()})


def _describe(asked: Header, files: Sequence[bytes]) -> bytes:  # noqa: ARG001 - as all of them
    """The target as this machine has it, and the environment in which kernels for it would be timed here."""
    if "caches" in asked["target"]:
        target = target_from(asked["target"])
    else:
        wanted = asked["target"]
        name, _, given = (wanted["text"] or DEFAULT_TARGET).partition(":")
        arch = given or wanted["arch"] or find_target(name).readiness.arch(load_settings()) or None
        target = get_target(name, arch, precision=wanted["precision"])
        target = replace(target, plugins=load_plugins((), installed=wanted["plugins"]))
    environment = environment_here(target, load_settings(), asked["threads"])
    described = described_target(target, plugins=asked["target"]["plugins"])
    return pack_message({"target": described, "environment": fields_of(environment)})


def _build(asked: Header, files: Sequence[bytes]) -> bytes:  # noqa: ARG001 - as all of them
    """The library of a candidate, which these decisions make; what the compiler says where it refuses it.

    Raises BadInputError where other loops come of them here.
    """
    target = _target(json.dumps(asked["target"]))
    workload = Workload.from_json(asked["workload"])
    decisions = {name: tuple(value) for name, value in asked["decisions"]}
    try:
        made = make_candidate(workload, target, ReplayChooser(decisions, AnalyticChooser()))
    except RejectedError as error:
        raise BadInputError("a worker's rules refuse a candidate", why=str(error.error)) from error
    if made.program != asked["program"]:
        raise BadInputError("a worker's rules make another program of the same decisions")
    with private_directory("tk-build") as directory:
        try:
            built = build_candidate(made, target, replace(load_settings(), jobs=1), directory / "kernel.so")
        except BuildError as error:
            return pack_message({"failed": fields_of(failed_build(error))})
        header = {"scheduled": built.scheduled, "form": built.form, "program": made.program}
        return pack_message(header, [built.library.read_bytes()])


def _measure(asked: Header, built: Sequence[bytes]) -> bytes:
    """What became of candidates: the first of those built is the default schedule."""
    workload = Workload.from_json(asked["workload"])
    found = measure_here(workload, asked, [unpack_message(one) for one in built])
    return pack_message({"measured": [fields_of(one) for one in found.measured], "pace": found.pace})


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """What became of candidates, and the pace of the default schedule after it."""

    measured: Sequence[Measured]
    pace: float | None


def measure_here(
    workload: Workload, asked: Header, built: Sequence[tuple[dict[str, Any], list[bytes]]]
) -> MeasuredPart:
    """Run candidates on this machine; the first one is the default schedule that they are compared with."""
    words = ("target", "threads", "seed", "limits", "working_set")
    trials = _trials(json.dumps({name: asked[name] for name in words}))
    trials.pace = {} if asked["pace"] is None else {workload.key: asked["pace"]}
    with private_directory("tk-trials") as directory:
        default, *others = [
            _unpacked(one, files, directory / f"{number}.so") for number, (one, files) in enumerate(built)
        ]
        found = trials.try_all(workload, default, dict(enumerate(others)), directory)
    return MeasuredPart([found[number] for number in range(len(others))], trials.pace.get(workload.key))


def _unpacked(one: Mapping[str, Any], files: Sequence[bytes], path: Path) -> BuiltCandidate:
    write_atomic(path, files[0], durable=False)
    return BuiltCandidate(one["scheduled"], one["form"], path)


def _compare(asked: Header, libraries: Sequence[bytes]) -> bytes:
    """Whole libraries timed here."""
    with private_directory("tk-compare") as directory:
        paths = [directory / f"{number}.so" for number in range(len(libraries))]
        for path, content in zip(paths, libraries, strict=True):
            write_atomic(path, content, durable=False)
        request = {**asked["request"], "device": load_settings().device}
        return pack_message({"compared": dict(time_here(request, paths, silent))})


@lru_cache(maxsize=_DIFFERENT_TRIALS)
def _target(described: str) -> Target:
    return target_from(json.loads(described))


@lru_cache(maxsize=_DIFFERENT_TRIALS)
def _trials(words: str) -> Trials:
    """What runs candidates here; it keeps the right results that it has made."""
    asked = json.loads(words)
    return Trials(
        target_from(asked["target"]),
        load_settings(),
        asked["threads"],
        asked["seed"],
        limits=TrialLimits(**asked["limits"]),
        working_set=asked["working_set"],
    )


_WORK: Mapping[str, Callable[[Header, Sequence[bytes]], bytes]] = {
    "describe": _describe,
    "build": _build,
    "measure": _measure,
    "compare": _compare,
}
