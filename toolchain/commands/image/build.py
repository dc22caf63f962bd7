"""`tk image build`: from a recipe to an image on an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from compiler import ExitCode, HostError, TkError, UsageError, did_you_mean
from toolchain import console, options
from toolchain.commands.image import common, parallel, target
from toolchain.engine.choice import AS_EVER, BUILDERS, BuildOptions, EngineChoice

if TYPE_CHECKING:
    from toolchain.engine.build import BuiltImage
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named
    from toolchain.images.plan import Plan
    from toolchain.provision.publish import Registry

T = TypeVar("T")
_NETWORKS = ("default", "none", "host")


def build_options(
    builder: Annotated[
        str,
        typer.Option("--builder", metavar="NAME", help="auto, buildkit, or classic (without BuildKit)."),
    ] = "auto",
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Run every step, also when the image is there.")
    ] = False,
    cache_from: Annotated[
        list[str] | None,
        typer.Option("--cache-from", metavar="SOURCE", help="Docker's: an image or cache; repeatable."),
    ] = None,
    cache_to: Annotated[
        list[str] | None,
        typer.Option("--cache-to", metavar="TARGET", help="Docker's: where the cache goes; repeatable."),
    ] = None,
    network: Annotated[
        str, typer.Option("--network", metavar="NAME", help="Of every step: default, none or host.")
    ] = "default",
) -> BuildOptions:
    """How images are built."""
    caches = tuple(cache_from or ()), tuple(cache_to or ())
    chosen, net = _one_of("builder", builder, BUILDERS), _one_of("network", network, _NETWORKS)
    return BuildOptions(chosen, no_cache, *caches, network="" if net == "default" else net)


def _one_of(what: str, name: str, known: Sequence[T]) -> T:
    """The one of `known` that is called so; raises UsageError."""
    for one in known:
        if one == name:
            return one
    hint = did_you_mean(name, map(str, known)) or ", ".join(map(str, known))
    raise UsageError(f"no {what} is called `{name}`", where=f"--{what}", hint=hint)


def build_command(
    context: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Images; see `tk image list`.", show_default=False)
    ],
    selection: common.Selected = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    trust_on_first_use: options.TrustOnFirstUse = False,
    how: Annotated[BuildOptions, options.Depends(build_options)] = AS_EVER,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Images at a time; default: as many as the engine's memory allows.",
        ),
    ] = None,
    push: Annotated[bool, typer.Option("--push", help="Push it then, as `tk image push` does.")] = False,
    registry: target.Registry = None,
    private: target.Private = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Build images, components first; at once when nothing has changed.

    What no lock pins is locked first: in the project's tk.lock, or in your own outside of a project. An image
    that the lock names is pulled by its digest instead, and checked, when it is of the same plan. Its
    reference goes to standard output. Of several images all are tried, even if one fails; what two of them
    need is built once. The exit code is 5 when a step of a build fails.
    """
    from toolchain.provision.publish import refuse_unredistributable

    names = list(dict.fromkeys(names))
    images = target.planned_all(names, selection, locks=not dry_run)
    if dry_run:
        _show_intent(_engine_if_any(engine), images, json=json)
        return
    opened = target.connect(engine)
    where = target.push_target(images[0].site, registry, private=private) if push else None
    work = _Work(opened, how, trust_on_first_use, where)
    if where is not None:  # what may not be pushed is said before hours of building
        refuse_unredistributable([one.plan for one in images], where)
    count = min(len(images), jobs or parallel.fitting_jobs(opened))
    tried: dict[str, parallel.Document] = {}
    if count > 1:
        tried = parallel.build_parallel(context, names, count)
        images = target.planned_all([one for one in names if "error" not in tried[one]], selection)
        work = replace(work, options=replace(how, no_cache=False))  # every step was run now
    _build_all(names, images, work, tried, json=json)


@dataclass(frozen=True, slots=True)
class _Work:
    """How images are built, and where they are pushed then, if anywhere."""

    engine: Engine
    options: BuildOptions
    trust_first_use: bool
    registry: Registry | None


