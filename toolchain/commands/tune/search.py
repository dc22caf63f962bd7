"""`tk tune MODEL`: search for faster schedules of a model's kernels, and leave the tuned library."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.compile import compile_options
from toolchain.commands.place import placeable
from toolchain.commands.tune.cluster import DeviceKey, tls_files

if TYPE_CHECKING:
    from toolchain.tuning.live import Watcher

_ELSEWHERE = (
    "target", "dump", "stop_after", "start_from", "emit", "timings", "record", "without", "limit",
    "conservative", "trust", "db", "no_db",
)  # fmt: skip
"""Of the options of a compile: what a search decides or has no use for."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def _one_target(targets: Sequence[str]) -> str | None:
    """The target; raises UsageError for several, as each has kernels and times of its own."""
    if len(targets) > 1:
        raise compiler.UsageError(
            "a search is for one target",
            where=" ".join(f"--target {one}" for one in targets),
            hint="tune for one after the other: they may share a database",
        )
    return targets[0] if targets else None


def tune_budget(
    time: Annotated[
        str,
        typer.Option(
            "--time", metavar="TIME", help="End the search after this, as `30m`, `90s`, `1h`, `none`."
        ),
    ] = "10m",
    trials: Annotated[
        int | None,
        typer.Option("--trials", metavar="N", min=1, help="End it after so many measured candidates."),
    ] = None,
    min_gain: Annotated[
        float,
        typer.Option(
            "--min-gain",
            metavar="PERCENT",
            min=0.0,
            max=100.0,
            help="End it when no kernel's next batch is predicted to save so much of the network's time.",
        ),
    ] = 0.05,
) -> compiler.Budget:
    """When the options say that a search ends."""
    return compiler.Budget(read_duration(time, "--time"), trials, min_gain / 100)


def cluster_of(
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="URL",
            help="Build and measure on the workers of this Dask scheduler: tcp://127.0.0.1:8786, or "
            "tls://HOST:PORT.",
        ),
        options.Role.HERE,
    ] = None,
    *,
    tls: Annotated[compiler.TlsFiles, options.Depends(tls_files)],
) -> compiler.ClusterAddress | None:
    """The cluster that the options name."""
    return None if cluster is None else compiler.ClusterAddress(cluster, tls)


@placeable
def search_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file."), options.Role.MODEL],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="The tuned library; default: MODEL with .so, here."
        ),
        options.Role.RESULT,
    ] = None,
    *,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="What to tune for, as `tk targets` lists it, or NAME:ARCH; default: this machine's cores.",
        ),
    ] = None,
    settings: Annotated[compiler.CompileOptions, options.Depends(compile_options, without=_ELSEWHERE)],
    budget: Annotated[compiler.Budget, options.Depends(tune_budget)],
    db: Annotated[
        Path | None,
        typer.Option(
            "--db", metavar="FILE", help="Database to go on from and to add to; default: TK_TUNING_DB."
        ),
        options.Role.HERE,
    ] = None,
    strategy: Annotated[
        str,
        typer.Option("--strategy", metavar="NAME", help="evolution, random, exhaustive or replay."),
    ] = "evolution",
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="TEXT",
            help="Tune only kernels with this in their names, operators and nodes; repeatable.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="Candidates that are built at the same time on this machine; default: TK_JOBS.",
        ),
    ] = None,
    cluster: Annotated[compiler.ClusterAddress | None, options.Depends(cluster_of)],
    device_key: DeviceKey = None,
    graph: Annotated[
        bool,
        typer.Option("--graph", help="Try other layouts and fusion first, in the whole network."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of the search.")] = 0,
    trust: options.Trust = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write a page and a log for each kernel there."),
        options.Role.RESULT,
    ] = None,
    plan: Annotated[
        bool, typer.Option("--list", help="Show the kernels that would be tuned; measure nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Find faster schedules for a model's kernels by measuring candidates, and leave the tuned library.

    What is measured goes into a database, which `tk compile` asks, too; nothing is measured twice. Ctrl-C
    ends the search and keeps what there is. A kernel that does not gain in the network keeps its default.
    """
    options.existing_file(model)
    request = compiler.TuneRequest(
        model=model,
        options=replace(
            settings, output=output or Path(model.stem + ".so"), target=_one_target(target or ())
        ),
        database=db,
        budget=budget,
        strategy=strategy,
        seed=seed,
        threads=settings.threads,
        kernels=tuple(kernel or ()),
        trust=trust,
        workers=workers,
        cluster=cluster,
        device_key=device_key,
        graph=graph,
    )
    if plan:
        _plan(request, as_json=json)
        return
    if report is not None:
        from toolchain.charts import require_matplotlib

        require_matplotlib()
    with options.naming_the_command("tune", model), _watching(request, report) as watcher:
        found = compiler.tune_model(request, watching=(watcher,), progress=watcher.progress)
        watcher.finish(found)
    for warning in found.warnings:
        console.warn(warning)
    if json:
        console.data_json(found)
        return
    from toolchain.tuning.words import tuning_summary

    console.data(tuning_summary(found))


@contextmanager
def _watching(request: compiler.TuneRequest, report: Path | None) -> Iterator[Watcher]:
    from toolchain.tuning.live import watching

    with watching(request, report) as watcher:
        yield watcher


def _plan(request: compiler.TuneRequest, *, as_json: bool) -> None:
    """What a search would go through."""
    kernels = compiler.tune_plan(request)
    if as_json:
        console.data_json(kernels)
        return
    from toolchain.tuning.words import plan_table

    console.data(plan_table(kernels))


def read_duration(text: str, option: str) -> float | None:
    """Seconds of `30m`, `90s`, `1.5h` or a plain number; None for `none`. Raises UsageError."""
    if text == "none":
        return None
    found = _DURATION.fullmatch(text.strip())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        hint = "a number with s, m or h behind it, as `30m`, or `none`"
        raise compiler.UsageError("no time", where=f"{option} {text}", hint=hint)
    return float(found[1]) * _UNITS[found[2]]
