"""Under what a kernel runs on this machine, and in what two such environments differ."""

from __future__ import annotations

from dataclasses import fields

from compiler import __version__
from compiler.core.diagnostics import HostError
from compiler.core.precision import EXACT
from compiler.core.settings import Settings, usable_processors
from compiler.stages.finished import package_digest
from compiler.targets import Target, find_target
from compiler.targets.features import host_cpuinfo
from compiler.tune.record import Environment

_DIGITS = 12
_UNNAMED = "a processor without a name"


def environment_here(target: Target, settings: Settings, threads: int | None = None) -> Environment:
    """What times of kernels for `target` depend on here, with so many threads (by default all).

    The version of tk has a digest of the compiler's files: what makes other kernels of the same decisions.
    Raises HostError where the target's toolchain is missing.
    """
    name, _, arch = target.text.partition(":")
    cxx = target.cxx(settings)
    readiness = find_target(name).readiness
    digests = (package_digest(), *(digest for _, digest in target.plugins.identity))
    made_by = "+".join((__version__, *(digest[:_DIGITS] for digest in digests)))
    if target.device is None:
        threads = threads or settings.threads or usable_processors()
        flags = " ".join(target.flags(cxx))
        return Environment(name, arch, processor_name(), "", cxx.description, flags, threads, made_by)
    compiles, runs = readiness.compiles(target, settings), readiness.runs(settings)
    device, _, driver = runs.reason.partition(", driver ") if runs else ("", "", "")
    flags = target.facts.precision if target.facts.precision != EXACT else ""
    return Environment(name, arch, device, driver, compiles.reason, flags, 0, made_by)


def differences(wanted: Environment, found: Environment) -> tuple[str, ...]:
    """The names of the fields in which two environments differ, `tk` left out.

    Another version of tk is no difference: what counts is the program that it makes of the decisions.
    """
    names = (item.name for item in fields(Environment) if item.name != "tk")
    return tuple(name for name in names if getattr(wanted, name) != getattr(found, name))


def processor_name() -> str:
    """The processor as it calls itself; where it has no name, by the numbers of its maker."""
    try:
        found = host_cpuinfo()
    except HostError:
        return _UNNAMED
    parts = (found.get(name, "") for name in ("CPU implementer", "CPU part", "CPU variant"))
    return found.get("model name") or " ".join(filter(None, parts)) or _UNNAMED