def _build_all(
    names: Sequence[str],
    images: Sequence[Named],
    work: _Work,
    tried: Mapping[str, parallel.Document],
    *,
    json: bool,
) -> None:
    """Build one image after the other; of several, what stops one is shown, and the rest goes on.

    tried: what came of those that were built in processes of their own; `images` lacks those that failed.
    """
    left = iter(images)
    documents = []
    for name in names:
        document = tried.get(name, {})
        if "error" not in document:  # how it came is known to the process that built it
            document = {**_build_one(name, next(left), work, alone=len(names) == 1, json=json), **document}
        documents.append(document)
    if json:
        console.data_json(documents[0] if len(names) == 1 else {"images": documents})
    codes = [one["exit_code"] for one in documents if "error" in one]
    if codes:
        console.talk(f"{len(codes)} of {len(names)} images failed")
        raise typer.Exit(codes[0])


def _build_one(name: str, named: Named, work: _Work, *, alone: bool, json: bool) -> parallel.Document:
    """Build one image; its document, or that of its error where others are to be built, too."""
    try:
        return _build(named, work, json=json)
    except TkError as error:
        if alone or error.code == ExitCode.INTERNAL:
            raise
        console.show_error(error)
        return console.failed_document(name, error)


def _build(named: Named, work: _Work, *, json: bool) -> parallel.Document:
    """Build one image, push it where that is asked for, and show it; its document."""
    from toolchain.commands.image.push import push_named
    from toolchain.provision.obtain import obtain

    made = obtain(
        work.engine,
        named,
        trust_first_use=work.trust_first_use,
        options=work.options,
    )
    if not json:
        _show(made.image)
    built: parallel.Document = console.jsonable(made.image)
    if work.registry is None:
        return built
    pushed = push_named(work.engine, made.named, work.registry)
    if not json:
        console.data(f"{pushed.reference}@{pushed.digest}")
    return {**built, "pushed": pushed}


def _show(result: BuiltImage) -> None:
    for one in (*result.needs, result):
        if one.note:
            console.warn(one.note)
    mark = f", stand-in for its base: {result.stand_in}" if result.stand_in else ""
    console.talk(f"{result.reference}: {result.how} in {result.seconds:.1f} s{mark}")
    if result.log is not None:
        console.talk(f"log: {result.log}")
    console.data(result.reference)


def _engine_if_any(choice: EngineChoice) -> Engine | None:
    """The engine; without one a dry run says what it can."""
    try:
        return target.connect(choice)
    except HostError as error:
        console.warn(str(error))
        return None


def _show_intent(engine: Engine | None, images: Sequence[Named], *, json: bool) -> None:
    from toolchain.engine.builders import find_buildkit

    client, reasons = find_buildkit()
    is_podman = engine is not None and engine.kind == "podman"
    with_what = "podman" if is_podman else f"{client.program}" if client else "classic builder"
    plans = {one.reference: one for named in images for one in _in_order(named.plan)}
    rows = [
        {
            "reference": one.reference,
            "name": one.name,
            "base": one.base.pinned,
            "state": _state(engine, one),
            "unresolved": [missing.what for missing in one.unresolved()],
        }
        for one in plans.values()
    ]
    if json:
        facts = dict.fromkeys(("engine", "kind", "version"))
        if engine is not None:
            facts = {"engine": str(engine.endpoint), "kind": engine.kind, "version": engine.version}
        console.data_json({**facts, "builder": with_what, "not_used": reasons, "images": rows})
        return
    if engine is not None:
        console.talk(f"{engine.kind} {engine.version} at {engine.endpoint}, builds with {with_what}")
    for reason in reasons:
        console.talk(f"note: {reason}")
    header = ("image", "state", "base", "unresolved")
    cells = [(one["reference"], one["state"], one["base"], len(one["unresolved"])) for one in rows]
    console.data(console.table(header, cells))


def _state(engine: Engine | None, plan: Plan) -> str:
    from toolchain.engine.store import find_image

    if engine is None:
        return "not known"
    if find_image(engine, plan):
        return "there"
    return "to be pulled" if plan.published.digest else "to be built"


def _in_order(plan: Plan) -> Iterator[Plan]:
    for need in plan.needs:
        yield from _in_order(need)
    yield plan
