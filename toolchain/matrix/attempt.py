"""One trial from its model to its record: compile, verify, bench, each a `tk` of its own."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from compiler import EMULATOR, UNCHECKED_EMULATOR, TkError, disk, sha256_file
from toolchain.matrix.keys import Surroundings, key_of_result
from toolchain.matrix.models import TrialModel
from toolchain.matrix.outcome import (
    reason_of,
    state_after,
    unsupported_operators,
    worst_output,
    wrong_by,
)
from toolchain.matrix.plan import TrialLimits
from toolchain.matrix.steps import THIS_TK, StepResult, run_step
from toolchain.matrix.trials import Trial, TrialPlace, steps_at
from toolchain.records.device_state import device_state
from toolchain.records.measured import measured_latency
from toolchain.records.record import (
    FAILED,
    KnownCause,
    Place,
    Record,
    State,
    shortened_log,
)
from toolchain.records.store import new_id

_PASSED = {EMULATOR: State.EMULATED, UNCHECKED_EMULATOR: State.EMULATED_UNCHECKED}
"""What equal outputs say, by device; `VERIFIED` on all others."""


@dataclass(frozen=True, slots=True)
class MadeModel:
    """A model as a file, with its digest; or why there is none."""

    path: Path | None
    sha256: str = ""
    failed: StepResult | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all trials of a run share. folder: private. jobs: of each compile, 0: as many as it likes."""

    folder: Path
    around: Surroundings
    run: str
    tk: Sequence[str] = THIS_TK
    jobs: int = 0


def make_model(model: TrialModel, folder: Path, limits: TrialLimits, shop: Workshop) -> MadeModel:
    """Have a model as a file: it is there, or is written or downloaded into `folder`."""
    if model.path is not None:
        path = model.path.absolute()
    else:
        disk.make_directories(folder)
        path = folder / f"{model.name}.onnx"
        verb = "make" if model.kind == "random" else "fetch"
        done = run_step(["zoo", verb, model.name, "-o", str(path)], folder, limits, tk=shop.tk)
        if done.code != 0:
            return MadeModel(None, failed=done)
    try:
        return MadeModel(path, sha256_file(path))
    except OSError as error:
        return MadeModel(None, why=f"the model cannot be read: {error.strerror}")


