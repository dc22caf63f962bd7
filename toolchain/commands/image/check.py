"""`tk image check`: whether a built image works, and whether what was locked is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

import compiler
from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.provision.check import Report


def check_command(
    name: common.Name,
    selection: common.Selected = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Run an image's smoke tests, without root and network, and compare what is in it with the lock.

    Tests that need a device are not run, and said not to be. The exit code is 1 with findings.
    """
    from toolchain.provision.check import check_image

    connected = target.connect(engine)
    made = target.planned(name, selection)
    there = target.present(connected, made)
    with progress_bar(f"checking {there.reference}"):
        report = check_image(connected, there.named.plan, there.named.pins, there.image)
    if json:
        console.data_json({"passed": report.passed, **console.jsonable(report)})
    else:
        _show(report)
    if not report.passed:
        raise typer.Exit(compiler.ExitCode.DIFFERENCES)


def _show(report: Report) -> None:
    rows = [(one.name, one.verdict, f"{one.seconds:.1f} s", one.said) for one in report.smoke]
    console.data(console.table(("smoke test", "verdict", "time", ""), rows))
    for one in report.differences:
        expected = f", expected {one.expected}" if one.expected else ""
        console.data(f"{one.kind}: {one.what} {one.name} {one.found}{expected}")
    against = "tk.lock" if report.locked else "the recipe; there is no lock for it"
    failed = sum(one.verdict == "FAILED" for one in report.smoke)
    console.data(
        f"{report.reference}: {compiler.counted(len(report.smoke), 'smoke test')}, {failed} failed;"
        f" {compiler.counted(report.packages, 'package')},"
        f" {len(report.differences)} differ from {against}"
    )
