"""`tk demo`: the main job from end to end on one network, and one table of what came of it."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from compiler import HostError, counted, disk
from toolchain import console, zoo


def demo_command(
    context: typer.Context,
    network: Annotated[str, typer.Argument(metavar="[NETWORK]", help="A network of the zoo.")] = "resnet50",
    directory: Annotated[Path, typer.Option("--directory", metavar="DIR", help="Where the files go.")] = Path(
        "tk-demo"
    ),
    threads: Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Threads to use.")] = 1,
) -> None:
    """Compile, run, verify and time a network beside onnxruntime."""
    zoo.network(network)
    model, library = directory / f"{network}.onnx", directory / f"{network}.so"
    use = ("--threads", str(threads))
    step = functools.partial(_step, context.find_root().command)
    _make(directory)
    if not model.exists():
        step("zoo", "make", network, "-o", str(model))
    compiled = step("compile", str(model), "-o", str(library), *use)
    ran = step("run", str(library), "--output-dir", str(directory / "outputs"), *use)
    verified = step("verify", str(library), "--model", str(model), *use)
    timed = step("bench", str(library), "--baseline", str(model), *use)
    rows = [*_costs(compiled), *_proof(verified), *_times(timed), *_files(model, compiled, directory, ran)]
    console.data("")
    console.data(console.table(("what", "result"), rows))


def _make(directory: Path) -> None:
    try:
        disk.make_directories(directory)
    except OSError as error:
        raise HostError(
            "cannot make a folder", where=f"--directory {directory}", why=error.strerror or str(error)
        ) from error


def _step(tk: Any, *arguments: str) -> dict[str, Any]:
    """Run one `tk` command as the shell would, shown as it is typed, and return its JSON document."""
    console.data("$ " + shlex.join(("tk", *arguments)))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = tk.main([*arguments, "--json"], prog_name="tk", standalone_mode=False)
    document = json.loads(printed.getvalue())
    assert isinstance(document, dict)
    if code:
        console.data(json.dumps(document, indent=2))
        raise typer.Exit(code)
    return document


def _costs(compiled: dict[str, Any]) -> list[tuple[str, str]]:
    library, constants = console.size(compiled["library_bytes"]), console.size(compiled["constant_bytes"])
    return [
        ("compiled in", f"{compiled['seconds']:.2f} s, {_cached(compiled)}"),
        ("kernels", str(compiled["kernels"])),
        ("library", f"{library}, {constants} of them constants"),
        ("memory while running", console.size(compiled["peak_memory"])),
    ]


def _cached(compiled: dict[str, Any]) -> str:
    if compiled.get("cached"):
        return "all from the cache"
    return f"{counted(compiled['cache_hits'], 'kernel')} from the cache"


def _proof(verified: dict[str, Any]) -> list[tuple[str, str]]:
    worst = max(verified["outputs"], key=lambda one: float(one["needed"]))
    return [
        ("verified against", f"{verified['reference']}, {counted(verified['runs'], 'input')}"),
        ("worst error", f"{worst['needed']:.1e} of the output's scale, allowed {worst['tolerance']:.1e}"),
    ]


def _times(timed: dict[str, Any]) -> list[tuple[str, str]]:
    other = timed["baseline"]
    peak = "" if timed["percent_of_peak"] is None else f", {timed['percent_of_peak']:.0f} % of peak"
    return [
        ("latency (median)", f"{timed['p50_ms']:.2f} ms, {counted(timed['threads'], 'thread')}{peak}"),
        (other["engine"], f"{other['p50_ms']:.2f} ms"),
        ("ratio", f"{timed['p50_ms'] / other['p50_ms']:.2f}"),
    ]


def _files(
    model: Path, compiled: dict[str, Any], directory: Path, ran: dict[str, Any]
) -> list[tuple[str, str]]:
    outputs = [str(directory / "outputs" / str(one["file"])) for one in ran["outputs"]]
    return [("model", str(model)), ("library", str(compiled["path"])), ("outputs", ", ".join(outputs))]
