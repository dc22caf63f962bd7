"""Models of other programs become ONNX models, by those programs' own exporters in a process of their own."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import compiler
from compiler import BuildError, ExampleInput, HostError, UsageError

_SHOWN_LINES = 12  # of what an exporter said before it failed
_EXTRA = "tk-toolchain[import]"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was imported, or would be: `command` as a shell reads it; no `bytes` where nothing was made."""

    path: Path
    source: Path
    kind: str
    command: str
    bytes: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """A file, its kind in `compiler.EXPORT_NEEDS`, and what its exporter is told."""

    source: Path
    output: Path
    kind: str
    inputs: tuple[ExampleInput, ...] = ()
    opset: int | None = None

    def words(self, output: Path) -> tuple[str, ...]:
        """What follows `python`."""
        return compiler.export_words(self.kind, self.source, output, self.inputs, self.opset)

    @property
    def command(self) -> str:
        """For people, and for machines that have the exporter."""
        return shlex.join(("python", *self.words(self.output)))


def plan_import(
    source: Path, output: Path | None, inputs: tuple[ExampleInput, ...], opset: int | None
) -> ImportPlan:
    """How a file is imported, by its bytes.

    Raises BadInputError for a file that no exporter reads, and UsageError where a TorchScript program lacks
    inputs, or a file that says what it takes is given some.
    """
    kind = compiler.exportable(source)
    if kind == "torchscript" and not inputs:
        raise UsageError(
            "a TorchScript program does not say what it takes",
            where=str(source),
            why="it is traced with an input",
            hint="give the inputs in their order, for example --shape x=1,3,224,224; --integer for tokens, "
            "--free x=0:batch for what is to stay free",
        )
    if kind != "torchscript" and inputs:
        raise UsageError(
            "shapes are for TorchScript programs",
            where=str(source),
            why="this file says itself what it takes",
            hint="leave --shape, --integer and --free out",
        )
    return ImportPlan(source, output or Path(compiler.onnx_beside(source).name), kind, inputs, opset)


def run_import(plan: ImportPlan, on_line: Callable[[str], object] | None = None) -> ImportReport:
    """Run the exporter; the model gets its name when it is whole. `on_line` hears what the exporter says.

    Raises HostError where the exporter is not installed, BuildError where it fails.
    """
    missing = [name for name in compiler.EXPORT_NEEDS[plan.kind] if importlib.util.find_spec(name) is None]
    if missing:
        packages = " ".join(missing) if plan.kind == "tflite" else f"'{_EXTRA}'"
        raise HostError(
            f"the exporter is not installed: {', '.join(missing)}",
            where=str(plan.source),
            hint=f"`pip install {packages}`, or run this where it is: `{plan.command}`",
        )
    with compiler.staging_directory(plan.output) as folder:
        made = folder / plan.output.name  # constants beside it are found by its name
        done = compiler.run((sys.executable, *plan.words(made)), on_line=on_line, merged=True)
        if done.returncode or not made.is_file():
            raise BuildError(
                "the exporter failed",
                where=str(plan.source),
                why="\n".join(["", *done.stdout.rstrip().splitlines()[-_SHOWN_LINES:]]),
                hint=f"the command was: `{plan.command}`",
            )
        size = 0
        for file in sorted(folder.iterdir(), reverse=True):  # constants first, the model last
            size += file.stat().st_size
            compiler.replace_atomic(file, plan.output.with_name(file.name))
    return ImportReport(plan.output, plan.source, plan.kind, plan.command, size, done.seconds)
