"""What `tk inspect --machine-code` prints: a table of launches for each architecture, and their sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import compiler
from toolchain import console

_HEADER = (
    "function", "registers", "occupancy", "spills", "divisions", "inner div", "rounds", "fma", "matrix",
    "int", "shared", "global", "other", "cycles", "loop limit", "predicted us", "L2 us", "memory us",
    "least us", "limited by",
)  # fmt: skip
_COLUMNS = (("fma",), ("matrix",), ("imul", "alu", "scalar"), ("shared",), ("global",))
_NOTE = "a model's prediction, from published numbers: nothing was measured on a GPU"


def machine_code_lines(report: compiler.LibraryReport) -> Iterator[str]:
    """A table for each architecture, and its sum; nothing where no machine code was asked for."""
    rows = _rows(report)
    for arch in dict.fromkeys(resource.arch for _, _, resource in rows):
        of_arch = [one for one in rows if one[2].arch == arch]
        yield f"\nmachine code for {arch}: the innermost loop of each launch, instructions of one round"
        yield console.table(_HEADER, [_row(launch, resource) for _, launch, resource in of_arch])
        yield _sum(arch, of_arch)
    for reason in report.unread:
        yield f"no machine code: {reason}"


_Row = tuple["compiler.KernelInfo", "compiler.LaunchInfo", "compiler.ResourceInfo"]


def _rows(report: compiler.LibraryReport) -> list[_Row]:
    return [
        (kernel, launch, resource)
        for kernel in report.kernels
        for launch in kernel.launches
        for resource in launch.resources
        if resource.code is not None
    ]


def _row(launch: compiler.LaunchInfo, resource: compiler.ResourceInfo) -> tuple[object, ...]:
    code = resource.code
    assert code is not None
    room = code.occupancy
    return (
        launch.name,
        resource.registers,
        f"{room.share:.0%}, {room.limited_by}" if room else None,
        code.spills,
        code.divisions,
        code.inner_divisions,
        *_loop(code.innermost),
        *map(_rounded, (code.microseconds, code.l2_microseconds, code.memory_microseconds)),
        _rounded(resource.least_microseconds),
        _limit(code),
    )


def _rounded(microseconds: float | None) -> float | None:
    return None if microseconds is None else round(microseconds, 2)


def _loop(loop: compiler.LoopCode | None) -> Sequence[object]:
    """Rounds, instructions by unit, cycles and what limits them."""
    if loop is None:
        return (None,) * 9
    counts = [sum(loop.units.get(unit, 0) for unit in units) for units in _COLUMNS]
    cycles = None if loop.cycles is None else round(loop.cycles)
    return (loop.rounds, *counts, loop.instructions - sum(counts), cycles, loop.limited_by)


def _limit(code: compiler.MachineCode) -> str:
    idle = f", {code.units_used:.0%} of units" if code.units_used < 1 else ""
    return f"{code.limited_by}{idle}{'' if code.certain else ', way not certain'}"


def _sum(arch: str, rows: Sequence[_Row]) -> str:
    """The time of all launches of a run, as far as each is predicted."""
    known = [
        (kernel.steps, resource.code.microseconds)
        for kernel, _, resource in rows
        if resource.code is not None and resource.code.microseconds is not None
    ]
    if not known:
        return f"{arch}: no time is predicted, as there is no model of its ports"
    first = {kernel.index: (kernel.steps, resource.least_microseconds) for kernel, _, resource in rows}
    least = sum(steps * (one or 0.0) for steps, one in first.values())
    total = sum(steps * one for steps, one in known)
    return (
        f"{arch}: predicted {total:.0f} us for one run, one launch after the other without gaps;"
        f" {least:.0f} us at least, by FLOPs and bytes\n({_NOTE})"
    )
