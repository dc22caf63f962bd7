"""From a plan to its trials: every model at every place, and what is known of them before they are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import compiler
from compiler import EMULATORS, Answer, TkError, UsageError, did_you_mean
from toolchain.matrix.models import TrialModel, fits_size, planned_models
from toolchain.matrix.plan import (
    NO_IMAGE,
    STEPS,
    BenchPlan,
    MatrixPlan,
    PlanSource,
    Precision,
    TargetPlan,
    TrialLimits,
    TrialStep,
    refused_plan,
)
from toolchain.recipes.check import Problems


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """Where and how models are tried; `do` are the steps.

    arch, selector, image: empty for what is there by default. engine: address of a container engine; empty:
    the usual one. worker: key of a device in a cluster; empty: none. most_gflop: of models that are tried.
    """

    target: str
    arch: str = ""
    selector: str = ""
    image: str = ""
    engine: str = ""
    worker: str = ""
    threads: int | None = None
    precision: Precision = "f32"
    do: tuple[TrialStep, ...] = ("compile", "verify")
    limits: TrialLimits = field(default_factory=TrialLimits)
    bench: BenchPlan = field(default_factory=BenchPlan)
    runs: int | None = None
    most_gflop: float | None = None

    @property
    def title(self) -> str:
        """How it is called while something runs there."""
        target = f"{self.target}:{self.arch}" if self.arch else self.target
        threads = compiler.counted(self.threads, "thread") if self.threads else ""
        precision = self.precision if self.precision != "f32" else ""
        more = ", ".join(
            filter(None, (self.selector, self.image, self.engine, self.worker, threads, precision))
        )
        return f"{target} ({more})" if more else target

    @property
    def is_here(self) -> bool:
        """Whether this machine itself does it, in no container."""
        return not self.image and not self.worker


@dataclass(frozen=True, slots=True)
class Trial:
    """One model at one place. apart: what tells it from others of the plan that are called the same."""

    model: TrialModel
    place: TrialPlace
    apart: str = ""

    @property
    def title(self) -> str:
        """How it is called while it runs; no other of its plan is called so."""
        title = f"{self.model.name} on {self.place.title}"
        return f"{title}, {self.apart}" if self.apart else title


class Machine:
    """What this machine can do with targets; each is asked once."""

    def __init__(self, reports: Sequence[compiler.TargetReport] | None = None) -> None:
        listed = compiler.list_targets() if reports is None else reports
        self.targets: Mapping[str, compiler.TargetReport] = {one.name: one for one in listed}
        self._names = {name: one.name for one in listed for name in (one.name, *one.aliases)}
        self._compiles: dict[tuple[str, str], Answer] = {}
        self._archs: dict[str, str] = {}

    def find(self, name: str) -> compiler.TargetReport | None:
        """A target by its name or an alias."""
        return self.targets.get(self._names.get(name, ""))

    @property
    def names(self) -> tuple[str, ...]:
        """All names and aliases."""
        return tuple(self._names)

    def arch(self, place: TrialPlace) -> str:
        """The architectures that a place compiles for: its own, the device's, else the target's."""
        if place.arch or not place.is_here:
            return place.arch or self.targets[place.target].arch
        if place.target not in self._archs:
            here = compiler.arch_here(place.target)
            self._archs[place.target] = here or self.targets[place.target].arch
        return self._archs[place.target]

    def compiles(self, target: str, arch: str) -> Answer:
        """Whether the toolchain is here for these architectures; raises UsageError for unknown ones."""
        if not arch or arch == self.targets[target].arch:
            return self.targets[target].compiles
        if (target, arch) not in self._compiles:
            self._compiles[target, arch] = compiler.can_compile(target, arch)
        return self._compiles[target, arch]


def planned_trials(plan: MatrixPlan, source: PlanSource, machine: Machine) -> tuple[Trial, ...]:
    """All trials of a plan, model by model.

    Raises BadInputError with everything that is named wrongly, UsageError where nothing is left.
    """
    problems: Problems = []
    models = planned_models(plan.models, source, problems)
    places = planned_places(plan, source, machine, problems)
    if problems:
        raise refused_plan(problems)
    trials = [
        Trial(model, replace(place, most_gflop=None))
        for model in models
        for place in places
        if fits_size(model, place.most_gflop)
    ]
    if not trials:
        what = "targets" if models else "models"
        raise UsageError(
            "the plan has nothing to try", where=source.where(what), hint="docs/matrix.md has examples"
        )
    return _told_apart(tuple(dict.fromkeys(trials)))


def _told_apart(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    alike: dict[str, list[TrialPlace]] = defaultdict(list)
    for one in trials:
        alike[one.title].append(one.place)
    return tuple(replace(one, apart=_apart(one.place, alike[one.title])) for one in trials)


def _apart(place: TrialPlace, alike: Sequence[TrialPlace]) -> str:
    """What is said of a place where others have the same title."""
    words = {
        "selector": f"device {place.selector}" if place.selector else "",
        "image": f"image {place.image}" if place.image else "",
        "worker": f"worker {place.worker}" if place.worker else "",
        "do": "+".join(place.do),
        "limits": _limit_words(place.limits),
    }
    differing = (name for name in words if len({getattr(one, name) for one in alike}) > 1)
    return ", ".join(filter(None, (words[name] for name in differing)))


def _limit_words(limits: TrialLimits) -> str:
    sizes = {"memory": limits.memory, "disk": limits.disk}
    given = [f"{size:,} bytes of {what}" for what, size in sizes.items() if size is not None]
    return ", ".join((f"at most {limits.seconds:g} s", *given))


def why_not(place: TrialPlace, machine: Machine, devices: Collection[str] = ()) -> str:
    """Why nothing can be tried at a place, known beforehand; empty where it may be tried.

    devices: the keys of those that workers have.
    """
    if place.worker and place.worker not in devices:
        return f"no worker of the cluster has the resource device:{place.worker}"
    if not place.is_here:
        return ""
    answer = machine.compiles(place.target, place.arch)
    return "; ".join(filter(None, (answer.reason, answer.fix))) if answer.answer == "no" else ""


def steps_at(place: TrialPlace, machine: Machine) -> tuple[TrialStep, ...]:
    """The steps that can be made: without a device a library is only compiled; an emulator is not timed."""
    if place.selector in EMULATORS:
        return tuple(one for one in place.do if one != "bench")
    if place.is_here and machine.targets[place.target].runs.answer == "no":
        return ("compile",)
    return place.do


def planned_places(
    plan: MatrixPlan, source: PlanSource, machine: Machine, problems: Problems
) -> tuple[TrialPlace, ...]:
    """The places of a plan; what it names wrongly is added to `problems`."""
    targets = plan.targets or _all_that_compile(machine)
    return tuple(
        place
        for number, one in enumerate(targets)
        if _is_right(plan, one, number, source, machine, problems)
        for place in _places(plan, one, machine)
    )


def _all_that_compile(machine: Machine) -> tuple[TargetPlan, ...]:
    return tuple(TargetPlan(target=name) for name, one in machine.targets.items() if one.compiles)


def _is_right(
    plan: MatrixPlan, one: TargetPlan, number: int, source: PlanSource, machine: Machine, problems: Problems
) -> bool:
    """Whether a target is there, with its architectures; what is wrong is added to `problems`."""
    before, report = len(problems), machine.find(one.target)
    if report is None:
        hint = did_you_mean(one.target, machine.names) or f"known are {', '.join(machine.targets)}"
        where = source.where("targets", number, "target")
        problems.append((where, f"`target`: nothing is called {one.target!r}; {hint}"))
        return False
    for index, arch in enumerate(one.archs):
        try:
            machine.compiles(report.name, arch)
        except TkError as error:
            what = "; ".join(filter(None, (error.what, error.hint)))
            problems.append((source.where("targets", number, "archs", index), f"`archs`: {what}"))
    if one.engines and not any(image != NO_IMAGE for image in one.images):
        where = source.where("targets", number, "engines")
        problems.append((where, "`engines` go with `images`: an engine runs containers of one"))
    if one.workers and (one.images or not plan.scheduler):
        what = "exclude `images`" if one.images else "need a `scheduler`: the address of a cluster's"
        problems.append((source.where("targets", number, "workers"), f"`workers` {what}"))
    return len(problems) == before


def _places(plan: MatrixPlan, one: TargetPlan, machine: Machine) -> Iterator[TrialPlace]:
    report = machine.find(one.target)
    assert report is not None
    for arch, selector, (image, engine), worker, threads, precision in product(
        one.archs or ("",),
        one.devices or ("",),
        _containers(one),
        one.workers or ("",),
        one.threads or plan.threads or (None,),
        one.precisions or plan.precisions,
    ):
        yield TrialPlace(
            target=report.name,
            arch=arch,
            selector=selector,
            image=image,
            engine=engine,
            worker=worker,
            threads=threads,
            precision=precision,
            do=in_order(one.do or plan.do),
            limits=one.limits or plan.limits,
            bench=plan.bench,
            runs=plan.runs,
            most_gflop=one.most_gflop,
        )


def _containers(one: TargetPlan) -> list[tuple[str, str]]:
    """Image and engine of each; the machine itself has neither."""
    images = ["" if image == NO_IMAGE else image for image in one.images or (NO_IMAGE,)]
    return [(image, engine) for image in images for engine in (one.engines if image else ()) or ("",)]


def in_order(do: Iterable[TrialStep]) -> tuple[TrialStep, ...]:
    """Steps in the order in which they are made, each once; compiling comes before all others."""
    asked = {*do, "compile"}
    return tuple(one for one in STEPS if one in asked)
