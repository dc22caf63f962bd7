"""What instruments without a GPU say of a network's kernels: accesses, machine code, bars for both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support import model_path

import compiler
from compiler.core.files import private_directory
from compiler.runtime.manifest import manifest_of
from compiler.schedule.rules.threads.common import units
from compiler.targets import get_target
from compiler.verify.access import access_of, access_of_module
from toolchain import zoo

GOOD_FETCH = 0.9
"""The ideal sectors of a launch's fetches as a part of those that they take."""
GOOD_BYTES = 0.95
"""The part of a network's fetched bytes that launches as good as that must fetch."""
MOST_WAYS = 2
"""Of a bank conflict in an innermost loop."""
LEAST_WORK = 4096
"""Multiply-adds, or elements of 4 bytes, that are worth a block of their own: 128 for each of 32 lanes."""


@dataclass(frozen=True, slots=True)
class Linted:
    """A launch of a network's kernel; units: multiprocessors of the card; work: as in LEAST_WORK.

    resource: what the vendor's compiler made of it, with its machine code, where that was read.
    """

    launch: compiler.LaunchAccess
    least_bytes: int
    units: int
    work: float
    resource: compiler.ResourceInfo | None = None

    @property
    def fetches_well(self) -> bool:
        """Whether the sectors of its fetches are few enough."""
        found = self.launch.fetch_efficiency
        return found is None or found >= GOOD_FETCH

    @property
    def grid_too_small(self) -> bool:
        """Whether units have nothing to do although there is work for them."""
        return self.launch.blocks < min(self.units, self.work / LEAST_WORK)

    @property
    def code(self) -> compiler.MachineCode | None:
        """What its machine code says, where it was read."""
        return self.resource.code if self.resource else None


@dataclass(frozen=True, slots=True)
class Network:
    """The launches of a network; toolchain: that made its machine code; unread: why there is none."""

    name: str
    launches: tuple[Linted, ...]
    toolchain: str = ""
    unread: str = ""

    @property
    def microseconds(self) -> float:
        """The predicted time of all calls."""
        return sum(one.launch.calls * (one.code.microseconds or 0.0) for one in self.launches if one.code)


def together(codes: Sequence[compiler.MachineCode]) -> tuple[float, str]:
    """Predicted microseconds of launches one after the other, and what limits the longest one."""
    longest = max(codes, key=lambda code: code.microseconds or 0.0)
    return sum(code.microseconds or 0.0 for code in codes), longest.limited_by


# ---------------------------------------------------------------- the tables


@dataclass(frozen=True, slots=True)
class Column:
    """A value of every launch in a golden table; further instruments add further columns."""

    name: str
    value: Callable[[Linted], str]


def _waits(one: Linted) -> str:
    waits, at_once = one.launch.waits
    return f"{100 * at_once / waits:.0f}%" if waits else "-"


def _fetch(one: Linted) -> str:
    found = one.launch.fetch_efficiency
    return "-" if found is None else f"{100 * found:.0f}%"


def _occupancy(one: Linted) -> str:
    room = one.code.occupancy if one.code else None
    return f"{100 * room.share:.0f}%" if room else "-"


COLUMNS = (
    Column("calls", lambda one: f"{one.launch.calls}"),
    Column("grid", lambda one: "x".join(map(str, one.launch.grid))),
    Column("block", lambda one: "x".join(map(str, one.launch.block))),
    Column("fetch", _fetch),
    Column("moved", lambda one: f"{one.launch.moved / 1e6:.2f}MB"),
    Column("least", lambda one: f"{one.least_bytes / 1e6:.2f}MB"),
    Column("conflict", lambda one: f"{one.launch.worst_conflict}"),
    Column("idle", lambda one: f"{100 * one.launch.idle:.0f}%"),
    Column("barriers", lambda one: f"{one.launch.barriers:.0f}"),
    Column("at-once", _waits),
)
"""What the emulator counts: the same on every machine."""

