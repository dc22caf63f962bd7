"""Targets: the only package that makes `TargetFacts`, and the only one that knows targets by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.render.vocabulary_cpp import CPP
from compiler.targets.cpu import cpu_facts, cpu_flags
from compiler.targets.features import FEATURES, LEVELS, features_text
from compiler.targets.target import Target

__all__ = ["TARGETS", "Target", "TargetRow", "get_target"]


@dataclass(frozen=True, slots=True)
class TargetRow:
    """A target that can be named: what it is, its architectures (for people), and how to make it."""

    name: str
    title: str
    archs: tuple[str, ...]
    default_arch: str
    make: Callable[[str], Target]


def _cpu(arch: str) -> Target:
    facts = cpu_facts(arch)
    ordered = tuple(name for name in FEATURES if name in facts.features)
    named = features_text(ordered) if facts.arch.startswith("host") else facts.arch
    return Target(f"cpu:{named}", facts, CPP, ordered, cpu_flags)


TARGETS: dict[str, TargetRow] = {
    row.name: row
    for row in (TargetRow("cpu", "host cores, C++", ("host", *LEVELS, "armv8-a"), "host", _cpu),)
}


def get_target(text: str, arch: str | None = None) -> Target:
    """The target called `NAME` or `NAME:ARCH`; `arch` is another way to say ARCH.

    Raises UsageError for an unknown name or architecture, HostError when this machine cannot be described.
    """
    name, _, given = text.partition(":")
    row = TARGETS.get(name)
    if row is None:
        raise UsageError(
            f"unknown target `{name}`",
            why=f"known are {', '.join(TARGETS)}",
            hint=did_you_mean(name, TARGETS),
        )
    if given and arch and given != arch:
        raise UsageError(
            f"two architectures were given: `{given}` and `{arch}`",
            where=f"target `{text}`",
            hint="name one of them",
        )
    return row.make(given or arch or row.default_arch)
