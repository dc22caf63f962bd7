"""`tk image render`: what would be built, as text, and the same for other tools."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.engine.choice import EngineChoice

if TYPE_CHECKING:
    from toolchain.devices.options import RunOption
    from toolchain.images.named import Named
    from toolchain.images.plan import ContextFile, Plan


class RenderFormat(StrEnum):
    """What `tk image render` writes."""

    DOCKERFILE = "dockerfile"
    BAKE = "bake"
    COMPOSE = "compose"
    DEVCONTAINER = "devcontainer"
    APPTAINER = "apptainer"


_WITH_CONTEXT = (RenderFormat.DOCKERFILE, RenderFormat.BAKE, RenderFormat.COMPOSE)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What was asked for beside the image: the format, and what only some formats have."""

    format: RenderFormat = RenderFormat.DOCKERFILE
    digest: str = ""
    features: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for given, option, wanted in (
            (self.features, "--feature", RenderFormat.DEVCONTAINER),
            (self.extensions, "--extension", RenderFormat.DEVCONTAINER),
            (self.digest, "--digest", RenderFormat.APPTAINER),
        ):
            if given and self.format is not wanted:
                raise compiler.UsageError(
                    f"{option} has no use here", where=option, hint=f"it goes with --format {wanted}"
                )


_WISHES = _Wishes()


def rendering(
    format: Annotated[  # noqa: A002 - the option's name
        RenderFormat, typer.Option("--format", help="For which tool.")
    ] = RenderFormat.DOCKERFILE,
    digest: Annotated[
        str,
        typer.Option("--digest", metavar="REF@sha256:...", help="The built image in a registry (apptainer)."),
    ] = "",
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature", metavar="REF", help="A feature put on top of the image (devcontainer); repeatable."
        ),
    ] = None,
    extension: Annotated[
        list[str] | None,
        typer.Option(
            "--extension", metavar="ID", help="An extension of the editor's (devcontainer); repeatable."
        ),
    ] = None,
) -> _Wishes:
    """What is rendered."""
    return _Wishes(format, digest, tuple(feature or ()), tuple(extension or ()))


def render_command(
    name: common.Name,
    wishes: Annotated[_Wishes, options.Depends(rendering)] = _WISHES,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Write everything that a build reads into this folder."
        ),
    ] = None,
    allow_unresolved: Annotated[
        bool,
        typer.Option("--allow-unresolved", help="Write files also while something in them is not locked."),
    ] = False,
    selection: common.SelectedUnlocked = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
) -> None:
    """Show the Dockerfile of an image, or the file of another tool; with -o everything that a build reads.

    What builds an image or names it is refused (exit code 3) while downloads or commits in it are not locked:
    such files could not be built. A Dockerfile that is only shown says so instead.
    """
    if output is not None:
        options.check_folder(output)
    named = target.planned(name, selection)
    if wishes.format is RenderFormat.APPTAINER:
        wishes = replace(wishes, digest=wishes.digest or _digest(named, engine))
    else:
        shown_only = wishes.format is RenderFormat.DOCKERFILE and output is None
        _check_resolved(named.plan, shown=shown_only, allowed=allow_unresolved)
    main = _main_file(named.plan, wishes)
    if output is None:
        console.data(main.data.decode().rstrip("\n"))
        _tell_needs(named.plan, wishes.format)
        return
    files = _contexts(named.plan) if wishes.format in _WITH_CONTEXT else ()
    for file in {one.path: one for one in (*files, main)}.values():
        compiler.write_atomic(output / file.path, file.data, mode=file.mode)
    console.talk(
        f"wrote {main.path} and what it needs to {output}" if files else f"wrote {output / main.path}"
    )
    _tell_order(named.plan, wishes.format, output)


def _check_resolved(plan: Plan, *, shown: bool, allowed: bool) -> None:
    """Refuse what could not be built, or say so when that is asked for."""
    missing = plan.unresolved()
    if not missing:
        return
    if shown or allowed:
        listed = ", ".join(one.what for one in missing)
        console.warn(f"not locked yet, so it cannot be built: {listed}; {missing[0].hint}")
        return
    raise compiler.BadInputError(
        f"{plan.section} is not locked: what would be written could not be built",
        why="\n".join(one.what for one in missing),
        hint=f"{missing[0].hint}; --allow-unresolved writes it as it is",
    )


