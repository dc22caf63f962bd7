"""`tk setup`: from an installed tk to a working shell in the team's image."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import ExitCode, HostError, UsageError
from toolchain import console, options
from toolchain.commands import doctor
from toolchain.commands.image import common, run, shell, target
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.doctor.row import Row
    from toolchain.engine.build import BuiltImage
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named
    from toolchain.recipes.additions import Additions


def setup_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The image to work in; default: the one in tk.lock."),
    ] = None,
    open_shell: Annotated[
        bool, typer.Option("--open", help="Open the shell at once, in place of printing its command.")
    ] = False,
    base: common.Base = None,
    with_apt: common.WithApt = None,
    with_pip: common.WithPip = None,
    with_file: common.WithFile = None,
    docker_host: options.DockerHost = None,
    engine: options.EngineName = None,
    site: options.Site = None,
    locked: options.Locked = False,
    frozen: options.Frozen = False,
    trust_on_first_use: options.TrustOnFirstUse = False,
    json: options.Json = False,
) -> None:
    """Check this machine, get the image (locked; found, pulled or built), check it, say how to work in it.

    The image that tk.lock names is pulled by its digest. It can be run again at any time: what is done
    already takes no time. The exit code is 4 when the machine lacks something.
    """
    from toolchain.engine.client import open_engine
    from toolchain.engine.endpoint import resolve_endpoint

    if json and open_shell:
        raise UsageError("--json and --open exclude each other", where="--open", hint="drop one of them")
    chosen = name or _locked_image()
    rows = _examine(chosen, docker_host, engine, site)
    opened = open_engine(resolve_endpoint(docker_host, kind=engine), kind=engine)
    added = common.additions(with_apt, with_pip, with_file)
    named = target.planned(
        chosen, site=site, base=base, locked=locked, frozen=frozen, additions=added, locks=True
    )
    named, image = _get(opened, named, trust_first_use=trust_on_first_use)
    passed = _check(opened, named, image)
    command = _command(chosen, docker_host, engine, site, added)
    if json:
        facts = {"image": image, "passed": passed, "command": command}
        console.data_json({**facts, **doctor.count(rows), "rows": rows})
    elif open_shell and passed:
        raise typer.Exit(_open(chosen, docker_host, engine, site, added))
    else:
        console.talk(
            f"{image.reference}: {image.how}; " + ("it works" if passed else "some of its tests FAIL")
        )
        console.talk("a shell in it, in the current folder:")
        console.data(command)
    if not passed:
        raise typer.Exit(ExitCode.DIFFERENCES)


def _locked_image() -> str:
    """The one image of the project's lock, outside of any project of the user's own; else a UsageError."""
    from toolchain.images.lock.file import read_lock
    from toolchain.images.lock.pins import lock_path, project_lock, user_lock

    path = project_lock() or user_lock()
    found = read_lock(path)
    names = sorted(found.images) if found is not None else []
    if len(names) == 1:
        return names[0]
    if not names:
        path = lock_path()
        raise UsageError(
            "which image?",
            where="tk setup",
            why=f"there is no {path}",
            hint="tk setup NAME; see `tk image list`",
        )
    raise UsageError("which image?", where=str(path), why=f"it has {', '.join(names)}", hint="tk setup NAME")


def _examine(name: str, docker_host: str | None, kind: str | None, site: Path | None) -> Sequence[Row]:
    """Look at the machine; raises HostError for what keeps the image from being used here."""
    from toolchain.doctor.examine import examine, this_machine

    console.talk("looking at this machine")
    rows = examine(this_machine([name], docker_host=docker_host, kind=kind, site=site))
    bad = [one for one in rows if one.state == "problem"]
    unbuilt = [one for one in rows if one.state == "warning" and not one.about.startswith("image ")]
    doctor.show([*bad, *unbuilt], console.talk)
    if bad:
        raise HostError(
            f"this machine is not ready for {name}",
            why="\n".join(f"{one.about}: {one.found}" for one in bad),
            hint="\n".join(one.fix for one in bad if one.fix) or "`tk doctor` shows all",
        )
    return rows


def _get(engine: Engine, named: Named, *, trust_first_use: bool) -> tuple[Named, BuiltImage]:
    from toolchain.engine.build import BuiltImage
    from toolchain.provision.obtain import obtain
    from toolchain.provision.present import find_present

    there = find_present(engine, named)
    if there is not None and there.note and there.is_current:
        console.warn(there.note)
        image = BuiltImage(
            there.reference, there.image.id, 0.0, cached=True, how="found", stand_in=there.image.stand_in
        )
        return there.named, image
    console.talk(f"getting {named.plan.section}")
    made = obtain(engine, named, trust_first_use=trust_first_use)
    if made.image.note:
        console.warn(made.image.note)
    return made.named, made.image


def _check(engine: Engine, named: Named, image: BuiltImage) -> bool:
    from toolchain.provision.check import check_image

    with progress_bar(f"checking {image.reference}"):
        report = check_image(engine, named.plan, named.pins, target.built(engine, named.plan))
    for one in report.smoke:
        if one.verdict == "FAILED":
            console.warn(f"{one.name} fails: {one.said}")
    for other in report.differences:
        console.warn(f"{other.kind}: {other.what} {other.name} differs from the lock")
    return bool(report.passed)


def _command(
    name: str, docker_host: str | None, engine: str | None, site: Path | None, added: Additions
) -> str:
    import shlex

    given = (("--docker-host", docker_host), ("--engine", engine), ("--site", site))
    words = [word for option, value in given if value for word in (option, str(value))]
    return shlex.join(["tk", "image", "shell", name, *added.words, *words])


def _open(name: str, docker_host: str | None, engine: str | None, site: Path | None, added: Additions) -> int:
    from toolchain.containers.launch import Request

    request = Request(
        image=name,
        argv=shell.SHELL,
        folder=Path.cwd(),
        site=site,
        additions=added,
        tty=os.isatty(0) and os.isatty(1),
    )
    with run.failing():
        return run.launch_or_show(request, docker_host, engine, explain=False, show=False, json=False)
