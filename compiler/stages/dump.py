"""What a compile leaves behind for its reader, and how an edited file gets back in.

Files are numbered in the order of the stages. Stages about the whole model are one file; stages
about kernels are a directory with one file per kernel:

    00-import.txt  01-<pass>.txt ...  20-fuse.txt  21-layout.txt
    30-loops/k000.loops  31-trace/k000.json  32-schedule/k000.loops  4x-<pass>/k000.loops  50-render/k000.cpp
    60-plan.txt  61-host.cpp  62-manifest.json
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import BadInputError, UsageError, did_you_mean
from compiler.core.files import write_atomic

LOOPS, TRACE, SCHEDULE, RENDER = "30-loops", "31-trace", "32-schedule", "50-render"
EDITABLE = {LOOPS: ".loops", TRACE: ".json", SCHEDULE: ".loops", RENDER: ".cpp"}
"""Kernel stages that `--from` accepts, and the suffix of their files."""


@dataclass(frozen=True, slots=True)
class Dump:
    """Writes stage texts below `directory`; does nothing without one."""

    directory: Path | None

    def __bool__(self) -> bool:
        return self.directory is not None

    def model(self, stage: str, text: str, suffix: str = ".txt") -> None:
        """The text of a stage about the whole model."""
        if self.directory is not None:
            _write(self.directory / f"{stage}{suffix}", text)

    def kernel(self, stage: str, number: int, text: str, suffix: str = ".loops") -> None:
        """The text of a stage about one kernel."""
        if self.directory is not None:
            _write(self.directory / stage / f"{kernel_file(number)}{suffix}", text)


def kernel_file(number: int) -> str:
    """File name, without suffix, of a kernel's stages."""
    return f"k{number:03}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text if text.endswith("\n") else text + "\n")


@dataclass(frozen=True, slots=True)
class Edit:
    """An edited stage file of one kernel, which replaces what that stage would have made."""

    stage: str
    kernel: int
    text: str
    path: Path

    def applies(self, stage: str, kernel: int) -> bool:
        """Whether this edit replaces the product of `stage` for `kernel`."""
        return self.stage == stage and self.kernel == kernel


def read_edit(path: Path) -> Edit:
    """Read a file that `--dump` wrote and somebody edited.

    Raises UsageError when the name does not say which stage and kernel it belongs to, BadInputError when it
    cannot be read.
    """
    stage = path.parent.name
    found = re.fullmatch(r"k(\d{3,})", path.stem)
    if stage not in EDITABLE or found is None:
        raise UsageError(
            f"cannot go on from `{path.name}`",
            where=f"--from {path}",
            why=f"`{stage}` is not a stage whose files can be fed back",
            hint=did_you_mean(stage, EDITABLE)
            or "use a file k000.* below one of " + ", ".join(EDITABLE) + " of a --dump directory",
        )
    try:
        return Edit(stage, int(found[1]), path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError("cannot read the edited stage file", where=str(path), why=str(error)) from error
