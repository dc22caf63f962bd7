"""Targets: the only package that makes `TargetFacts`, and the only one that knows targets by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.targets.precision import in_precision
from compiler.targets.target import Target, TargetRow

__all__ = [
    "DEFAULT_TARGET",
    "Target",
    "TargetRow",
    "all_targets",
    "choose_targets",
    "find_target",
    "get_target",
    "matches",
]

_LANGUAGES = (
    "cpu",
    "opencl",
    "sycl",
    "cuda",
    "hip",
)
"""The files of this package that have targets, each in its ROWS; a new one is a file and a line here."""


def all_targets() -> Iterator[TargetRow]:
    """The row of every target, in order; a language is imported when its first target is asked for."""
    for name in _LANGUAGES:
        yield from import_module(f"compiler.targets.{name}").ROWS


DEFAULT_TARGET = next(all_targets()).name
"""What a model is compiled for unless something else is asked for: the host's cores."""


def find_target(name: str) -> TargetRow:
    """The row of a target by its name or an alias; raises UsageError for an unknown one."""
    for row in all_targets():
        if matches(row, name):
            return row
    known = [word for row in all_targets() for word in (row.name, *row.aliases)]
    raise UsageError(
        f"unknown target `{name}`",
        why=f"known are {', '.join(row.name for row in all_targets())}",
        hint=did_you_mean(name, known),
    )


def matches(row: TargetRow, name: str) -> bool:
    """Whether a name or an alias is that of a row."""
    return name == row.name or name in row.aliases


def choose_targets(texts: Sequence[str], arch: str | None = None) -> tuple[tuple[str, str | None], ...]:
    """(name, architectures) of each target in lists such as `opencl-cpu,cuda:sm_70,sm_90`.

    What follows `NAME:ARCH` and is no target is another architecture of it. `arch` holds for all targets that
    name none. Raises UsageError that has every unknown name, and for a target that is named twice.
    """
    chosen: list[tuple[str, str | None]] = []
    problems: list[UsageError] = []
    named = _named(texts)
    if arch and named and all(given for _, given in named):
        what = f"two architectures were given: `{named[0][1]}` and `{arch}`"
        raise UsageError(what, where=f"target `{','.join(texts)}`", hint="name one of them")
    for name, given in named:
        try:
            get_target(name, given or arch)
            chosen.append((find_target(name).name, given or arch))
        except UsageError as error:
            problems.append(error)
            if arch and not given and len(named) > 1:
                error.where = f"target `{name}`"
                error.hint = error.hint or f"give each target its own, as in `{name}:ARCH`"
    twice = sorted({name for name, archs in chosen if chosen.count((name, archs)) > 1})
    if twice:
        problems.append(UsageError(f"named twice: {', '.join(twice)}", hint="name each target once"))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        hints = dict.fromkeys(error.hint for error in problems if error.hint)
        what = "; ".join(dict.fromkeys(f"{e.what} ({e.where})" if e.where else e.what for e in problems))
        raise UsageError(what, hint="; ".join(hints))
    return tuple(chosen)


def _named(texts: Sequence[str]) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for text in texts:
        last = len(found)  # architectures do not go on across lists
        for part in text.split(","):
            name, colon, arch = part.strip().partition(":")
            known = any(matches(row, name) for row in all_targets())
            if not colon and not known and len(found) > last and found[-1][1]:
                found[-1] = (found[-1][0], f"{found[-1][1]},{name}")
            else:
                found.append((name, arch))
    return found


def get_target(text: str | None = None, arch: str | None = None, *, precision: str = "f32") -> Target:
    """The target called `NAME` or `NAME:ARCH`, by default the host's cores.

    `arch` is another way to say ARCH. `precision`: what factors of f32 may be rounded to. Raises UsageError
    for an unknown name, architecture or precision, HostError when this machine cannot be described,
    BadInputError when one of the architectures does not multiply in that precision.
    """
    name, _, given = (text or DEFAULT_TARGET).partition(":")
    row = find_target(name)
    if given and arch and given != arch:
        raise UsageError(
            f"two architectures were given: `{given}` and `{arch}`",
            where=f"target `{text}`",
            hint="name one of them",
        )
    target = row.make(given or arch or row.default_arch)
    return in_precision(target, precision)
