"""What a user wishes of a container beside its image. Imports nothing heavy, as `tk --help` imports it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wishes:
    """What was asked for: numbers of accelerators (none: all), profiling, debugging, no seccomp filter."""

    numbers: tuple[int, ...] = ()
    allow_profiling: bool = False
    allow_debugging: bool = False
    no_seccomp: bool = False


@dataclass(frozen=True, slots=True)
class Extras:
    """As typed: `-v SRC:DST[:ro]`, `-e NAME[=VALUE]`, `-p [[ADDRESS:]HOST:]PORT[/udp]`, `--workdir`."""

    volumes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    workdir: str = ""
