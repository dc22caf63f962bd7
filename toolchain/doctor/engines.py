"""The container engine: whether it answers, how images are built with it, what was left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import TkError, counted
from toolchain.doctor.row import CheckContext, Row, problem

if TYPE_CHECKING:
    from toolchain.images.named import Named


def engine(context: CheckContext) -> Iterable[Row]:
    """The engine that images are built and run with, and where its address comes from."""
    if isinstance(context.engine, TkError):
        yield _absent(context.engine)
        return
    found = context.engine
    where = "" if found.is_local else ", on another machine or in another file system"
    rootless = ", rootless" if found.is_rootless else ""
    yield Row("engine", "ok", f"{found.kind} {found.version} at {found.endpoint}{where}{rootless}")


def _absent(error: TkError) -> Row:
    """The engine's one line, `cannot use it: why; the fix`, as found, cause and fix."""
    head, _, fix = error.what.partition("; ")
    what, _, why = head.partition(": ")
    return Row("engine", "problem", what, why or error.why, fix or error.hint)


def builder(context: CheckContext) -> Iterable[Row]:
    """How images are built: with BuildKit, by podman, or by the classic builder."""
    if isinstance(context.engine, TkError):
        return
    if context.engine.kind == "podman":
        yield Row("builder", "ok", "podman builds by itself")
        return
    from toolchain.engine.builders import find_buildkit

    client, reasons = find_buildkit(context.settings)
    if client is not None:
        yield Row("builder", "ok", f"BuildKit through {client.program} ({client.version})")
    else:
        yield Row(
            "builder",
            "warning",
            "no client that can build with BuildKit: images are built by the classic builder, more slowly",
            "; ".join(reasons),
            "install docker-buildx-plugin (Docker's repository) or docker.io (Debian)",
        )


def podman(context: CheckContext) -> Iterable[Row]:
    """Podman beside Docker."""
    path = context.which("podman")
    if path is not None:
        yield Row("podman", "ok", f"{context.version_of(path)}; chosen with --engine podman")


def leftovers(context: CheckContext) -> Iterable[Row]:
    """Containers of runs that were killed."""
    if isinstance(context.engine, TkError):
        return
    from toolchain.engine.store import abandoned_containers

    if left := abandoned_containers(context.engine):
        yield Row(
            "leftovers",
            "warning",
            f"{counted(len(left), 'container')} of runs that were killed: {', '.join(left[:3])}",
            "their tk was killed before it could remove them",
            "the next `tk image run` or `tk image prune` removes them",
        )


def images(context: CheckContext) -> Iterable[Row]:
    """Chosen images: whether their names stand for something, and whether the engine has them."""
    for name, named in context.images:
        if isinstance(named, TkError):
            yield problem(f"image {name}", named)
            continue
        for warning in named.warnings:
            yield Row(
                f"image {name}", "warning", warning, "a rule of the recipes", f"see `tk image why {name}`"
            )
        yield from _presence(context, name, named)


def _presence(context: CheckContext, name: str, named: Named) -> Iterable[Row]:
    """Whether the engine has the image, as its recipe is now or at least on a stand-in base."""
    from toolchain.provision.present import find_present

    if isinstance(context.engine, TkError):
        return
    try:
        there = find_present(context.engine, named)
    except TkError as error:
        yield problem(f"image {name}", error)
        return
    fix = f"`tk image build {name}`, or `tk setup {name}`"
    if there is None:
        yield Row(f"image {name}", "warning", f"{named.plan.reference} is not built", "", fix)
    elif there.is_current:
        yield Row(f"image {name}", "ok", there.note or f"{there.reference} is built")
    else:
        yield Row(f"image {name}", "warning", there.note, "", fix)


def engine_folder(context: CheckContext) -> Path | None:
    """Where an engine of this machine keeps its images."""
    if isinstance(context.engine, TkError) or not context.engine.is_local:
        return None
    with contextlib.suppress(TkError):
        folder = context.engine.info.get("DockerRootDir")
        return Path(str(folder)) if folder else None
    return None
