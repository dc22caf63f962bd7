"""`tk inspect`: what is inside a model or a library, and what of it cannot be compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.access_tables import access_document, launches_table, rows_table
from toolchain.commands.compile import EXACT
from toolchain.commands.machine_code import machine_code_lines
from toolchain.progress import progress_bar

_AGAIN = "it was built by another version of tk, or from edited loops or sources (`--from`): compile it again"
_SHOWN_LABELS = 10
_CUT = "counted in part, since {} of the blocks that ran do too much between two barriers"


def inspect_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An ONNX file or a model library.")],
    kernels: Annotated[bool, typer.Option("--kernels", help="Show every kernel's loops and trace.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Replay every kernel's trace; the source must be the same.")
    ] = False,
    machine_code: Annotated[
        bool,
        typer.Option(
            "--machine-code",
            help="Show what a GPU's machine code says of each launch: loops, occupancy, a predicted time.",
        ),
    ] = False,
    access: Annotated[
        bool,
        typer.Option("--access", help="Count in the emulator what accesses of GPU kernels cost, by line."),
    ] = False,
    shape: options.Shape = None,
    dim: options.Dim = None,
    bind: options.Bind = None,
    *,
    allowance: Annotated[compiler.Allowance, options.Depends(options.allowance_of)],
    json: options.Json = False,
) -> None:
    """Show what is inside an ONNX file or a model library."""
    options.existing_file(file)
    compiler.go_on_within(allowance, str(file))
    shapes = options.pairs("--shape", shape, options.read_dims)
    dims = options.pairs("--dim", dim, options.read_dim)
    binds = options.pairs("--bind", bind, options.read_value)
    if options.is_library(file):
        if shapes or dims or binds:
            raise compiler.UsageError(
                "a library's shapes are fixed", where="--shape, --dim, --bind", hint="leave them out"
            )
        _inspect_library(
            file, kernels=kernels, check=check, machine_code=machine_code, access=access, json=json
        )
        return
    if kernels or check or machine_code or access:
        raise compiler.UsageError(
            "only a library has kernels", where=str(file), hint="compile it first: `tk compile`"
        )
    with options.naming_the_command("inspect", file):
        report = compiler.inspect_model(file, shapes=shapes, binds=binds, dims=dims)
    if json:
        console.data_json(report)
    else:
        _show_model(report)
    if report.unsupported:
        raise typer.Exit(compiler.ExitCode.BAD_INPUT)


def _inspect_library(
    file: Path, *, kernels: bool, check: bool, machine_code: bool, access: bool, json: bool
) -> None:
    with progress_bar(f"inspecting {file.name}"):
        report = compiler.inspect_library(file, kernels=kernels, check=check, machine_code=machine_code)
        counted = compiler.access_of(file) if access else None
    if json:
        more = {} if counted is None else {"access": access_document(counted)}
        console.data_json({**console.jsonable(report), **more})
    else:
        _show_library(report, kernels=kernels)
    if counted is not None:
        _show_access(counted, json=json)
    broken = [one.index for one in report.kernels if one.replays is False]
    if broken:
        raise compiler.WrongResultError(
            f"{len(broken)} of {compiler.counted(len(report.kernels), 'kernel')} replay to another text",
            where="kernels " + compiler.some(broken),
            hint=_AGAIN,
        )
    if report.module_replays is False:
        raise compiler.WrongResultError(
            "the source for the device is not that of the kernels", where=str(file), hint=_AGAIN
        )
    if check and not json:
        console.data(
            f"{compiler.counted(len(report.kernels), 'kernel replays', 'kernels replay')} to the same text"
        )


def _show_access(found: compiler.AccessReport, *, json: bool) -> None:
    for table in () if json else (launches_table(found), rows_table(found)):
        console.data(f"\n{table}")
    for one in found.launches:
        if one.cut:
            console.warn(f"{one.function}: {_CUT.format(compiler.counted(one.cut, 'thread'))}")


def _show_model(report: compiler.ModelReport) -> None:
    console.data(f"{report.path}  (opset {report.opset})")
    console.data(_tensors(report.inputs, report.outputs))
    console.data("")
    rows = [(one.op, one.count, one.flops / 1e6) for one in report.ops]
    console.data(console.table(("op", "count", "MFLOP"), rows))
    console.data("")
    console.data(f"parameters    {report.parameters:,} ({console.size(report.parameter_bytes)})")
    console.data(f"computation   {_computation(report)}")
    if report.arena_bytes is not None:
        console.data(f"memory plan   {console.size(report.arena_bytes)} for all intermediate values")
    if report.unsupported:
        console.data("")
        console.data(f"cannot be compiled: {compiler.counted(len(report.unsupported), 'node')}")
        console.data(console.table(("op", "nodes", "first", "reason"), _refusals(report.unsupported)))


def _computation(report: compiler.ModelReport) -> str:
    """Floating-point operations, as far as shapes are known."""
    text = f"{report.flops / 1e9:.3g} GFLOP"
    if not report.unknown_nodes:
        return text
    every = sum(one.count for one in report.ops)
    if report.unknown_nodes == every:
        return "not known: no node's shapes are known"
    nodes = f"{every - report.unknown_nodes} of {compiler.counted(every, 'node')}"
    return f"{text} in the {nodes} whose shapes are known"


def _refusals(unsupported: Sequence[compiler.Unsupported]) -> list[tuple[object, ...]]:
    """One row for each operator and reason: how many nodes, and the first of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for one in unsupported:
        found.setdefault((one.op, one.reason), []).append(one.node)
    return [(op, len(nodes), nodes[0], reason) for (op, reason), nodes in found.items()]


