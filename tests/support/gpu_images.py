"""What compilers of GPUs made of a network: read from the library, checked, shown in a table at the end."""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import compiler
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob

CUDA = ("cuda", ("sm_70", "sm_75", "sm_80", "sm_90"))
HIP = ("rocm", ("gfx906", "gfx908", "gfx90a"))
HIP_NARROW = ("rocm", ("gfx1030",))
"""Its sub-groups have 32 lanes, those of the others 64: a library of its own."""

MOST_SPILLED = 16
"""Bytes of a function's registers that a compiler may keep in memory: ptxas parks a word of a few."""

_PROPERTY = "device functions of a network"
_ENTRY_POINT, _FUNCTION = 15, 54
_HEADER_WORDS = 5
_SPIRV_MAGIC = struct.pack("<I", 0x07230203)


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds on the clock, and of processors where this process and its children did the work."""

    clock: float
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One network for one target: time, device functions, and the most that one of them takes.

    spilling: `function arch bytes` of each that keeps registers in memory. None: the toolchain does not tell.
    """

    network: str
    target: str
    time: Time
    functions: int
    registers: int | None = None
    shared_bytes: int | None = None
    spilling: tuple[str, ...] = ()
    where: str = "host"


def compiled_here(model: Path, target: str, archs: Sequence[str], library: Path) -> Time:
    """Compile with this machine's toolchains, past the cache of finished libraries."""
    started = now()
    options = compiler.CompileOptions(output=library, target=target, arch=",".join(archs) or None)
    run_job(CompileJob.of(model, options))
    return since(started)


def now() -> Time:
    return Time(time.perf_counter(), sum(os.times()[:4]))


def since(started: Time) -> Time:
    """What passed since then."""
    ended = now()
    return Time(ended.clock - started.clock, (ended.cpu or 0) - (started.cpu or 0))


def binaries(
    network: str, target: str, archs: Sequence[str], library: Path, took: Time, where: str = "host"
) -> Row:
    """A library's row, once each architecture has its binary and each device function its numbers on it."""
    manifest = compiler.manifest_of(library)
    functions = device_functions(manifest)
    made = {(one["kind"], one["arch"]) for one in manifest["images"] if one["bytes"] > 0}
    kind = {"sm": "cubin", "gf": "hsaco"}
    assert {(kind[arch[:2]], arch) for arch in archs} <= made
    resources = manifest["resources"]
    told = [(row["kernel"], row["arch"]) for row in resources]
    assert sorted(told) == sorted((name, arch) for name in functions for arch in archs)
    assert all(row["registers"] > 0 and row["spills"] >= 0 and row["shared_bytes"] >= 0 for row in resources)
    spilling = {(row["kernel"], row["arch"]): row["spills"] for row in resources if row["spills"]}
    assert not {one: spills for one, spills in spilling.items() if spills > MOST_SPILLED}
    return Row(
        network,
        f"{target} {','.join(archs)}",
        took,
        len(functions),
        max(row["registers"] for row in resources),
        max(row["shared_bytes"] for row in resources),
        tuple(f"{kernel} {arch} {spills}" for (kernel, arch), spills in spilling.items()),
        where,
    )


def device_functions(manifest: dict[str, Any]) -> list[str]:
    """The names of all device functions of a library."""
    return [launch["name"] for kernel in manifest["kernels"] for launch in kernel["launches"]]


def shared_most(manifest: dict[str, Any]) -> int:
    """The bytes that the arrays of a work-group take, at most, as the compiler planned them."""
    return max(one["shared_bytes"] for kernel in manifest["kernels"] for one in kernel["launches"])


def spirv_entries(data: bytes) -> list[str]:
    """The kernels of every SPIR-V module in `data` (SPIR-V specification, "Logical Layout of a Module")."""
    found, at = [], data.find(_SPIRV_MAGIC)
    while at >= 0:
        found += _entries(data, at + 4 * _HEADER_WORDS)
        at = data.find(_SPIRV_MAGIC, at + 1)
    return found


def _entries(data: bytes, at: int) -> Iterator[str]:
    """What the OpEntryPoints of a module name; they stand before its functions."""
    while at < len(data):
        opcode, words = struct.unpack_from("<HH", data, at)
        assert words > 0
        if opcode == _FUNCTION:
            return
        if opcode == _ENTRY_POINT:
            yield data[at + 12 : data.index(b"\0", at + 12)].decode()
        at += 4 * words


def tell(row: Row, record: Callable[[str, object], None]) -> None:
    """Show a row now (with `pytest -s`), and in the table at the end of the session."""
    sys.stdout.write(f"\n{shown(row)}\n")
    sys.stdout.flush()
    record(_PROPERTY, json.dumps(asdict(row)))


def shown(row: Row) -> str:
    """One line of the table."""
    registers = "-" if row.registers is None else str(row.registers)
    cpu = "-" if row.time.cpu is None else f"{row.time.cpu:.1f}"
    shared = "-" if row.shared_bytes is None else str(row.shared_bytes)
    functions = {item.split()[0] for item in row.spilling}
    return (
        f"{row.network:32}{row.target:36}{row.where:18}{row.time.clock:8.1f}{cpu:>8}{row.functions:6}"
        f"{registers:>6}{shared:>8}{len(functions):6}  {'; '.join(row.spilling)}"
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of everything that was compiled."""
    reports = terminalreporter.stats.get("passed", [])
    told = [value for one in reports for name, value in one.user_properties if name == _PROPERTY]
    if not told:
        return
    heads = ("network", "target", "where", "s", "CPU s", "funs", "regs", "shared", "spill")
    widths = ("<32", "<36", "<18", ">8", ">8", ">6", ">6", ">8", ">6")
    line = "".join(f"{head:{width}}" for head, width in zip(heads, widths, strict=True))
    terminalreporter.write_line(f"{line}  which spill, and bytes")
    for value in told:
        row = json.loads(value)
        terminalreporter.write_line(
            shown(Row(**{**row, "time": Time(**row["time"]), "spilling": tuple(row["spilling"])}))
        )
