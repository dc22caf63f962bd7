"""`tk verify`: the library against a reference implementation of the same model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.place import placeable
from toolchain.progress import progress_bar


@placeable
def verify_command(
    library: options.Library,
    model: Annotated[
        Path,
        typer.Option("--model", metavar="MODEL", help="The ONNX file it was made from."),
        options.Role.MODEL,
    ],
    inputs: options.Input = None,
    bind: options.Bind = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    device: options.Device = None,
    shape: options.RunShape = None,
    dim: options.RunDim = None,
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            min=1,
            max=1000,
            help="Runs, each with inputs of its own; default: 2, or 3 where sizes have a range.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", metavar="X", help="Largest error as a part of an output's scale."),
    ] = None,
    reference: Annotated[
        str,
        typer.Option(
            "--reference", metavar="NAME", help="auto, onnxruntime or onnx (its reference evaluator)."
        ),
    ] = "auto",
    layers: Annotated[
        bool,
        typer.Option("--layers", help="Compare intermediate values too, to find the first that differs."),
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", metavar="SECONDS", help="Give up after this time.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare a compiled model's outputs with a reference.

    The exit code is 6 when they differ by more than the tolerance and 7 when the library crashes.
    """
    request = compiler.VerifyRequest(
        library=options.existing_file(library),
        model=options.existing_file(model),
        inputs=tuple(inputs or ()),
        binds=options.pairs("--bind", bind, options.read_value),
        seed=seed,
        threads=threads,
        runs=runs,
        tolerance=tolerance,
        reference=reference,
        layers=layers,
        device=device,
        dims=options.pairs("--dim", dim, options.read_extent),
        shapes=options.pairs("--shape", shape, options.read_dims),
    )
    with progress_bar(f"verifying {library.name}") as progress:
        report = compiler.verify_library(request, timeout=timeout, progress=progress)
    for note in report.notes:
        console.talk(f"note: {note}")
    if json:
        console.data_json({"passed": report.passed, **console.jsonable(report)})
    else:
        _show(report)
    if not report.passed:
        raise typer.Exit(compiler.ExitCode.WRONG_RESULT)


def _show(report: compiler.VerifyReport) -> None:
    if report.layers:
        console.data(_comparisons("value", report.layers))
        first = next((one.name for one in report.layers if not one.passed), None)
        console.data(f"first that differs: {first or 'none'}\n")
    console.data(_comparisons("output", report.outputs))
    if report.selections:
        console.data(
            "\noutputs differ behind operators that select by value; each from the library's own values:\n"
        )
        console.data(_comparisons("value", report.selections))
    verdict = "within tolerance" if report.passed else "NOT within tolerance"
    place = f"on {report.device}" if report.device else compiler.counted(report.threads, "thread")
    runs = compiler.counted(report.runs, "run")
    console.data(f"{verdict} of {report.reference}: {runs}, seed {report.seed}, {place}")
    if not report.passed:
        console.talk(f"hint: {_what_would_pass(report.needed)}")


def _what_would_pass(needed: float) -> str:
    """Rounded up, so that the number as shown is enough."""
    if not math.isfinite(needed):
        return "no tolerance would pass; `--layers` finds the first value that differs"
    unit = 10.0 ** (math.floor(math.log10(needed)) - 1)
    return f"`--tolerance {math.ceil(needed / unit) * unit:.2g}` would pass"


def _comparisons(kind: str, comparisons: Sequence[compiler.Comparison]) -> str:
    header = (kind, "type", "shape", "worst error", "at", "got", "expected", "tolerance", "needed", "passed")
    rows = [
        (
            one.name,
            one.dtype,
            console.shape(one.shape),
            one.max_error,
            ",".join(map(str, one.where)),
            one.actual,
            one.expected,
            one.tolerance,
            one.needed,
            one.passed,
        )
        for one in comparisons
    ]
    return console.table(header, rows)