def _show_sizes(report: compiler.LibraryReport) -> None:
    """What a run decides, what a context keeps, and which sizes have kernels of their own."""
    for free in report.free:
        steps = f" in steps of {free.step}" if free.step > 1 else ""
        counted = ", as many as a run finds" if free.counted else ""
        name = free.name or "a dimension without name"
        console.data(f"{name}: {free.minimum} to {free.maximum}{steps}{counted}")
    for past, present in report.states:
        console.data(f"state: {past} is {present} of the run before, kept by the context")
    for part in report.specialisations:
        count = compiler.counted(len(part.kernels), "kernel")
        console.data(f"specialised for {_sizes(part)}: {part.flops / 1e9:.3g} GFLOP in {count}")


def _show_library(report: compiler.LibraryReport, *, kernels: bool) -> None:
    console.data(f"{report.path}  ({report.target}, {report.arch})")
    console.data(_tensors(report.inputs, report.outputs))
    _show_sizes(report)
    console.data("")
    if report.features:
        console.data(f"CPU features  {' '.join(report.features)}")
    if report.precision != EXACT:
        console.data(f"precision     {report.precision}: products round factors of f32, sums are f32")
    console.data(f"size          {console.size(report.library_bytes)}")
    console.data(f"constants     {console.size(report.constant_bytes)}")
    console.data(f"memory plan   {console.size(report.arena_bytes)} for all intermediate values")
    if report.sample_bytes:
        console.data(f"              {console.size(report.sample_bytes)} more for each sample")
    if not report.images:
        console.data(f"scratch       {console.size(report.scratch_bytes)} a thread")
    count = compiler.counted(len(report.kernels), "kernel")
    tuned = sum(bool(one.record) for one in report.kernels)
    said = f", {tuned} of them tuned" if tuned else ""
    console.data(f"computation   {report.flops / 1e9:.3g} GFLOP in {count}{said}")
    if report.recording is not None:
        made = report.recording
        chain = f"of {made.launches} launches {made.chain} follow each other"
        console.data(f"recording     {made.branches} branches; {chain}")
    if report.images:
        console.data(f"toolchain     {report.toolchain}\n")
        images = [(one.kind, one.arch or "any", console.size(one.bytes)) for one in report.images]
        console.data(console.table(("image", "arch", "size"), images))
        console.data("")
        console.data(_launches(report))
        for line in machine_code_lines(report):
            console.data(line)
    if not kernels:
        return
    rows = [
        (one.index, one.kind, one.steps, one.flops / 1e6, one.replays, ", ".join(one.nodes[:3]))
        for one in report.kernels
    ]
    console.data("")
    console.data(console.table(("kernel", "kind", "steps", "MFLOP", "replays", "nodes"), rows))
    for one in report.kernels:
        console.data(f"\n# kernel {one.index}\n{one.func.rstrip()}")
        console.data(f"\n# trace of kernel {one.index}\n{one.trace.rstrip()}")


def _sizes(one: compiler.SpecialisationInfo) -> str:
    return ", ".join(
        f"{free.name or 'a dimension without name'} "
        + (f"{free.minimum}" if free.minimum == free.maximum else f"{free.minimum} to {free.maximum}")
        for free in one.sizes
    )


def _launches(report: compiler.LibraryReport) -> str:
    """Every device function with its launch, and what it takes on each architecture that is known."""
    header = ("function", "kernel", "grid", "block", "arch", "registers", "spill", "private", "shared bytes")
    rows: list[tuple[object, ...]] = []
    for kernel in report.kernels:
        for one in kernel.launches:
            start = (one.name, kernel.index, console.shape(one.grid), console.shape(one.block))
            rows += [
                (*start, item.arch, item.registers, item.spills, item.private_bytes, item.shared_bytes)
                for item in one.resources
            ] or [(*start, "", None, None, None, None)]
    return console.table(header, rows)


def _dim(dim: int | str) -> int | str:
    """What follows from other dimensions stands apart from those beside it."""
    return f"({dim})" if isinstance(dim, str) and " " in dim else dim


def _tensors(inputs: tuple[compiler.TensorInfo, ...], outputs: tuple[compiler.TensorInfo, ...]) -> str:
    tensors = [*(("input", one) for one in inputs), *(("output", one) for one in outputs)]
    rows = [(kind, one.name, one.dtype, console.shape([*map(_dim, one.shape)])) for kind, one in tensors]
    labelled = [_labels(one) for one in outputs if one.labels]
    return "\n".join([console.table(("", "name", "type", "shape"), rows), *labelled])


def _labels(one: compiler.TensorInfo) -> str:
    words = [f"{number} {compiler.visible(label)}" for number, label in enumerate(one.labels[:_SHOWN_LABELS])]
    more = ["..."] if len(one.labels) > _SHOWN_LABELS else []
    return f"labels of {compiler.visible(one.name)}: {', '.join([*words, *more])}"
