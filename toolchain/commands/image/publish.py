"""`tk image publish`: build, check and push images, and write down how far each of them got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from compiler import ExitCode, TkError
from toolchain import console, options
from toolchain.commands.image import common, push, target

if TYPE_CHECKING:
    from toolchain.engine.build import BuiltImage
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named
    from toolchain.provision.check import Report
    from toolchain.provision.publish import Registry
    from toolchain.recipes.evidence import Evidence, State

# What the whole command ends with when images fail for several reasons: the first of these.
_WORST = (ExitCode.BUILD, ExitCode.HOST, ExitCode.BAD_INPUT, ExitCode.USAGE, ExitCode.DIFFERENCES)
_SHOWN_COLUMNS = ("image", "build", "check", "push", "")
Step = Literal["done", "FAILED", "-"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How far one image got; `how` says how it came, `problem` why it got no further."""

    name: str
    reference: str
    build: Step = "-"
    check: Step = "-"
    push: Step = "-"
    how: str = ""
    digest: str = ""
    components: tuple[str, ...] = ()
    code: int = 0
    problem: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Work:
    """What is the same for all images of a call."""

    engine: Engine
    registry: Registry
    evidence: Path
    named_archs: bool
    trust: bool
    outcomes: list[Outcome] = field(default_factory=list)


def publish_command(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Images; see `tk image list`.", show_default=False)
    ],
    registry: target.Registry = None,
    private: target.Private = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence", metavar="FILE", help="Where it is written; default: evidence.json beside tk.lock."
        ),
    ] = None,
    selection: common.Selected = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    trust_on_first_use: options.TrustOnFirstUse = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; no engine is asked.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Lock, build, check and push images, components first, and write evidence of how far each got.

    An image that the registry has already is pulled in place of built. All are tried, even if one fails; one
    whose tests fail is not pushed. The exit code is 5 when a build failed, else 1 when a check found
    something. What may not be redistributed goes to a registry that is said to be private only: exit code 3,
    before anything is built. What is built on a stand-in base is no evidence.
    """
    from toolchain.provision.publish import refuse_unredistributable
    from toolchain.recipes.evidence import FILE, load_evidence
    from toolchain.site import project_directory

    options.check_file(evidence, "--evidence")
    images = target.planned_all(names, selection)
    where = target.push_target(images[0].site, registry, private=private)
    refuse_unredistributable([one.plan for one in images], where)
    record = evidence or project_directory() / FILE
    load_evidence(record)
    if dry_run:
        _show_intent(images, where, record, json=json)
        return
    work = _Work(target.connect(engine), where, record, bool(selection.archs), trust_on_first_use)
    for one in images:
        work.outcomes.append(_publish(one, work))
    _show(work, json=json)
    codes = {one.code for one in work.outcomes} - {0}
    if codes:
        raise typer.Exit(next((one for one in _WORST if one in codes), max(codes)))


def _publish(made: Named, work: _Work) -> Outcome:
    """Take one image as far as it goes; what stops it is shown, and is in the outcome."""
    outcome = Outcome(made.plan.section, made.plan.reference)
    try:
        made, image = _build(made, work)
        outcome = replace(outcome, reference=image.reference, build="done", how=image.how)
        report = target.checked(work.engine, made)
        if not report.passed:
            problem = _findings(report)
            console.warn(f"{outcome.name} is not pushed: {'; '.join(problem)}")
            return replace(outcome, check="FAILED", code=ExitCode.DIFFERENCES, problem=problem)
        outcome = _noted(replace(outcome, check="done"), made, work, "built")
        pushed = push.push_named(work.engine, made, work.registry)
        components = tuple(f"{one.reference}@{one.digest}" for one in pushed.components)
        outcome = replace(
            outcome, push="done", reference=pushed.reference, digest=pushed.digest, components=components
        )
        return _noted(outcome, made, work, "published")
    except TkError as error:
        if error.code == ExitCode.INTERNAL:
            raise
        console.show_error(error)
        return _stopped(outcome, error)


def _stopped(outcome: Outcome, error: TkError) -> Outcome:
    """The outcome with the step that comes next as the one that failed."""
    failed = replace(outcome, code=error.code, problem=tuple(error.lines()))
    if outcome.build == "-":
        return replace(failed, build="FAILED")
    return replace(failed, check="FAILED") if outcome.check == "-" else replace(failed, push="FAILED")


def _build(made: Named, work: _Work) -> tuple[Named, BuiltImage]:
    """Lock; find, pull from the registry that it goes to, or build."""
    from toolchain.provision.obtain import obtain

    site = replace(made.site, registry=work.registry.address)
    done = obtain(work.engine, replace(made, site=site), trust_first_use=work.trust)
    if done.image.note:
        console.warn(done.image.note)
    return done.named, done.image


def _findings(report: Report) -> tuple[str, ...]:
    failed = (f"{one.name}: {one.said}" for one in report.smoke if one.verdict == "FAILED")
    differing = (f"{one.kind}: {one.what} {one.name} {one.found}" for one in report.differences)
    return (*failed, *differing)


def _noted(outcome: Outcome, made: Named, work: _Work, state: State) -> Outcome:
    """Write evidence of what was reached; an image on a stand-in base is none."""
    from toolchain.recipes.evidence import record_evidence

    found = _evidence(outcome, made, work, state)
    if found is None:
        return outcome
    record_evidence([found], work.evidence)
    return replace(outcome, evidence=(*outcome.evidence, state))


def _evidence(outcome: Outcome, made: Named, work: _Work, state: State) -> Evidence | None:
    from toolchain.recipes.evidence import Evidence

    plan = made.plan
    if plan.resolution is None or plan.base.stand_in:
        return None
    name = (
        plan.section if work.named_archs or "@" in plan.resolution.asked else plan.section.partition("@")[0]
    )
    by = f"tk image publish, {work.engine.kind} {work.engine.version}: {outcome.how}"
    image = f"{outcome.reference}@{outcome.digest}" if outcome.digest else ""
    return Evidence(name, state, plan.resolution.recipe_hash, by, plan.key, image)


def _show_intent(images: Sequence[Named], where: Registry, record: Path, *, json: bool) -> None:
    from toolchain.engine.store import registry_reference
    from toolchain.recipes.licences import parts_of

    rows = [
        {
            "name": one.plan.section,
            "reference": registry_reference(where.address, one.plan),
            "components": [registry_reference(where.address, need) for need in one.plan.needs],
            "licences": {part.name: part.terms for part in parts_of(one.plan.resolution)}
            if one.plan.resolution
            else {},
        }
        for one in images
    ]
    if json:
        console.data_json({"registry": where, "evidence": record, "images": rows})
        return
    open_to = "those whom its owner lets in" if where.private else "everybody"
    console.talk(f"to {where.address}, open to {open_to}; evidence: {record}")
    cells = [(one["name"], one["reference"], len(one["components"])) for one in rows]
    console.data(console.table(("image", "would be pushed as", "components"), cells))


def _show(work: _Work, *, json: bool) -> None:
    if json:
        console.data_json({"evidence": work.evidence, "images": work.outcomes})
        return
    rows = [
        (
            one.name,
            one.build,
            one.check,
            one.push,
            f"{one.reference}@{one.digest}" if one.digest else _why(one),
        )
        for one in work.outcomes
    ]
    console.data(console.table(_SHOWN_COLUMNS, rows))
    if any(one.evidence for one in work.outcomes):
        console.talk(f"evidence: {work.evidence}")


def _why(outcome: Outcome) -> str:
    return outcome.problem[0].removeprefix("error: ") if outcome.problem else ""
