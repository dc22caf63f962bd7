"""`tk doctor`: whether this machine fits, and what to do where it does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import compiler
from compiler import ExitCode, counted, write_atomic
from toolchain import console, options
from toolchain.commands.image import common
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.doctor.row import Row

_MARKS = {"ok": "ok     ", "warning": "warning", "problem": "PROBLEM"}


def doctor_command(
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[IMAGE]...", help="Images that this machine should fit; default: the lock's."
        ),
    ] = None,
    capture: Annotated[
        Path | None,
        typer.Option(
            "--capture", metavar="FILE", help="Write what this machine shows of its devices, and end."
        ),
    ] = None,
    assume: Annotated[
        Path | None,
        typer.Option("--assume", metavar="FILE", help="Take the devices that --capture wrote there."),
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Measure this processor beside what the compiler takes it for, and end; exit code 1 where a "
            "fact is off by more than a third.",
        ),
    ] = False,
    engine: common.Engine = common.ANY_ENGINE,
    site: options.Site = None,
    json: options.Json = False,
) -> None:
    """Look at host, engine, accelerators, drivers, disk and configuration; exit code 4 with problems.

    Nothing is changed. Every warning and problem comes with its cause and what to do.
    """
    from toolchain.doctor.examine import run_checks, this_machine

    if capture is not None:
        options.check_file(capture, "--capture")
        _capture(capture, json=json)
        return
    if calibrate:
        _calibrate(json=json)
        return
    rows = run_checks(this_machine(images or (), engine=engine, site=site, assumed=assume))
    if json:
        console.data_json({**count(rows), "rows": rows})
    else:
        print_rows(rows)
        numbers = count(rows)
        console.talk(f"{counted(numbers['problems'], 'problem')}, {counted(numbers['warnings'], 'warning')}")
    if count(rows)["problems"]:
        raise typer.Exit(ExitCode.HOST)


def _capture(path: Path, *, json: bool) -> None:
    from toolchain.containers.host_probe import to_lines
    from toolchain.devices.sysroot import capture

    write_atomic(path, to_lines(capture()))
    if json:
        console.data_json({"captured": path})
    else:
        console.data(str(path))


def _calibrate(*, json: bool) -> None:
    with progress_bar("this processor") as progress:
        found = compiler.calibrate(progress=progress)
    if json:
        facts = [{**asdict(one), "off": one.off, "holds": one.holds} for one in found.facts]
        document = {"arch": found.arch, "microarchitecture": found.microarchitecture, "busy": found.busy}
        console.data_json({**document, "holds": found.holds, "facts": facts})
    else:
        show_calibration(found)
    if not found.holds:
        raise typer.Exit(ExitCode.DIFFERENCES)


def show_calibration(found: compiler.Calibration) -> None:
    """Print the table for people, with what is off marked; a busy machine is a warning."""
    row = found.microarchitecture or "no row: defaults of the instruction set"
    rows = [
        (one.name, one.unit, one.row, one.measured, f"{100 * one.off:.0f} %", "" if one.holds else "OFF")
        for one in found.facts
    ]
    console.data(f"{found.arch}  ({row})\n")
    console.data(console.table(("fact", "unit", "row", "measured", "off by", ""), rows))
    if found.is_busy:
        console.warn(f"this machine is busy ({found.busy:.1f} programs at once): rates may be too low")


def count(rows: Sequence[Row]) -> dict[str, int]:
    """How many problems and warnings there are."""
    states = [one.state for one in rows]
    return {"problems": states.count("problem"), "warnings": states.count("warning")}


def print_rows(rows: Sequence[Row], say: Callable[[str], None] = console.data) -> None:
    """Print rows for people: mark, subject, finding; cause and fix below."""
    width = max((len(one.about) for one in rows), default=0)
    for one in rows:
        say(f"{_MARKS[one.state]}  {one.about:<{width}}  {one.found}")
        for label, text in (("cause", one.cause), ("fix", one.fix)):
            if text and one.state != "ok":
                say(f"{'':9}{'':{width}}  {label}: {text}")
