"""`tk compile`: model.onnx to one library."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.multi_target import per_target
from toolchain.commands.place import placeable
from toolchain.progress import progress_bar

EXACT, TF32 = "f32", "tf32"

Precision = Annotated[
    str | None,
    typer.Option(
        "--precision",
        metavar="NAME",
        help="What factors of f32 are rounded to in products, on GPUs: f16, bf16 (what is stored for them, "
        "too), tf32 (in NVIDIA's matrix units, sm_80 on), tf32x3 (there, too: three products of tf32, almost "
        "as exact as f32) or f32 (not at all). Sums stay f32.",
    ),
]
Tf32 = Annotated[bool, typer.Option("--tf32", help="As `--precision tf32`.")]


def precision_of(precision: str | None, *, tf32: bool) -> str:
    """The precision that was asked for; raises UsageError where the two options contradict each other."""
    if tf32 and precision not in (None, TF32):
        what = f"two precisions were given: `{TF32}` and `{precision}`"
        raise compiler.UsageError(what, where="--precision", hint="leave `--tf32` out")
    return TF32 if tf32 else precision or EXACT


def compile_options(
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="What to compile for, as `tk targets` lists it; NAME:ARCH, and several with commas between "
            "them or by repeating the option; default: this machine's cores.",
        ),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            "--arch",
            metavar="NAME",
            help="GPUs: architectures for one library, as `sm_70,sm_90`; default: that of the device here, "
            "else the target's. Cores: features and processor, as `x86-64-v3+zen3`; default: this machine's.",
        ),
    ] = None,
    shape: options.Extents = None,
    dim: options.DimRange = None,
    bind: options.Bind = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, max=4096, help="Threads the library uses by default."),
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option("--dump", metavar="DIR", help="Write the text of every stage there."),
        options.Role.RESULT,
    ] = None,
    stop_after: Annotated[
        str | None, typer.Option("--stop-after", metavar="STAGE", help="Stop when this stage is done.")
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="Go on from an edited stage file."),
        options.Role.INPUT,
    ] = None,
    emit: Annotated[
        str, typer.Option("--emit", metavar="KIND", help="source, object or library.")
    ] = "library",
    precision: Precision = None,
    tf32: Tf32 = False,
    without: options.Without = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="PASS=N",
            help="Apply a pass that is not needed N times only, to find a defect; repeatable.",
        ),
    ] = None,
    conservative: Annotated[
        list[str] | None,
        typer.Option(
            "--conservative",
            metavar="DECISION",
            help="Let a decision of schedules take its smallest option, to find a defect; repeatable.",
        ),
    ] = None,
    no_db: options.NoDatabase = False,
    db: options.Databases = None,
    trust: options.Trust = False,
    plugin: options.PluginFiles = None,
    no_plugins: options.NoPlugins = False,
    timings: Annotated[bool, typer.Option("--timings", help="Show the time of every stage.")] = False,
    record: Annotated[list[str] | None, typer.Option("--record", metavar="NAME=VALUE", hidden=True)] = None,
) -> compiler.CompileOptions:
    """How the options say that a model is compiled; where to is decided by its name, too."""
    shapes = options.lists("--shape", shape, options.read_extents)
    dims = options.lists("--dim", dim, options.read_dim_range)
    return compiler.CompileOptions(
        output=Path(),
        target=target[0] if target else None,
        arch=arch,
        shapes={name: values[0] for name, values in shapes.items()},
        dims={name: values[0] for name, values in dims.items()},
        specialisations=options.specialisations(shapes, dims),
        binds=options.pairs("--bind", bind, options.read_value),
        threads=threads,
        emit=_emit(emit),
        dump=dump,
        stop_after=stop_after,
        start_from=start_from,
        timings=timings,
        precision=precision_of(precision, tf32=tf32),
        without=tuple(without or ()),
        limits=options.pairs("--limit", limit, _count),
        conservative=tuple(conservative or ()),
        databases=tuple(db or ()),
        own_database=not no_db,
        trust=trust,
        plugins=tuple(plugin or ()),
        installed_plugins=not no_plugins,
        environment=options.pairs("--record", record, str),
        processes=None,
    )


@functools.partial(placeable, split=per_target)
def compile_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="An ONNX file."), options.Role.MODEL],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to write; default: MODEL with .so, here. With several targets a folder, default: "
            "here, for MODEL.TARGET.so of each.",
        ),
        options.Role.RESULT,
    ] = None,
    *,
    settings: Annotated[compiler.CompileOptions, options.Depends(compile_options)],
    allowance: Annotated[compiler.Allowance, options.Depends(options.allowance_of)],
    json: options.Json = False,
) -> None:
    """Compile an ONNX model into one self-contained library."""
    where = output or Path(model.stem + options.suffix_of(settings.emit))
    options.existing_file(model)
    compiler.go_on_within(allowance, str(model))
    shown = progress_bar(f"compiling {model.name}")
    with options.naming_the_command("compile", model), shown as progress:
        report = compiler.compile_model(model, replace(settings, output=where), progress=progress)
    for warning in report.warnings:
        console.warn(warning)
    if json:
        console.data_json(report)
        return
    console.data(_summary(report))
    if settings.timings:
        rows = [(stage.name, stage.seconds * 1e3) for stage in report.stages]
        console.data(console.table(("stage", "ms"), rows))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("it is a number of applications, 0 or more")
    return int(text)


def _emit(text: str) -> compiler.Emit:
    for kind in compiler.EMITS:
        if text == kind:
            return kind
    raise compiler.UsageError(
        f"cannot emit `{text}`",
        where="--emit",
        hint=compiler.did_you_mean(text, compiler.EMITS) or "choose source, object or library",
    )


def _tuned(report: compiler.CompileReport) -> str:
    """How many kernels are tuned, and for how many there are records that were made otherwise."""
    said = f"{report.tuned} of {report.kernels}"
    if not report.near_hits:
        return said
    keys = ", ".join(report.near_keys)
    return f"{said}; records of {compiler.counted(report.near_hits, 'kernel')} differ in: {keys}"


def _summary(report: compiler.CompileReport) -> str:
    """Where the result is and what it cost."""
    if report.stopped_after:
        return f"stopped after {report.stopped_after}, in {report.seconds:.2f} s: no library was made"
    cached = f", {report.cache_hits} from the cache" if report.cache_hits else ""
    origin = " (the library was in the cache)" if report.cached else ""
    lines = [
        f"{report.path}",
        f"  target     {report.target} ({report.arch})",
        f"  time       {report.seconds:.2f} s{origin}",
        f"  kernels    {report.kernels}{cached}",
    ]
    if report.tuned or report.near_hits:
        lines.append(f"  tuned      {_tuned(report)}")
    for one in report.limited:
        last = f", last to {compiler.visible(one.last)}" if one.last else ""
        lines.append(f"  limited    {one.name}: applied {compiler.counted(one.applied, 'time')}{last}")
    if report.library_bytes:
        library, constants = console.size(report.library_bytes), console.size(report.constant_bytes)
        lines.append(f"  size       {library}, constants {constants}")
        lines.append(f"  memory     {console.size(report.peak_memory)} besides the constants while it runs")
    return "\n".join(lines)
