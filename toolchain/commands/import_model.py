"""`tk import`: models of PyTorch and TensorFlow Lite to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import compiler
from compiler import ExampleInput, UsageError
from toolchain import console, options
from toolchain.importing import ImportReport, plan_import, run_import
from toolchain.progress import progress_bar


def import_model_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A program of torch.export (.pt2), a TorchScript program (.pt), a TensorFlow Lite model.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where to write; default: FILE with .onnx, here."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="NAME=1,3,224,224",
            help="TorchScript: an input that the program is traced with, in their order; repeatable.",
        ),
    ] = None,
    integer: Annotated[
        list[str] | None,
        typer.Option(
            "--integer",
            metavar="NAME",
            help="TorchScript: this input takes integers, such as tokens; repeatable.",
        ),
    ] = None,
    free: Annotated[
        list[str] | None,
        typer.Option(
            "--free",
            metavar="NAME=AXIS:SYMBOL",
            help="TorchScript: dimensions that stay free, as `x=0:batch,2:height`; repeatable.",
        ),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option("--opset", metavar="N", min=1, max=99, help="Operator set; default: the exporter's."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the exporter's command; run nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Export a model of PyTorch or TensorFlow Lite to ONNX, by its own exporter.

    A program of torch.export or TorchScript is exported by PyTorch (pip install 'tk-toolchain[import]'), a
    TensorFlow Lite model by tf2onnx, where it is installed. Pickled modules are refused: to read
    them is to run the program in them.
    """
    inputs = example_inputs(shape, integer, free)
    options.existing_file(file)
    plan = plan_import(file, output, inputs, opset)
    options.check_file(plan.output)
    if dry_run:
        report = ImportReport(plan.output, plan.source, plan.kind, plan.command)
    else:
        with progress_bar(f"importing {file.name}"):
            report = run_import(plan)
    if json:
        console.data_json(report)
    else:
        console.data(plan.command if dry_run else f"{report.path}\n  next: tk compile {report.path}")


def example_inputs(
    shapes: list[str] | None, integers: list[str] | None, free: list[str] | None
) -> tuple[ExampleInput, ...]:
    """Inputs as the options say them. Raises UsageError for names without a shape."""
    found = options.pairs("--shape", shapes, options.read_dims)
    axes = options.pairs("--free", free, _axes)
    for option, names in (("--integer", integers or ()), ("--free", axes)):
        for name in names:
            if name not in found:
                raise UsageError(f"input `{name}` has no --shape", where=option)
    for name, named in axes.items():
        if named and max(named) >= len(found[name]):
            dims = compiler.counted(len(found[name]), "dimension")
            raise UsageError(f"input `{name}` has {dims}", where="--free")
    return tuple(
        ExampleInput(name, dims, name in (integers or ()), axes.get(name, {})) for name, dims in found.items()
    )


def _axes(text: str) -> dict[int, str]:
    """Read `0:batch,2:height`; raises ValueError for anything else."""
    found: dict[int, str] = {}
    for part in text.split(","):
        axis, colon, symbol = part.partition(":")
        if not colon or not axis.isdecimal() or not symbol.isidentifier():
            raise ValueError("it is AXIS:SYMBOL, such as 0:batch, with commas between several")
        found[int(axis)] = symbol
    return found
