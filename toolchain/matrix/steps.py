"""One step of a trial: an ordinary `tk` command in a process group of its own, within limits."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compiler import CrashError, MemoryLimitError, TkError, run
from toolchain.matrix.plan import TrialLimits
from toolchain.settings import python_environment

THIS_TK = (sys.executable, "-P", "-m", "toolchain")
_KILLED = -9


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a command ended. code: None where a limit ended it. document: what it printed with `--json`."""

    words: tuple[str, ...]
    code: int | None
    document: dict[str, Any]
    errors: str
    seconds: float
    ended_by: Literal["", "time", "memory"] = ""
    why: str = ""

    @property
    def log(self) -> str:
        """The command and what it said."""
        end = self.why if self.code is None else f"exit code {self.code}"
        lines = (
            f"$ {shlex.join(('tk', *self.words))}",
            self.errors.rstrip(),
            f"[{end}, {self.seconds:.1f} s]",
        )
        return "\n".join(filter(None, lines)) + "\n"

    @property
    def error(self) -> dict[str, Any]:
        """The error of a command that failed; empty where it did not say one."""
        error = self.document.get("error")
        return error if isinstance(error, dict) else {}

    @property
    def reason(self) -> str:
        """Why it failed, in one line."""
        if self.why:
            return self.why
        said = (str(self.error.get(name, "")).strip() for name in ("what", "why"))
        text = ": ".join(filter(None, said)) or (self.errors.strip().splitlines() or [""])[-1]
        return " ".join(text.split())[:500]

    @property
    def was_short_of_memory(self) -> bool:
        """Whether memory was what it lacked: a limit ended it, the kernel did, or it says so itself."""
        if self.ended_by == "memory" or self.code == _KILLED:
            return True
        if not self.code:
            return False
        said = f"{self.reason}\n{self.errors}".lower()
        return any(complaint in said for complaint in _LACKS_MEMORY)


_LACKS_MEMORY = (
    "out of memory",
    "cannot allocate memory",
    "virtual memory exhausted",
    "std::bad_alloc",
    "sigkill",
    "killed signal terminated program",
    "cl_out_of_host_memory",
    "cl_mem_object_allocation_failure",
)
"""What drivers, compilers and tk say, and the signal that the kernel sends, when memory runs out."""


def run_step(
    words: Sequence[str], folder: Path, limits: TrialLimits, *, tk: Sequence[str] = THIS_TK, jobs: int = 0
) -> StepResult:
    """Run `tk` with these words and `--json` in a folder; a crash, a timeout and the like are results.

    jobs: compilations that it may run at the same time; 0: as many as it likes.
    """
    lines: list[str] = []
    started = time.monotonic()
    environment = python_environment() | ({"TK_JOBS": str(jobs)} if jobs else {})

    def ended(by: Literal["time", "memory"], error: TkError) -> StepResult:
        why = error.why if by == "memory" else f"did not end within {limits.seconds:g} s"
        return StepResult(
            tuple(words), None, {}, "\n".join(lines), time.monotonic() - started, by, f"tk {words[0]}: {why}"
        )

    try:
        done = run(
            [*tk, *words, "--json"],
            cwd=folder,
            env=environment,
            timeout=limits.seconds,
            memory=limits.memory,
            on_error_line=lines.append,
        )
    except MemoryLimitError as error:
        return ended("memory", error)
    except CrashError as error:
        return ended("time", error)
    return StepResult(tuple(words), done.returncode, _document(done.stdout), done.stderr, done.seconds)


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
