"""`tk reduce`: the smallest model that shows the fault of another one, and who is to blame."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.compile import Precision, Tf32, precision_of
from toolchain.progress import progress_bar


def reduce_command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file that shows the fault."), options.Role.MODEL
    ],
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="Where to write; default: MODEL.reduced, here."),
        options.Role.RESULT,
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="KIND|CMD",
            help="The fault: wrong, crash, hang, compile, unsupported or slow; or a program that gets a "
            "model's path as its last word and ends with 0 where the model shows the fault. Default: found "
            "out by trying.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="NAME", help="What to compile for, as `tk targets` lists it."),
    ] = None,
    arch: Annotated[
        str | None, typer.Option("--arch", metavar="NAME", help="Architectures, as for `tk compile`.")
    ] = None,
    precision: Precision = None,
    tf32: Tf32 = False,
    shape: options.Shape = None,
    dim: options.Dim = None,
    bind: options.Bind = None,
    inputs: options.Input = None,
    seed: options.Seed = 0,
    threads: options.Threads = None,
    device: options.Device = None,
    tolerance: Annotated[
        float | None,
        typer.Option("--tolerance", metavar="X", help="Largest error as a part of an output's scale."),
    ] = None,
    reference: Annotated[
        str, typer.Option("--reference", metavar="NAME", help="auto, onnxruntime or onnx.")
    ] = "auto",
    slower: Annotated[
        float, typer.Option("--slower", metavar="X", min=1, help="Times the reference's time that are slow.")
    ] = 3.0,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, help="For each model that is tried.")
    ] = 120.0,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="For each model that is tried, as `8 GB`.")
    ] = "8 GB",
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="N", min=0.1, help="For all of it; the smallest by then.")
    ] = 30.0,
    work: Annotated[
        Path | None,
        typer.Option("--work", metavar="DIR", help="Keep what was tried there; the same command goes on."),
        options.Role.RESULT,
    ] = None,
    without: options.Without = None,
    json: options.Json = False,
) -> None:
    """Find the smallest model that is still wrong, crashing, hanging, slow, unsupported or not compiling."""
    kind, command = _check_of(check)
    where = output or Path(f"{model.stem}.reduced")
    request = compiler.ReduceRequest(
        model=options.existing_file(model).absolute(),
        output=_directory(where).absolute(),
        check=kind,
        command=command,
        target=target,
        arch=arch,
        precision=precision_of(precision, tf32=tf32),
        shapes=options.pairs("--shape", shape, options.read_dims),
        dims=options.pairs("--dim", dim, options.read_dim),
        binds=options.pairs("--bind", bind, options.read_value),
        inputs=tuple(inputs or ()),
        seed=seed,
        threads=threads,
        device=device,
        tolerance=tolerance,
        reference=reference,
        without=tuple(without or ()),
        slower=slower,
        seconds=timeout,
        memory=_memory(memory),
        minutes=minutes,
        work=work.absolute() if work is not None else None,
    )
    shown = progress_bar(f"reducing {model.name}")
    with options.naming_the_command("reduce", model), shown as progress:
        report = compiler.reduce_model(request, progress=progress)
    if json:
        console.data_json(report)
    else:
        console.data("\n".join(compiler.reduction_text(report)))


def _check_of(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """A kind of fault, or a program with its arguments; raises UsageError for what is neither."""
    if text is None or text in compiler.FAULTS:
        return text, ()
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise compiler.UsageError(
            "cannot read the program", where=f"--check {text}", why=str(error)
        ) from error
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise compiler.UsageError(
            f"`{text}` is neither a kind of fault nor a program",
            where="--check",
            hint=compiler.did_you_mean(text, compiler.FAULTS) or f"kinds: {', '.join(compiler.FAULTS)}",
        )
    return None, (str(Path(program).absolute()), *words[1:])


def _directory(path: Path) -> Path:
    """Where the result may go: a directory that is missing, empty, or of an earlier reduction."""
    options.check_folder(path)
    if path.exists() and not path.is_dir():
        raise compiler.UsageError("the output is a file", where=f"-o {path}", hint="name a directory")
    found = sorted(one.name for one in path.iterdir()) if path.exists() else []
    strange = [name for name in found if name not in compiler.REDUCTION_FILES]
    if strange:
        raise compiler.UsageError(
            "the output directory holds other files",
            where=f"-o {path}",
            why=f"`{strange[0]}` is of no reduction",
            hint="name a new directory",
        )
    return path


def _memory(text: str) -> int:
    try:
        return compiler.read_bytes(text)
    except ValueError as error:
        raise compiler.UsageError("no size", where=f"--memory {text}", why=str(error)) from error
