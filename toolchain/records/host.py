"""What a record says of the machine that made it."""

from __future__ import annotations

import platform
from pathlib import Path

import compiler
from toolchain.records.record import Versions

_CPUINFO = Path("/proc/cpuinfo")


def host_versions() -> Versions:
    """Of tk, the system and Python; what a target's own tools and drivers are is left open."""
    system = f"{platform.system()} {platform.release()}, {processor_name()}"
    return Versions(tk=compiler.__version__, system=system, python=platform.python_version())


def processor_name(cpuinfo: Path = _CPUINFO) -> str:
    """This machine's processor in its own words."""
    try:
        lines = cpuinfo.read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "CPU part")))
    return next(named, platform.machine())
