"""What a compile leaves behind for its reader, and how an edited file gets back in.

Files are numbered in the order of the stages, so that a listing reads from top to bottom (see `INDEX`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from compiler.core.diagnostics import BadInputError, UsageError, did_you_mean
from compiler.core.files import remove_abandoned_parts, remove_own, write_atomic

IMPORT, REWRITE, FUSE, LAYOUT = "00-import", "10-rewrite", "20-fuse", "21-layout"
KERNELS, LOWER, MODULE = "22-kernels", "40-lower", "51-module"
PLAN, HOST, MANIFEST = "60-plan", "61-host", "62-manifest"
SPECIALISED = "70-specialised"
LOOPS, TRACE, SCHEDULE, RENDER = "30-loops", "31-trace", "32-schedule", "50-render"
EDITABLE = {LOOPS: ".loops", TRACE: ".json", SCHEDULE: ".loops", RENDER: ".cpp"}
"""Kernel stages that `--from` accepts, and the suffix of their files."""

INDEX = """\
What the stages of one compile made, in order.

00-import.txt       the graph as it was read: one line for each node, %N are tensors
10-rewrite/         the graph after each rewrite that changed it
20-fuse.txt         groups of nodes, each of which becomes one kernel
21-layout.txt       how each tensor between kernels lies in memory
22-kernels.txt      the calls of the model in order: which kernel computes which group
30-loops/           kNNN.loops: what kernel NNN computes, as plain loops
31-trace/           kNNN.json: how its loops were rearranged, step by step
32-schedule/        kNNN.loops: the loops after these steps
40-lower/           the loops after each lowering pass that changed them
50-render/          kNNN.cpp: the source that is compiled
                    (for a device: its parts; 51-module.* has all of them, with what they need in front)
60-plan.txt         where each tensor lies, and the arguments of each call
61-host.cpp         the same as tables for the runtime
62-manifest.json    what the library says about itself
70-specialised/     graph to plan for sizes with kernels of their own, where there are any: 1, 2 ...

A file of 30-loops, 31-trace, 32-schedule or 50-render may be edited and fed back:

    tk compile MODEL --from DIR/32-schedule/k000.loops

It replaces what its stage would have made for that kernel; everything after it is made anew.
"""
_INDEX_FILE = "README.txt"
_OWN = re.compile(r"\d\d-[a-z]+(\.[a-z.]+)?")


@dataclass(frozen=True, slots=True)
class Dump:
    """Writes stage texts below `directory`; does nothing without one."""

    directory: Path | None = None

    @classmethod
    def open(cls, directory: Path | None) -> Self:
        """Start a dump in place of an earlier one; raises UsageError for a directory with other files."""
        if directory is not None:
            _make_room(directory)
            _write(directory / _INDEX_FILE, INDEX)
        return cls(directory)

    def __bool__(self) -> bool:
        return self.directory is not None

    def below(self, folder: str) -> Dump:
        """The same in a folder of this one."""
        return Dump(self.directory / folder if self.directory is not None else None)

    def model(self, stage: str, made: object, suffix: str = ".txt") -> None:
        """What a stage made of the whole model, as text."""
        if self.directory is not None:
            _write(self.directory / f"{stage}{suffix}", str(made))

    def kernel(self, stage: str, number: int, text: str, suffix: str = ".loops") -> None:
        """The text of a stage about one kernel."""
        if self.directory is not None:
            _write(self.directory / stage / f"{kernel_file(number)}{suffix}", text)


def _make_room(directory: Path) -> None:
    """Remove the files of an earlier dump: a mixture of two would mislead."""
    remove_abandoned_parts(directory)
    try:
        found = sorted(directory.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise UsageError(
            "cannot dump there", where=f"--dump {directory}", why=error.strerror or ""
        ) from error
    earlier = (directory / _INDEX_FILE).is_file() and (directory / _INDEX_FILE).read_bytes() == INDEX.encode()
    if found and not earlier:
        raise UsageError(
            "the dump directory is not empty",
            where=f"--dump {directory}",
            why=f"it holds `{found[0].name}`, which no dump wrote",
            hint="name a new directory",
        )
    for path in (one for one in found if _OWN.fullmatch(one.name)):
        remove_own(path)


def kernel_file(number: int) -> str:
    """File name, without suffix, of a kernel's stages."""
    return f"k{number:03}"


def _write(path: Path, text: str) -> None:
    write_atomic(path, text if text.endswith("\n") else text + "\n", durable=False)


@dataclass(frozen=True, slots=True)
class Edit:
    """An edited stage file of one kernel, which replaces what that stage would have made."""

    stage: str
    kernel: int
    text: str
    path: Path

    def check_applied(self, kernels: int) -> None:
        """Raise UsageError when the model has no kernel of this number."""
        if self.kernel >= kernels:
            raise UsageError(
                f"the model has no kernel {kernel_file(self.kernel)}",
                where=f"--from {self.path}",
                why=f"it has {kernels}, from {kernel_file(0)} to {kernel_file(kernels - 1)}",
                hint="dump this model with these options, and edit one of the files",
            )


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
