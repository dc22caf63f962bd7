"""`tk bench`: latency of a library, with what is needed to judge the number."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.place import placeable
from toolchain.progress import progress_bar


@placeable
def bench_command(
    library: options.Library,
    threads: options.Threads = None,
    device: options.Device = None,
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=0.01, help="Time to measure for.")
    ] = 3.0,
    warmup: Annotated[
        float, typer.Option("--warmup", metavar="SECONDS", min=0.0, help="Seconds to run before measuring.")
    ] = 0.5,
    profile: Annotated[bool, typer.Option("--profile", help="Show the time of every kernel.")] = False,
    baseline: Annotated[
        Path | None,
        typer.Option("--baseline", metavar="MODEL", help="Time onnxruntime on this ONNX file, interleaved."),
        options.Role.MODEL,
    ] = None,
    bind: options.Bind = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Measure the latency of a compiled model."""
    request = compiler.BenchRequest(
        library=options.existing_file(library),
        threads=threads,
        seconds=seconds,
        warmup=warmup,
        profile=profile,
        baseline=None if baseline is None else options.existing_file(baseline),
        binds=options.pairs("--bind", bind, options.read_value),
        seed=seed,
        device=device,
    )
    with progress_bar(f"timing {library.name}", "part") as progress:
        report = compiler.bench_library(request, progress=progress)
    for warning in report.warnings:
        console.warn(warning)
    if json:
        console.data_json(report)
        return
    _show(report)


def _show(report: compiler.BenchReport) -> None:
    header = ("engine", "threads", "p50 ms", "p90 ms", "p99 ms", "runs", "GFLOP/s", "% of peak")
    mine = (report.p50_ms, report.p90_ms, report.p99_ms, report.runs, report.gflops, report.percent_of_peak)
    rows = [(f"tk {report.target}", "" if report.threads is None else report.threads, *mine)]
    if report.baseline is not None:
        other = report.baseline
        rows.append((other.engine, other.threads, other.p50_ms, other.p90_ms, other.p99_ms, other.runs,
                     other.gflops, other.percent_of_peak))  # fmt: skip
    console.data(console.table(header, rows))
    if report.device:
        console.data(f"device: {report.device}; times include copies of inputs and outputs")
    if report.peak_gflops is not None:
        threads = compiler.counted(report.threads or 1, "thread")
        console.data(f"measured peak of this machine: {report.peak_gflops:.0f} GFLOP/s, {threads}")
    if report.baseline is not None:
        console.data(f"ratio to {report.baseline.engine}: {report.p50_ms / report.baseline.p50_ms:.2f}")
    if report.kernels:
        console.data("")
        console.data(_kernels(report))


def _kernels(report: compiler.BenchReport) -> str:
    header = ("kernel", "calls", "ms", "%", "GFLOP/s", "GB/s", "nodes")
    total = sum(one.ms for one in report.kernels) or 1.0
    rows = [
        (one.kernel, one.calls, one.ms, 100 * one.ms / total, one.gflops, one.gbytes_per_s, _nodes(one.nodes))
        for one in report.kernels
    ]
    return console.table(header, rows)


def _nodes(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