@dataclass(slots=True)
class Attempt:
    """A trial while it is made; `record` is what is known of it."""

    trial: Trial
    shop: Workshop
    model: MadeModel
    key: str
    record: Record
    library: Path
    results: list[StepResult] = field(default_factory=list)

    @property
    def awaits_bench(self) -> bool:
        """Whether it is still to be timed."""
        timed = "bench" in steps_at(self.trial.place, self.shop.around.machine)
        return timed and self.record.state in (State.VERIFIED, State.MEASURED)

    def check(self) -> None:
        """Compile, and verify if that is asked for."""
        if self.model.path is None:
            self._without_model()
            return
        disk.make_directories(self.library.parent)
        self._update(before=device_state(self.trial.place.target))
        steps = steps_at(self.trial.place, self.shop.around.machine)
        if self._compile(self.model.path) and len(steps) > 1:
            if "verify" in steps:
                self._verify(self.model.path)
            else:
                self._update(state=State.MEASURED)
        self._finish()

    def bench(self) -> None:
        """Time the library; nothing else may run meanwhile."""
        if not self.library.exists() and not self._compile_again():
            self._finish()
            return
        options, before = self.trial.place.bench, device_state(self.trial.place.target)
        words = ["bench", str(self.library), f"--seconds={options.seconds:g}", f"--warmup={options.warmup:g}"]
        done = self._step([*words, *_threads(self.trial.place), *_device(self.trial.place)])
        failed = state_after("bench", done)
        if failed in FAILED:
            self._update(state=failed, why=reason_of(done))
        elif failed:
            self._update(state=self._checked(), why=f"not timed: {reason_of(done)}")
        else:
            self._update(latency=measured_latency(done.document), before=before, place=self._place(done))
        self._finish()

    def _compile_again(self) -> bool:
        """Have the library of a trial that an earlier run has checked."""
        if self.model.path is None:
            self._without_model()
            return False
        known = {"state": self.record.state, "why": self.record.why}
        disk.make_directories(self.library.parent)
        made = self._compile(self.model.path)
        if made:
            self._update(**known)
        return made

    def _checked(self) -> State:
        return State.COMPILED_ONLY if self.record.state == State.MEASURED else self.record.state

    def _without_model(self) -> None:
        """What there is to say where the model could not be had."""
        done = self.model.failed
        if done is None:
            self._update(state=State.NOT_RUN, why=self.model.why)
        else:
            self.results.append(done)
            state = state_after("model", done)
            self._update(state=state or State.NOT_RUN, why=f"no model: {reason_of(done)}")
        self._finish()

    def _compile(self, model: Path) -> bool:
        place = self.trial.place
        words = ["compile", str(model), "-o", str(self.library), f"--target={place.target}"]
        words += ["--timeout=none", "--max-memory=none"]  # a trial has limits of its own
        words += [f"--arch={place.arch}"] * bool(place.arch) + _precision(place)
        done = self._step(words)
        failed = state_after("compile", done)
        if failed is None:
            facts = {name: done.document.get(name) for name in ("library_bytes", "peak_memory")}
            digest = sha256_file(self.library)
            self._update(state=State.COMPILED_ONLY, why=self._why_only(), library_sha256=digest, **facts)
            return True
        self._update(state=failed, why=reason_of(done))
        if failed == State.COMPILE_FAILED:
            self._look_for_operators(model)
        return False

    def _why_only(self) -> str:
        """Why a library that was made is not run."""
        place, machine = self.trial.place, self.shop.around.machine
        if len(place.do) == 1:
            return "nothing else was asked for"
        return machine.targets[place.target].runs.reason if place.is_here else ""

    def _look_for_operators(self, model: Path) -> None:
        """A compile that failed may have had no chance: the model says."""
        inspected = run_step(
            ["inspect", str(model)], self.library.parent, self.trial.place.limits, tk=self.shop.tk
        )
        operators = unsupported_operators(inspected)
        if operators:
            self.results.append(inspected)
            named = ", ".join(dict.fromkeys(one.operator for one in operators))
            self._update(state=State.UNSUPPORTED, why=f"operators: {named}", operators=operators)

    def _verify(self, model: Path) -> None:
        place = self.trial.place
        words = [
            "verify",
            str(self.library),
            f"--model={model}",
            *_threads(place),
            *_device(place),
            *_runs(place),
        ]
        done = self._step(words)
        worst = worst_output(done.document)
        failed = state_after("verify", done)
        if failed is None:
            passed = _PASSED.get(place.selector, State.VERIFIED)
            self._update(state=passed, why="", accuracy=worst, place=self._place(done))
        elif failed == State.WRONG:
            self._update(state=failed, why=wrong_by(worst), accuracy=worst, place=self._place(done))
        else:
            self._update(state=failed, why=reason_of(done))

    def _place(self, done: StepResult) -> Place:
        """The place, with the device as its driver names it."""
        return self.record.place.model_copy(update={"device": str(done.document.get("device") or "")})

    def _step(self, words: Sequence[str]) -> StepResult:
        place = self.trial.place
        words = [*words, *([f"--image={place.image}"] if place.image else ["--no-container"])]
        words += [f"--docker-host={place.engine}"] * bool(place.engine)
        words += _container_limits(place.limits) * bool(place.image)
        # In a container the limit of memory is the engine's to keep; the command here only sends and fetches.
        here = place.limits.model_copy(update={"memory": None}) if place.image else place.limits
        done = run_step(words, self.library.parent, here, tk=self.shop.tk, jobs=self.shop.jobs)
        self.results.append(done)
        return done

    def _finish(self) -> None:
        """Put together what the steps said."""
        log = "".join(one.log for one in self.results)
        seconds: dict[str, float] = dict(self.record.seconds)
        for one in self.results:
            seconds[one.words[0]] = round(seconds.get(one.words[0], 0.0) + one.seconds, 3)
        self.results.clear()
        log = self.record.log + self._without_paths(log)
        key = key_of_result(self.key, self.trial, self.record.state)
        causes = known_causes_in(log) if self.record.state in FAILED else ()
        after = device_state(self.trial.place.target)
        self._update(seconds=seconds, log=shortened_log(log), key=key, causes=causes, after=after)
        self._update(why=self._without_paths(self.record.why))

    def _without_paths(self, text: str) -> str:
        """Private folders are gone when somebody reads this: their names alone say enough."""
        return re.sub(re.escape(f"{self.shop.folder}/") + r"(\S+/)?", "", text)

    def _update(self, **changes: Any) -> None:
        self.record = self.record.model_copy(update=changes)


