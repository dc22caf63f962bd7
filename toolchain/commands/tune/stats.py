"""`tk tune stats`: what is known of a model's kernels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.compile import compile_options
from toolchain.commands.tune import common

_ELSEWHERE = (
    "target", "dump", "stop_after", "start_from", "emit", "timings", "record", "without", "limit",
    "conservative", "trust",
)  # fmt: skip
_KINDS = {"hit": "tuned", "near": "near hit", "miss": "not tuned"}


def tuning_stats_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file.")],
    target: Annotated[
        str | None, typer.Option("--target", metavar="NAME", help="As for `tk compile`; NAME:ARCH.")
    ] = None,
    *,
    settings: Annotated[compiler.CompileOptions, options.Depends(compile_options, without=_ELSEWHERE)],
    json: options.Json = False,
) -> None:
    """Say for each kernel of a model whether it is tuned, and what that gains.

    A near hit is a record of the same work that was measured under other circumstances, which are named
    (device, compiler, flags, threads and so on; program: this tk makes another kernel of its decisions).
    `tk compile --trust` takes it. Times are those of one call, as they were measured.
    """
    common.database_path(None)
    options.existing_file(model)
    asked = replace(settings, output=Path(model.stem + ".so"), target=target)
    with options.naming_the_command("tune stats", model):
        stats = compiler.tuning_stats(model, asked)
    for warning in stats.warnings:
        console.warn(warning)
    if json:
        console.data_json(stats)
        return
    rows = [
        (
            one.name,
            one.calls,
            _KINDS[one.kind],
            ", ".join(one.differs),
            common.ms_text(one.default_ms),
            common.ms_text(one.best_ms),
            "-" if one.gain is None else f"{one.gain:.0%}",
            one.records,
            one.workload[: common.DIGITS],
            one.record[: common.DIGITS],
        )
        for one in stats.kernels
    ]
    header = (
        "kernel",
        "calls",
        "",
        "differs in",
        "default ms",
        "best ms",
        "gain",
        "tried",
        "workload",
        "record",
    )
    console.data(console.table(header, rows))
    counts = Counter(str(one.kind) for one in stats.kernels)
    said = ", ".join(f"{counts[kind]} {word}" for kind, word in _KINDS.items() if counts[kind])
    console.talk(f"{compiler.counted(len(stats.kernels), 'kernel')}: {said}")
    if not stats.databases:
        console.talk("no database has anything for this target: `tk tune` makes one")
