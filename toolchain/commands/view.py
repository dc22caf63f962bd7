"""`tk view`: a compile as one HTML page, for those who would rather look."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import compiler
from toolchain import console, options
from toolchain.commands.compile import EXACT, compile_options
from toolchain.commands.place import placeable
from toolchain.progress import progress_bar

_ELSEWHERE = ("target", "dump", "stop_after", "emit", "timings", "record")
"""Options of `tk compile` that a view has otherwise, or no use for."""
_OF_A_COMPILE = "--target, --arch, --shape, --dim, --bind, --from, --precision and --tf32"


def _of_one_target(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The parameters with the target and its architecture apart; raises UsageError for several targets."""
    if not values["target"]:
        return [values]
    chosen = compiler.choose_targets(values["target"], values["arch"])
    if len(chosen) > 1:
        raise compiler.UsageError(
            "a page shows one target", where="--target", hint="call `tk view` for each of them"
        )
    ((name, arch),) = chosen
    return [{**values, "target": [name], "arch": arch}]


def _compiles(values: Mapping[str, Any]) -> bool:
    """Whether there is a model to compile: a library is shown without a toolchain, too."""
    return not (values["file"].is_file() and options.is_library(values["file"]))


@functools.partial(placeable, split=_of_one_target, compiles=_compiles)
def view_command(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An ONNX file, or a model library."), options.Role.MODEL
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to write the page; default: FILE with .html, here."
        ),
        options.Role.RESULT,
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", metavar="NAME", help="What to compile for, as `tk targets` lists it; NAME:ARCH."
        ),
    ] = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile/--no-profile", help="Measure the kernels for a short time, if they run here."
        ),
    ] = True,
    device: options.Device = None,
    seed: options.Seed = 0,
    *,
    settings: Annotated[
        compiler.CompileOptions,
        options.Depends(compile_options, without=_ELSEWHERE),
    ],
    allowance: Annotated[compiler.Allowance, options.Depends(options.allowance_of)],
    json: options.Json = False,
) -> None:
    """Show a compile as one HTML page: graph, kernels, loops, code, memory and times.

    The page is one file that loads nothing.
    """
    options.existing_file(file)
    compiler.go_on_within(allowance, str(file))
    where = output or Path(f"{file.stem}.html")
    if not json:
        _check_output(where, file)
    library = options.is_library(file)
    settings = replace(settings, target=target[0] if target else None)
    if library:
        _check_needless(settings)
    request = compiler.ViewRequest(
        path=file,
        options=None if library else settings,
        profile=profile,
        threads=settings.threads,
        device=device,
        seed=seed,
    )
    with options.naming_the_command("view", file), progress_bar(f"viewing {file.name}") as progress:
        report = compiler.view_compile(request, progress=progress)
    for warning in report.warnings:
        console.warn(warning)
    if json:
        console.data_json(report)
        return
    _write(report, where)


def _check_output(where: Path, file: Path) -> None:
    """Find out before the work what cannot be its result."""
    options.check_file(where)
    if where.exists() and where.samefile(file):
        raise compiler.UsageError(
            "the page would replace what it shows", where=f"-o {where}", hint="name another file"
        )


def _write(report: compiler.ViewReport, where: Path) -> None:
    from toolchain.pages.page import render_page
    from toolchain.view.page import view_page

    page = render_page(view_page(report))
    compiler.write_atomic(where, page)
    console.data(f"{where}  ({console.size(len(page.encode()))})")
    kernels = compiler.counted(len(report.kernels), "kernel")
    console.data(f"  {kernels} in {compiler.counted(len(report.steps), 'call')}, {_time(report)}")
    for one in report.unseen:
        console.talk(f"not in the page: {one.what}: {one.why}")


def _time(report: compiler.ViewReport) -> str:
    if report.profile is None:
        return "not measured"
    return f"{report.profile.ms:.2f} ms an inference"


def _check_needless(settings: compiler.CompileOptions) -> None:
    """A library was compiled before: how can no longer be said."""
    precision = settings.precision if settings.precision != EXACT else None
    asked = settings.target, settings.arch, settings.start_from, precision
    if any(one is not None for one in asked) or settings.shapes or settings.dims or settings.binds:
        raise compiler.UsageError(
            "a library is shown as it was compiled", where=_OF_A_COMPILE, hint="leave them out"
        )
