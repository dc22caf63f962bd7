"""`tk setup`: from an installed tk to a working shell in the team's image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import ExitCode, HostError, UsageError
from toolchain import console, options
from toolchain.commands import doctor
from toolchain.commands.image import common, run, shell, target
from toolchain.engine.choice import EngineChoice
from toolchain.images.selection import Selection

if TYPE_CHECKING:
    from toolchain.doctor.row import Row
    from toolchain.engine.build import BuiltImage
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named
    from toolchain.provision.check import Report


def setup_command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="The image to work in; default: the one in tk.lock."),
    ] = None,
    open_shell: Annotated[
        bool, typer.Option("--open", help="Open the shell at once, in place of printing its command.")
    ] = False,
    selection: common.SelectedByName = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    trust_on_first_use: options.TrustOnFirstUse = False,
    json: options.Json = False,
) -> None:
    """Check this machine, get the image (locked; found, pulled or built), check it, say how to work in it.

    The image that tk.lock names is pulled by its digest. It can be run again at any time: what is done
    already takes no time. The exit code is 4 when the machine lacks something.
    """
    if json and open_shell:
        raise UsageError("--json and --open exclude each other", where="--open", hint="drop one of them")
    chosen = name or _locked_image()
    rows = _examine(chosen, engine, selection.site)
    opened = target.connect(engine)
    named = target.planned(chosen, selection, locks=True)
    named, image = _get(opened, named, trust_first_use=trust_on_first_use)
    passed = _passes(target.checked(opened, named))
    command = _command(chosen, engine, selection)
    if json:
        facts = {"image": image, "passed": passed, "command": command}
        console.data_json({**facts, **doctor.count(rows), "rows": rows})
    elif open_shell and passed:
        container = run.request_of(selection=Selection(selection.site, additions=selection.additions))
        with run.failing():
            status = run.launch(replace(container, image=chosen, argv=shell.SHELL), engine)
        raise typer.Exit(status)
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


def _examine(name: str, engine: EngineChoice, site: Path | None) -> Sequence[Row]:
    """Look at the machine; raises HostError for what keeps the image from being used here."""
    from toolchain.doctor.examine import run_checks, this_machine

    console.talk("looking at this machine")
    rows = run_checks(this_machine([name], engine=engine, site=site))
    bad = [one for one in rows if one.state == "problem"]
    unbuilt = [one for one in rows if one.state == "warning" and not one.about.startswith("image ")]
    doctor.print_rows([*bad, *unbuilt], console.talk)
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


def _passes(report: Report) -> bool:
    """Whether a check found nothing; says what it found."""
    for one in report.smoke:
        if one.verdict == "FAILED":
            console.warn(f"{one.name} fails: {one.said}")
    for other in report.differences:
        console.warn(f"{other.kind}: {other.what} {other.name} differs from the lock")
    return report.passed


def _command(name: str, engine: EngineChoice, selection: Selection) -> str:
    import shlex

    given = (("--docker-host", engine.docker_host), ("--engine", engine.kind), ("--site", selection.site))
    words = [word for option, value in given if value for word in (option, str(value))]
    added = selection.additions.words if selection.additions else ()
    return shlex.join(["tk", "image", "shell", name, *added, *words])
