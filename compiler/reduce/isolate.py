"""Reduce a model in a process of its own, which has no threads and copies itself for each model it tries."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import InternalError
from compiler.core.files import private_directory
from compiler.core.progress import Progress, silent
from compiler.reduce.report import Culprit, Fault, ModelSize, ReduceReport, ReduceRequest
from compiler.verify.isolate import answer_in, python_module, run_child

_PATHS = ("model", "output", "work")


def reduce_model(
    request: ReduceRequest, *, progress: Progress = silent, program: Sequence[str] = ()
) -> ReduceReport:
    """Find the smallest model that shows a fault of another one, and write it with what was found.

    `progress` is told what is being tried, in another thread. `program` takes the place of
    `python -m compiler.reduce.child`. Raises BadInputError for a model without the fault, and what a compile
    raises for a model or options that cannot be read.
    """
    kept = private_directory("tk-reduce") if request.work is None else nullcontext(request.work)
    with kept as work:
        asked = plain_request(replace(request, work=Path(work)))
        argv = program or python_module("compiler.reduce.child")
        done = run_child(argv, asked, timeout=None, progress=progress)
        if done.returncode < 0:
            raise InternalError(
                "the reducing process was killed", where=str(request.model), why=f"signal {-done.returncode}"
            )
        return _report_of(answer_in(done, "the reducing process", str(request.model)))


def plain_request(record: ReduceRequest | ReduceReport) -> dict[str, Any]:
    """A request or a report as JSON holds it."""
    fields = asdict(record)
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


def request_of(fields: dict[str, Any]) -> ReduceRequest:
    """A request from what `plain_request` made."""
    paths = {name: Path(fields[name]) for name in _PATHS if fields[name] is not None}
    lists = {name: tuple(fields[name]) for name in ("command", "inputs", "without")}
    shapes = {name: tuple(shape) for name, shape in fields["shapes"].items()}
    return ReduceRequest(**{**fields, **paths, **lists, "shapes": shapes})


def _report_of(fields: dict[str, Any]) -> ReduceReport:
    culprit: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields["culprit"].items()
    }
    parts = {
        "model": Path(fields["model"]),
        "output": Path(fields["output"]),
        "fault": Fault(**fields["fault"]),
        "before": ModelSize(**fields["before"]),
        "after": ModelSize(**fields["after"]),
        "culprit": Culprit(**culprit),
    }
    lists = {name: tuple(fields[name]) for name in ("operators", "commands", "notes")}
    return ReduceReport(**{**fields, **parts, **lists})