def begin(trial: Trial, shop: Workshop, model: MadeModel, key: str, folder: Path) -> Attempt:
    """An attempt that works in `folder`, and its record as far as it is known beforehand."""
    record = planned_record(trial, shop, key, model.sha256)
    return Attempt(trial, shop, model, key, record, folder / f"{trial.place.target}.so")


def planned_record(trial: Trial, shop: Workshop, key: str, sha256: str = "", why: str = "") -> Record:
    """What is known of a trial that has not been made."""
    place, when = trial.place, datetime.now(UTC)
    subject = trial.model.subject.model_copy(update={"model_sha256": sha256})
    return Record(
        id=new_id(when),
        kind="cell",
        run=shop.run,
        key=key,
        when=when,
        state=State.NOT_RUN,
        why=why,
        subject=subject,
        place=Place(
            target=place.target,
            arch=shop.around.machine.arch(place),
            selector=place.selector,
            threads=place.threads,
            precision=place.precision,
            image=place.image,
            worker=place.worker or place.engine or "here",
            machine=platform.node(),
        ),
        versions=shop.around.versions(place),
        command=repeating(trial),
    )


def repeating(trial: Trial) -> tuple[str, ...]:
    """The command that makes a trial again."""
    place, model = trial.place, trial.model
    option = {"random": "--network", "trained": "--revision", "file": "--file"}[model.kind]
    return (
        "tk", "matrix", "run", f"{option}={model.name}",
        f"--target={place.target}" + (f":{place.arch}" if place.arch else ""),
        *_device(place), *_threads(place),
        *([f"--image={place.image}"] if place.image else []),
        *([f"--docker-host={place.engine}"] if place.engine else []),
        *([f"--worker={place.worker}"] if place.worker else []),
        *_precision(place), *_runs(place),
        f"--do={','.join(place.do)}", f"--seconds={place.limits.seconds:g}",
        *_container_limits(place.limits),
        *([f"--bench-seconds={place.bench.seconds:g}", f"--warmup={place.bench.warmup:g}"]
          if "bench" in place.do else []),
        "--again",
    )  # fmt: skip


def _container_limits(limits: TrialLimits) -> list[str]:
    """Memory and disk, as `tk matrix run` and commands in containers take them."""
    each = {"--memory": limits.memory, "--disk": limits.disk}
    return [f"{option}={value}" for option, value in each.items() if value is not None]


def known_causes_in(log: str) -> tuple[KnownCause, ...]:
    """The known issues that a log shows; none where the recipes cannot be read."""
    from toolchain.advice import issues_of_site
    from toolchain.explain.causes import known_causes

    try:
        issues = issues_of_site()
    except TkError:
        return ()
    found = known_causes(log.splitlines(), issues)
    return tuple(KnownCause(issue=one.issue, cause=one.cause, action=one.action) for one in found)


def _threads(place: TrialPlace) -> list[str]:
    return [f"--threads={place.threads}"] if place.threads else []


def _device(place: TrialPlace) -> list[str]:
    return [f"--device={place.selector}"] if place.selector else []


def _runs(place: TrialPlace) -> list[str]:
    return [f"--runs={place.runs}"] if place.runs else []


def _precision(place: TrialPlace) -> list[str]:
    return [] if place.precision == "f32" else [f"--precision={place.precision}"]
