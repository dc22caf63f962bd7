"""The grammar of a plan: which models are tried where, how, and within what limits.

As in recipes every value is text with a grammar, unknown keys are refused, and all problems are told at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from compiler import BadInputError, UsageError, read_bytes
from toolchain.recipes.check import Problems, validate
from toolchain.recipes.strict_yaml import YamlNode, read_strict

TrialStep = Literal["compile", "verify", "bench"]
STEPS: tuple[TrialStep, ...] = ("compile", "verify", "bench")
Precision = Literal["f32", "tf32x3", "tf32", "f16", "bf16"]
Weights = Literal["random", "trained"]
NO_IMAGE = "none"

Pattern = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9*?\[][A-Za-z0-9*?\[\]!._+-]*$", max_length=100)
]
File = Annotated[str, StringConstraints(pattern=r"^[^-\x00-\x1f\x7f][^\x00-\x1f\x7f]*$", max_length=400)]
TargetName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]*$", max_length=40)]
ArchList = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,+-]*$", max_length=200)]
Selector = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 :._+()-]*$", max_length=100)]
ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*$", max_length=200)]
EngineUrl = Annotated[str, StringConstraints(pattern=r"^[a-z]+://[A-Za-z0-9@._~:/\[\]-]+$", max_length=300)]
Size = Annotated[int, BeforeValidator(lambda value: read_bytes(str(value))), Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]
ThreadCount = Annotated[int, Field(ge=1, le=4096)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelsPlan(_Part):
    """Which models: everything named by any of the lists, without what `without` names.

    networks: names of `tk zoo list`, or patterns of them. families: whole ones. weights: `random` (the
    network as `tk zoo make` writes it), `trained` (every revision of the ONNX model zoo, downloaded).
    revisions: trained models by their own names. files: ONNX files, folders of them, patterns; relative to
    the plan. most_gflop: leaves out networks that compute more in one inference.
    """

    networks: tuple[Pattern, ...] = ()
    families: tuple[Pattern, ...] = ()
    weights: Annotated[tuple[Weights, ...], Field(min_length=1)] = ("random",)
    revisions: tuple[Pattern, ...] = ()
    files: tuple[File, ...] = ()
    without: tuple[Pattern, ...] = ()
    most_gflop: Annotated[float, Field(gt=0)] | None = None


class TrialLimits(_Part):
    """What each step of a trial may take.

    seconds: of wall time. memory: bytes that its processes hold together. disk: bytes in the folder of the
    trial, with the library and temporary files; in a container what the step has written there.
    """

    seconds: Seconds = 1800.0
    memory: Size | None = None
    disk: Size | None = None


class TargetPlan(_Part):
    """One target: each of its archs, devices, images and engines makes a column of trials of its own.

    archs: what `--arch` takes; none: the device's or the target's. devices: what `--device` takes; none: the
    first that fits. images: of `tk image list`; `none` is this machine itself. engines: addresses of
    container engines, for images. workers: keys of devices, each tried on a worker of the cluster that
    has the resource `device:KEY`. The others are as in the plan itself and count in its place.
    """

    target: TargetName
    archs: tuple[ArchList, ...] = ()
    devices: tuple[Selector, ...] = ()
    images: tuple[ImageName, ...] = ()
    engines: tuple[EngineUrl, ...] = ()
    workers: tuple[Selector, ...] = ()
    do: tuple[TrialStep, ...] = ()
    threads: tuple[ThreadCount, ...] = ()
    precisions: tuple[Precision, ...] = ()
    limits: TrialLimits | None = None
    most_gflop: Annotated[float, Field(gt=0)] | None = None


class BenchPlan(_Part):
    """How long is measured, and how long is warmed up before."""

    seconds: Seconds = 3.0
    warmup: Annotated[float, Field(ge=0)] = 0.5


class MatrixPlan(_Part):
    """A whole plan. Without targets: all that this machine can compile for.

    runs: what `tk verify --runs` takes. scheduler: address of a Dask cluster's, for targets with workers.
    """

    title: Annotated[str, StringConstraints(max_length=200)] = ""
    models: ModelsPlan = ModelsPlan(networks=("*",), without=("perceptron-2gb",))
    targets: tuple[TargetPlan, ...] = ()
    do: Annotated[tuple[TrialStep, ...], Field(min_length=1)] = ("compile", "verify")
    threads: tuple[ThreadCount, ...] = ()
    precisions: Annotated[tuple[Precision, ...], Field(min_length=1)] = ("f32",)
    limits: TrialLimits = TrialLimits()
    runs: Annotated[int, Field(ge=1, le=1000)] | None = None
    bench: BenchPlan = BenchPlan()
    scheduler: EngineUrl | Literal[""] = ""


_OPTIONS = {
    "networks": "--network", "models": "--network", "families": "--family", "revisions": "--revision",
    "files": "--file", "targets": "--target", "archs": "--target", "target": "--target",
    "engines": "--docker-host", "workers": "--worker", "bench": "--bench-seconds",
}  # fmt: skip
"""The option that gives a field without a file."""


@dataclass(frozen=True, slots=True)
class PlanSource:
    """Where a plan comes from: a file, whose lines problems name, or the command line.

    given: fields of the plan that the command line gave in place of the file.
    """

    path: Path | None = None
    node: YamlNode | None = None
    given: frozenset[str] = frozenset()

    @property
    def folder(self) -> Path:
        """Where the plan's paths begin."""
        return Path() if self.path is None or "models" in self.given else self.path.parent

    def where(self, *steps: str | int) -> str:
        """The file and line of a value, or the option that gave it."""
        node = None if steps[0] in self.given else self.node
        found = node.where if node else ""
        for step in steps:
            if node is None:
                break
            node = (
                node.entries().get(step) if isinstance(step, str) else dict(enumerate(node.items())).get(step)
            )
            found = node.where if node else found
        fields = [one for one in steps if isinstance(one, str)]
        return found or _OPTIONS.get(fields[-1], f"--{fields[-1]}")


