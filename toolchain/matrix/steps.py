"""One step of a trial: an ordinary `tk` command in a process group of its own, within limits."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compiler import CrashError, DiskLimitError, MemoryLimitError, TkError, disk, run
from toolchain.matrix.plan import TrialLimits
from toolchain.settings import python_environment

THIS_TK = (sys.executable, "-P", "-m", "toolchain")
_KILLED = frozenset({-9, 128 + 9})
"""Here, and as a shell in a container says it."""
End = Literal["time", "memory", "disk"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a command ended. code: None where a limit ended it. document: what it printed with `--json`."""

    words: tuple[str, ...]
    code: int | None
    document: dict[str, Any]
    errors: str
    seconds: float
    ended_by: End | Literal[""] = ""
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
        return self.ended_by == "memory" or self.code in _KILLED or self._says(_LACKS_MEMORY)

    @property
    def wrote_too_much(self) -> bool:
        """Whether a limit of disk space ended it, here or in its container."""
        return self.ended_by == "disk" or self._says((DiskLimitError.SAID,))

    @property
    def met_a_full_disk(self) -> bool:
        """Whether the machine had no more space, for the work, its results or the cache."""
        return self._says(_FULL_DISK)

    def _says(self, complaints: Sequence[str]) -> bool:
        """Whether it failed with one of these words."""
        said = f"{self.reason}\n{self.errors}".lower() if self.code else ""
        return any(complaint in said for complaint in complaints)


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
_FULL_DISK = ("no space left on device", "disk quota exceeded")
"""What the system says (errno(3): ENOSPC, EDQUOT)."""


def run_step(
    words: Sequence[str], folder: Path, limits: TrialLimits, *, tk: Sequence[str] = THIS_TK, jobs: int = 0
) -> StepResult:
    """Run `tk` with these words and `--json` in a folder; a crash, a timeout and the like are results.

    Its temporary files are in the folder, too. jobs: compilations that it may run at the same time; 0: as
    many as it likes.
    """
    lines: list[str] = []
    started = time.monotonic()
    temporary = folder / "temporary"
    disk.make_directories(temporary)
    environment = python_environment() | {"TMPDIR": str(temporary)}
    environment |= {"TK_JOBS": str(jobs)} if jobs else {}

    def ended(by: End, error: TkError) -> StepResult:
        why = f"did not end within {limits.seconds:g} s" if by == "time" else error.why
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
            check=lambda: _check_disk(folder, limits.disk),
            on_error_line=lines.append,
        )
        _check_disk(folder, limits.disk)
    except MemoryLimitError as error:
        return ended("memory", error)
    except DiskLimitError as error:
        return ended("disk", error)
    except CrashError as error:
        return ended("time", error)
    return StepResult(tuple(words), done.returncode, _document(done.stdout), done.stderr, done.seconds)


def _check_disk(folder: Path, limit: int | None) -> None:
    """Raise DiskLimitError where a folder holds more than that."""
    if limit is None:
        return
    held = _bytes_in(str(folder))
    if held > limit:
        why = f"{held:,} bytes on the disk; the limit is {limit:,}"
        raise DiskLimitError(f"a step {DiskLimitError.SAID}", where=str(folder), why=why)


def _bytes_in(folder: str) -> int:
    """The space that the files in a folder take; those that go away meanwhile do not count."""
    held = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for one in entries:
            with contextlib.suppress(OSError):
                is_folder = one.is_dir(follow_symlinks=False)
                held += _bytes_in(one.path) if is_folder else one.stat(follow_symlinks=False).st_blocks * 512
    return held


def _document(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
