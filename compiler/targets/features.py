"""Instruction-set features of x86-64: names, levels, compiler flags, and which of them this machine has.

A feature carries the name that g++ and clang++ know it by (`-m<name>`). Levels are those of the
System V psABI (x86-64-v1 to v4). Nothing here says `-march=native`: it names the wrong processor inside
virtual machines, and a library must know by name what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import HostError, UsageError, did_you_mean
from compiler.targets.microarchitectures import NAMES


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature: its flag in `/proc/cpuinfo`, what it implies, and the oldest compilers that know it."""

    name: str
    cpuinfo: str
    implies: tuple[str, ...] = ()
    gcc: int = 9
    clang: int = 11


FEATURES: dict[str, Feature] = {
    item.name: item
    for item in (
        Feature("sse3", "pni"),
        Feature("ssse3", "ssse3", ("sse3",)),
        Feature("sse4.1", "sse4_1", ("ssse3",)),
        Feature("sse4.2", "sse4_2", ("sse4.1",)),
        Feature("popcnt", "popcnt"),
        Feature("avx", "avx", ("sse4.2",)),
        Feature("avx2", "avx2", ("avx",)),
        Feature("fma", "fma", ("avx",)),
        Feature("f16c", "f16c", ("avx",)),
        Feature("bmi", "bmi1"),
        Feature("bmi2", "bmi2"),
        Feature("avx512f", "avx512f", ("avx2", "fma", "f16c")),
        Feature("avx512cd", "avx512cd", ("avx512f",)),
        Feature("avx512bw", "avx512bw", ("avx512f",)),
        Feature("avx512dq", "avx512dq", ("avx512f",)),
        Feature("avx512vl", "avx512vl", ("avx512f",)),
        Feature("avx512vnni", "avx512_vnni", ("avx512f",)),
        Feature("avx512bf16", "avx512_bf16", ("avx512bw",), gcc=10),
        Feature("avx512fp16", "avx512_fp16", ("avx512bw", "avx512vl"), gcc=12, clang=14),
        Feature("amx-tile", "amx_tile", gcc=11, clang=12),
        Feature("amx-bf16", "amx_bf16", ("amx-tile",), gcc=11, clang=12),
        Feature("amx-int8", "amx_int8", ("amx-tile",), gcc=11, clang=12),
    )
}

_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2")
_V4 = (*_V3, "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl")

LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": _V2,
    "x86-64-v3": _V3,
    "x86-64-v4": _V4,
}


def parse_features(text: str) -> tuple[str, ...]:
    """Features of `LEVEL[+feature...]`, in the order of the table.

    Raises UsageError for an unknown level or feature.
    """
    level, *extra = text.split("+")
    if level not in LEVELS:
        raise UsageError(
            f"unknown architecture `{level}`",
            where=f"architecture `{text}`",
            why=f"known are host, {', '.join(LEVELS)}, each optionally followed by +feature",
            hint=did_you_mean(level, ("host", *LEVELS)),
        )
    return closure((*LEVELS[level], *checked(extra, text)))


def features_text(features: Iterable[str]) -> str:
    """The `LEVEL[+feature...]` that stands for exactly these features."""
    wanted = set(closure(features))
    level = next(name for name in reversed(LEVELS) if wanted.issuperset(LEVELS[name]))
    extra = [name for name in FEATURES if name in wanted.difference(LEVELS[level])]
    return "+".join((level, *extra))


def checked(names: Iterable[str], text: str) -> tuple[str, ...]:
    """The given names; raises UsageError when one is not a feature."""
    for name in (wanted := tuple(names)):
        if name not in FEATURES:
            raise UsageError(
                f"unknown processor feature `{name}`",
                where=f"architecture `{text}`",
                why=f"known are {', '.join(FEATURES)}; and processors: {', '.join(NAMES)}",
                hint=did_you_mean(name, (*FEATURES, *NAMES)),
            )
    return wanted


def closure(names: Iterable[str]) -> tuple[str, ...]:
    """The names and everything they imply, in the order of the table."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(FEATURES[name].implies)
    return tuple(name for name in FEATURES if name in found)


def host_cpuinfo(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """What the kernel reports of the first processor, by name; raises HostError without such a report."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise HostError(
            "cannot find out what this processor can do",
            where=str(cpuinfo),
            why=error.strerror or str(error),
            hint="name the architecture, for example --arch x86-64-v3",
        ) from error
    pairs = (line.partition(":")[::2] for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, value in pairs}


def host_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor flags that the kernel reports; raises what `host_cpuinfo` raises."""
    found = host_cpuinfo(cpuinfo)
    return frozenset((found.get("flags") or found.get("Features", "")).split())


def host_features(flags: frozenset[str]) -> tuple[str, ...]:
    """Those of the level features that a processor with these flags has.

    Features beyond the levels (matrix units, half precision) serve precisions that must be asked for;
    they are taken only when they are named, so that a library does not need what it never uses.
    """
    present = {name for name in _V4 if FEATURES[name].cpuinfo in flags}
    return tuple(name for name in _V4 if set(closure((name,))) <= present)