CODE_COLUMNS = (
    Column("registers", lambda one: f"{one.resource.registers if one.resource else '-'}"),
    Column("occupancy", _occupancy),
    Column("spills", lambda one: f"{one.code.spills if one.code else '-'}"),
    Column("inner-divisions", lambda one: f"{one.code.inner_divisions if one.code else '-'}"),
    Column("us", lambda one: f"{(one.code.microseconds or 0.0) if one.code else 0.0:.2f}"),
    Column("by", lambda one: (one.code.limited_by if one.code else "") or "-"),
)
"""What the machine code says: of one release of the vendor's compiler."""


def lines_of(network: str, found: Sequence[Linted], columns: Sequence[Column] = COLUMNS) -> list[str]:
    """A network's lines of a golden table: columns by name, so that a new one leaves the others alone."""
    return [
        f"{network} {one.launch.function} " + " ".join(f"{item.name}={item.value(one)}" for item in columns)
        for one in found
    ]


SUMMARY = (
    "network", "ideal sectors", "worst conflict", "waits behind products", "occupancy", "spills",
    "inner divisions", "small grids", "predicted us", "least us",
)  # fmt: skip


def summary_row(network: Network) -> tuple[str, ...]:
    """A network's row under `SUMMARY`: sectors by bytes, occupancy by predicted time, others summed up."""
    found, code = network.launches, [one for one in network.launches if one.code]
    fetched = sum(one.launch.fetched * one.launch.calls for one in found)
    ideal = sum(one.launch.fetched * one.launch.calls * (one.launch.fetch_efficiency or 0.0) for one in found)
    waits = [one.launch.waits for one in found]
    every, at_once = (sum(one[at] for one in waits) for at in (0, 1))
    return (
        network.name,
        f"{100 * ideal / fetched:.0f} %" if fetched else "-",
        f"{max((one.launch.worst_conflict for one in found), default=1)}",
        f"{100 - 100 * at_once / every:.0f} %" if every else "-",
        *(_code_cells(network, code) if code else ("-", "-", "-")),
        f"{sum(one.grid_too_small for one in found)} of {len(found)}",
        *((f"{network.microseconds:.0f}", f"{_least(code):.0f}") if code else ("-", "-")),
    )


def _code_cells(network: Network, found: Sequence[Linted]) -> tuple[str, str, str]:
    spent = network.microseconds
    codes = [(one.launch.calls, one.code) for one in found if one.code]
    busy = sum(n * (code.microseconds or 0.0) * code.occupancy.share for n, code in codes if code.occupancy)
    spills = sum(code.spills > 0 for _, code in codes)
    divide = sum(code.inner_divisions > 0 for _, code in codes)
    return (
        f"{100 * busy / spent:.0f} %" if spent else "-",
        f"{spills} of {len(found)}",
        f"{divide} of {len(found)}",
    )


def _least(found: Iterable[Linted]) -> float:
    """Microseconds that FLOPs and bytes of the kernels take, each kernel's launches together."""
    kernels: dict[int, float] = {}
    for one in found:
        least = one.resource.least_microseconds if one.resource else None
        kernels[one.launch.kernel] = one.launch.calls * (least or 0.0)
    return sum(kernels.values())


# ---------------------------------------------------------------- the bars


def findings(found: Sequence[Linted]) -> list[str]:
    """The bars that do not hold for a network, each with what is in the way, the worst first."""
    return [
        *_fetch_findings(found),
        *_conflict_findings(found),
        *_grid_findings(found),
        *_code_findings(found),
    ]


def _fetch_findings(found: Sequence[Linted]) -> list[str]:
    fetched = {one.launch.function: one.launch.fetched * one.launch.calls for one in found}
    good = sum(fetched[one.launch.function] for one in found if one.fetches_well)
    whole = sum(fetched.values())
    if not whole or good >= GOOD_BYTES * whole:
        return []
    bad = sorted(
        (one for one in found if not one.fetches_well), key=lambda one: -fetched[one.launch.function]
    )
    shown = _some(f"{one.launch.function} ({_fetch(one)})" for one in bad)
    part = f"{100 * good / whole:.0f} % of the bytes, not {100 * GOOD_BYTES:.0f} %"
    return [f"fetches: launches with {100 * GOOD_FETCH:.0f} % of ideal sectors fetch {part}: {shown}"]


