"""Targets: the only package that makes `TargetFacts`, and the only one that knows targets by name."""

from __future__ import annotations

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.targets.cpu import CPU
from compiler.targets.cuda import CUDA_NVIDIA
from compiler.targets.hip import HYGON, ROCM
from compiler.targets.opencl import OPENCL_ROWS
from compiler.targets.sycl import SYCL_ROWS
from compiler.targets.target import Target, TargetRow

__all__ = ["TARGETS", "Target", "TargetRow", "find_target", "get_target"]

ROWS: tuple[TargetRow, ...] = (CPU, *OPENCL_ROWS, *SYCL_ROWS, CUDA_NVIDIA, ROCM, HYGON)
"""Every target; a new one is a file in this package and a line here."""

TARGETS: dict[str, TargetRow] = {row.name: row for row in ROWS}


def find_target(name: str) -> TargetRow:
    """The row of a target by its name or an alias; raises UsageError for an unknown one."""
    for row in TARGETS.values():
        if name == row.name or name in row.aliases:
            return row
    known = [word for row in TARGETS.values() for word in (row.name, *row.aliases)]
    raise UsageError(
        f"unknown target `{name}`",
        why=f"known are {', '.join(TARGETS)}",
        hint=did_you_mean(name, known),
    )


def get_target(text: str, arch: str | None = None) -> Target:
    """The target called `NAME` or `NAME:ARCH`; `arch` is another way to say ARCH.

    Raises UsageError for an unknown name or architecture, HostError when this machine cannot be described.
    """
    name, _, given = text.partition(":")
    row = find_target(name)
    if given and arch and given != arch:
        raise UsageError(
            f"two architectures were given: `{given}` and `{arch}`",
            where=f"target `{text}`",
            hint="name one of them",
        )
    return row.make(given or arch or row.default_arch)