def read_plan(path: Path) -> tuple[MatrixPlan, PlanSource]:
    """A plan and where it stands; raises BadInputError with every problem and its line."""
    try:
        node = read_strict(path)
    except BadInputError as error:
        error.what = error.what.replace("a recipe", "a plan")
        raise
    problems: Problems = []
    if not node.entries():
        problems.append((node.where, "expected a mapping at the top of the file"))
        raise refused_plan(problems)
    plan = validate(MatrixPlan, node, problems, _lists(node.plain()))
    if plan is None:
        raise refused_plan(problems)
    return plan, PlanSource(path, node)


def _lists(content: dict[str, Any]) -> dict[str, Any]:
    """With targets that are written as their name alone as mappings."""
    targets = content.get("targets")
    if isinstance(targets, list):
        named = [{"target": one} if isinstance(one, str) else one for one in targets]
        return {**content, "targets": named}
    return content


def refused_plan(problems: Problems) -> BadInputError:
    """One error for everything that is wrong with a plan."""
    many = f"{len(problems)} problems" if len(problems) > 1 else "a problem"
    lines = [f"{where}: {what}" for where, what in problems] if len(problems) > 1 else [problems[0][1]]
    return BadInputError(
        f"the plan has {many}",
        where=problems[0][0],
        why="\n".join(lines[:20]),
        hint="docs/matrix.md describes every field",
    )


def changed_plan(
    plan: MatrixPlan, source: PlanSource, changes: Mapping[str, Any]
) -> tuple[MatrixPlan, PlanSource]:
    """The plan with fields that the command line gives; raises UsageError for what has not their form."""
    try:
        changed = MatrixPlan.model_validate({**plan.model_dump(), **changes})
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        fields = [str(one) for one in first["loc"] if isinstance(one, str)]
        option = next((_OPTIONS[one] for one in reversed(fields) if one in _OPTIONS), f"--{fields[-1]}")
        raise UsageError("an option has no such value", where=option, why=first["msg"]) from error
    return changed, replace(source, given=frozenset(changes))