def _main_file(plan: Plan, wishes: _Wishes) -> ContextFile:
    from toolchain.images import formats
    from toolchain.images.plan import ContextFile
    from toolchain.images.render import dockerfile

    if wishes.format is RenderFormat.DOCKERFILE:
        return ContextFile("Dockerfile", dockerfile(plan).encode())
    if wishes.format is RenderFormat.BAKE:
        return ContextFile(formats.bake.FILE, formats.bake.bake(plan).encode())
    if wishes.format is RenderFormat.APPTAINER:
        return ContextFile(formats.apptainer.FILE, formats.apptainer.apptainer(plan, wishes.digest).encode())
    chosen = _run_options(plan)
    if wishes.format is RenderFormat.COMPOSE:
        return ContextFile(formats.compose.FILE, formats.compose.compose(plan, chosen).encode())
    text = formats.devcontainer.devcontainer(
        plan, chosen, features=wishes.features, extensions=wishes.extensions
    )
    return ContextFile(formats.devcontainer.FILE, text.encode())


def _contexts(plan: Plan) -> tuple[ContextFile, ...]:
    """The build context, and those of the components in folders that the image's own build ignores."""
    import dataclasses

    from toolchain.images.formats.bake import every_need, folder_of
    from toolchain.images.plan import ContextFile
    from toolchain.images.render import context

    needs = every_need(plan)
    nested = [
        dataclasses.replace(file, path=f"{folder_of(need)}/{file.path}")
        for need in needs
        for file in context(need)
    ]
    ignored = (ContextFile(".dockerignore", b"needs\n"),) if needs else ()
    return (*context(plan), *nested, *ignored)


def _run_options(plan: Plan) -> tuple[RunOption, ...]:
    """What a container needs on this machine; without the accelerators when it has none that can be used."""
    from toolchain.devices.detect import detect
    from toolchain.devices.host_facts import EngineFacts, this_caller
    from toolchain.devices.privileges import PRODUCTS, base_options, run_options
    from toolchain.devices.sysroot import capture

    engine, caller = EngineFacts("docker", runtimes=("nvidia",)), this_caller()
    chosen = base_options(engine, caller)
    vendor = next((one for one in PRODUCTS if plan.resolution and one == plan.resolution.vendor), None)
    if vendor is None:
        return chosen
    try:
        return (*chosen, *run_options(detect(capture()), vendor, engine, caller))
    except compiler.HostError as error:
        console.warn(f"{error.what}; the file is without them: {'; '.join(error.why.splitlines())}")
        return chosen


def _digest(named: Named, engine: EngineChoice) -> str:
    """How a registry that the engine knows calls the built image; empty when none does."""
    facts = target.connect(engine).image(named.plan.reference) or {}
    known = [str(one) for one in facts.get("RepoDigests") or ()]
    own = [one for one in known if named.site.registry and one.startswith(f"{named.site.registry}/")]
    return next(iter((*own, *known)), "")


def _tell_needs(plan: Plan, format: RenderFormat) -> None:  # noqa: A002
    if plan.needs and format is RenderFormat.DOCKERFILE:
        names = ", ".join(one.reference for one in plan.needs)
        console.talk(f"it copies from {names}: -o writes their build contexts, too")


def _tell_order(plan: Plan, format: RenderFormat, output: Path) -> None:  # noqa: A002
    """How the folder is built: a Dockerfile and a Compose file find components among the engine's images."""
    from toolchain.images.formats.bake import every_need, folder_of

    if format in (RenderFormat.DOCKERFILE, RenderFormat.COMPOSE):
        for need in every_need(plan):
            console.talk(f"first: docker build -t {need.reference} {output / folder_of(need)}")
    if format is RenderFormat.DOCKERFILE:
        console.talk(f"build it with: docker build -t {plan.reference} {output}")
