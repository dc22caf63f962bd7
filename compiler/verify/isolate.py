"""Verify a library in a child process, so that its crash is a result and not our end."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from compiler.core import diagnostics, process
from compiler.core.diagnostics import CrashError, InternalError, TkError
from compiler.core.progress import Progress, silent
from compiler.core.settings import child_environment
from compiler.verify.report import Comparison, VerifyReport, VerifyRequest

_TAIL_LINES = 8
_PROGRESS = "progress"
_COMPARISONS = ("outputs", "layers", "selections")


def verify_library(
    request: VerifyRequest, *, timeout: float | None = None, progress: Progress = silent
) -> VerifyReport:
    """Carry out `request` in a process of its own, for at most `timeout` seconds.

    `progress` is told of the runs that are done, in another thread. Raises CrashError if that process crashes
    or does not end in time, and what `check.verify_here` raises.
    """
    where = str(request.library)
    argv = python_module("compiler.verify.child")
    done = run_child(argv, plain(request), timeout=timeout, progress=progress)
    if done.returncode < 0:
        raise CrashError(
            f"the library crashed with {_signal_name(-done.returncode)}",
            where=where,
            why=_last_lines(done),
            hint="this is a defect of the generated code: please report it with the model",
        )
    return _report(answer_in(done, "the verifying process", where))


def python_module(name: str) -> list[str]:
    """How a module is run as a program by the Python that runs us."""
    return [sys.executable, "-P", "-m", name]


def run_child(
    argv: Sequence[str], request: object, *, timeout: float | None, progress: Progress
) -> process.Completed:
    """Run one of our own programs with a request on its standard input; see `child.serve`."""
    package_root = str(Path(__file__).resolve().parents[2])
    search = os.pathsep.join(
        dict.fromkeys([package_root, *filter(None, sys.path)])
    )  # what this process finds
    return process.run(
        argv,
        timeout=timeout,
        env=child_environment(PYTHONPATH=search),
        input=json.dumps(request).encode(),
        on_line=lambda line: _tell(line, progress),
    )


def answer_in(done: process.Completed, who: str, where: str) -> dict[str, Any]:
    """What such a program answered; raises the error that it answered, InternalError where it did not."""
    try:
        answer = json.loads(next(line for line in done.stdout.splitlines() if not _is_progress(line)))
    except (ValueError, StopIteration) as error:
        raise InternalError(
            f"{who} ended without an answer",
            where=where,
            why=_last_lines(done) or f"exit code {done.returncode}",
        ) from error
    if "error" in answer:
        raise error_of(answer["error"])
    assert isinstance(answer, dict)
    return answer


def _last_lines(done: process.Completed) -> str:
    return "\n".join(done.stderr.strip().splitlines()[-_TAIL_LINES:])


def progress_line(doing: str, done: float, total: float) -> str:
    """How far the child has come, as it says it: one line, before its answer."""
    return json.dumps({_PROGRESS: [doing, done, total]})


def _tell(line: str, progress: Progress) -> None:
    if _is_progress(line):
        doing, done, total = json.loads(line)[_PROGRESS]
        progress(doing, done, total)


def _is_progress(line: str) -> bool:
    return line.startswith(f'{{"{_PROGRESS}": ')


def answer_of(error: TkError) -> dict[str, Any]:
    """An error as the child sends it."""
    fields = {name: getattr(error, name) for name in ("what", "where", "why", "hint")}
    return {"error": {"kind": type(error).__name__, "code": int(error.code), **fields}}


def error_of(fields: dict[str, Any]) -> TkError:
    """The error that `answer_of` wrote."""
    kind = getattr(diagnostics, str(fields.pop("kind")), TkError)
    code = diagnostics.ExitCode(fields.pop("code"))
    what = fields.pop("what")
    error = kind(what, code=code, **fields)
    assert isinstance(error, TkError)
    return error


def request_from(fields: dict[str, Any]) -> VerifyRequest:
    """Rebuild a request in the child."""
    paths = {name: Path(fields[name]) for name in ("library", "model")}
    return VerifyRequest(**{**fields, **paths, "inputs": tuple(fields["inputs"])})


def _report(fields: dict[str, Any]) -> VerifyReport:
    paths = {name: Path(fields[name]) for name in ("library", "model")}
    lists = {name: tuple(_comparison(one) for one in fields[name]) for name in _COMPARISONS}
    return VerifyReport(**{**fields, **paths, **lists, "notes": tuple(fields["notes"])})


def _comparison(fields: dict[str, Any]) -> Comparison:
    return Comparison(**{**fields, "shape": tuple(fields["shape"]), "where": tuple(fields["where"])})


def plain(record: VerifyRequest | VerifyReport) -> dict[str, Any]:
    """A request or report as it is sent."""
    fields = dataclasses.asdict(record)
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields.items()}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