def _conflict_findings(found: Sequence[Linted]) -> list[str]:
    bad = sorted(
        (one.launch for one in found if one.launch.worst_conflict > MOST_WAYS),
        key=lambda one: -one.worst_conflict,
    )
    shown = _some(f"{one.function} ({one.worst_conflict} ways)" for one in bad)
    return [f"bank conflicts in innermost loops: {shown}"] if bad else []


def _grid_findings(found: Sequence[Linted]) -> list[str]:
    bad = [one for one in found if one.grid_too_small]
    shown = _some(f"{one.launch.function} ({one.launch.blocks} blocks)" for one in bad)
    return [f"grids smaller than {bad[0].units} units: {shown}"] if bad else []


def _code_findings(found: Sequence[Linted]) -> list[str]:
    read = [(one.launch.function, one.code) for one in found if one.code]
    spills = _some(f"{name} ({code.spills})" for name, code in read if code.spills)
    divisions = _some(f"{name} ({code.inner_divisions})" for name, code in read if code.inner_divisions)
    return [
        *([f"registers spilled: {spills}"] if spills else []),
        *([f"divisions in innermost loops: {divisions}"] if divisions else []),
    ]


def _some(texts: Iterable[str], most: int = 6) -> str:
    every = list(texts)
    return ", ".join(every[:most]) + (f" and {len(every) - most} more" if len(every) > most else "")


# ---------------------------------------------------------------- measuring


def lint(network: str, target: str, models: Path, *, code: bool = True) -> Network:
    """Compile a network, count its accesses and, with `code`, read its machine code.

    Where the vendor's tools are missing, or read this architecture no longer, there is no machine code, and
    `unread` says why. Raises TkError where the network is not compiled or not counted.
    """
    name, _, mode = target.partition("+")
    record = zoo.network(network)
    dims = dict(record.sizes[0]) if record.sizes else {}
    with private_directory("tk-gpu-lint") as directory:
        options = compiler.CompileOptions(
            output=directory / "network",
            target=name,
            dump=directory / "dump",
            precision=mode or "f32",
            dims=dims,
        )
        path = model_path(network, models)
        why = "not asked for"
        if code:
            try:
                compiler.compile_model(path, options)
                return _of_library(network, options.output)
            except compiler.HostError as error:
                why = "; ".join(error.lines())
        compiler.compile_model(path, replace(options, output=directory / "source", emit="source"))
        manifest = json.loads((directory / "dump" / "62-manifest.json").read_text())
        (source,) = (directory / "source").glob("kernels.*")
        report = access_of_module(source, manifest, source.read_text())
    return Network(network, _launches(report, manifest, {}), unread=why)


def _of_library(network: str, library: Path) -> Network:
    found = compiler.inspect_library(library, machine_code=True)
    resources = {launch.name: launch.resources[0] for kernel in found.kernels for launch in kernel.launches}
    report = access_of(library)
    return Network(
        network,
        _launches(report, manifest_of(library), resources),
        toolchain=found.toolchain,
        unread="; ".join(found.unread),
    )


def _launches(
    report: compiler.AccessReport,
    manifest: Mapping[str, Any],
    resources: Mapping[str, compiler.ResourceInfo],
) -> tuple[Linted, ...]:
    of_card = units(get_target(manifest["target"], manifest["arch"]).facts)
    return tuple(
        Linted(
            one,
            report.least[one.kernel],
            of_card,
            _work(one, report, manifest["kernels"][one.kernel]["flops"]),
            resources.get(one.function),
        )
        for one in report.launches
    )


def _work(one: compiler.LaunchAccess, report: compiler.AccessReport, flops: int) -> float:
    """Multiply-adds of the kernel count for the launch of it that moves most."""
    beside = [other for other in report.launches if other.kernel == one.kernel]
    products = flops / 2 if one == max(beside, key=lambda other: other.moved) else 0.0
    return max(one.moved / 4, products)
