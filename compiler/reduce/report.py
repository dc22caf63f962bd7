"""What is asked of a reduction, and what it answers, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from compiler.core.visible import visible

WRONG, CRASH, HANG, COMPILE, UNSUPPORTED, SLOW = "wrong", "crash", "hang", "compile", "unsupported", "slow"
FAULTS = (WRONG, CRASH, HANG, COMPILE, UNSUPPORTED, SLOW)
"""Kinds of faults, as `--check` names them."""
MODEL, INPUTS, README, DATA = "repro.onnx", "inputs.npz", "README.md", "repro.data"
REDUCTION_FILES = (MODEL, INPUTS, README, DATA)
"""What a reduction writes."""


@dataclass(frozen=True, slots=True)
class ReduceRequest:
    """Find the smallest model that shows the fault of `model`, and write it to the directory `output`.

    `check` is the kind of fault to look for, None for whatever there is; `command` is a program in its place,
    which gets the path of a model behind its own words. Options of the compile and of the run are as those of
    `CompileOptions` and `VerifyRequest`. `seconds` and `memory` (bytes) limit each check, `minutes` the whole
    reduction. `slower` is how many times as long as onnxruntime counts as slow. `work` is a directory that
    keeps what was found out, so that the same request goes on there.
    """

    model: Path
    output: Path
    check: str | None = None
    command: tuple[str, ...] = ()
    target: str | None = None
    arch: str | None = None
    precision: str = "f32"
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    binds: Mapping[str, object] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    seed: int = 0
    threads: int | None = None
    device: str | None = None
    tolerance: float | None = None
    reference: str = "auto"
    without: tuple[str, ...] = ()
    slower: float = 3.0
    seconds: float = 120.0
    memory: int = 8_000_000_000
    minutes: float = 30.0
    work: Path | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong: its kind; `detail` is what has to stay the same of it, `message` what was said.

    `size` is the error as a part of the output's scale for a wrong result, and the time as a multiple of
    onnxruntime's for a slow one.
    """

    kind: str
    detail: str = ""
    message: str = ""
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """What is to blame: the kind of part, its name, and how that was found out.

    `passes` are those without which the fault is gone, as far as they were left out; `decisions` those of
    schedules whose smallest option makes it go. What is not to blame may be among them, as it only shows what
    is. `rule` took the step of the schedule that is to blame, or offers the decision. `applications` say
    which application of the pass is the first wrong one, in which model. `not_run` says what was not tried,
    and why.
    """

    kind: str = "unknown"
    name: str = ""
    evidence: str = ""
    passes: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    rule: str = ""
    applications: tuple[str, ...] = ()
    not_run: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSize:
    """How large a model is: nodes, elements of its inputs, elements of its constants."""

    nodes: int
    inputs: int
    constants: int


@dataclass(frozen=True, slots=True)
class ReduceReport:
    """What a reduction found: the fault, the sizes, who is to blame, and how to see it again.

    `operators` are those left, `commands` show the fault where the output is; `complete` is false where
    time ran out before nothing more could be taken away. `checks` counts models that were tried, `known`
    those among them whose result was kept from before.
    """

    model: Path
    output: Path
    fault: Fault
    before: ModelSize
    after: ModelSize
    operators: tuple[str, ...]
    culprit: Culprit
    commands: tuple[str, ...]
    versions: Mapping[str, str]
    seconds: float
    checks: int
    known: int
    complete: bool
    notes: tuple[str, ...] = ()


def reduction_text(report: ReduceReport) -> Iterator[str]:
    """What a reduction found, as lines for people: the README beside the model."""
    before, after = report.before, report.after
    yield f"# A model reduced to its fault: {report.fault.kind}"
    yield ""
    yield f"- from: {_code(report.model.name)}"
    yield f"- fault: {_code(report.fault.message or report.fault.detail or report.fault.kind)}"
    yield f"- left: {_code(', '.join(report.operators))}"
    yield from _culprit_lines(report.culprit)
    if not report.complete:
        yield "- time ran out before nothing more could be taken away"
    yield from (f"- note: {_code(one)}" for one in report.notes)
    yield ""
    yield "| | nodes | elements of inputs | elements of constants |"
    yield "|---|---|---|---|"
    yield f"| before | {before.nodes} | {before.inputs} | {before.constants} |"
    yield f"| after | {after.nodes} | {after.inputs} | {after.constants} |"
    yield ""
    yield "To see it, in this directory:"
    yield ""
    yield from (f"    {visible(line)}" for line in report.commands)
    yield ""
    yield "Versions: " + ", ".join(f"{name} {visible(text)}" for name, text in report.versions.items())


def _culprit_lines(culprit: Culprit) -> Iterator[str]:
    name = f" {_code(culprit.name)}" if culprit.name else ""
    evidence = f": {visible(culprit.evidence)}" if culprit.evidence else ""
    yield f"- to blame: {culprit.kind}{name}{evidence}"
    if culprit.rule:
        yield f"- rule of the schedules: {_code(culprit.rule)}"
    yield from (f"- {visible(one)}" for one in culprit.applications)
    if culprit.passes:
        yield f"- gone without pass: {', '.join(map(_code, culprit.passes))}"
    if culprit.decisions:
        yield f"- gone with the smallest option of decision: {', '.join(map(_code, culprit.decisions))}"
    yield from (f"- not run: {visible(one)}" for one in culprit.not_run)


def _code(text: str) -> str:
    return "`" + visible(text).replace("`", "'") + "`"
