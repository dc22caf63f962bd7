"""Several images at a time: each in a `tk` of its own, as far as the engine's memory goes.

What two of them need is built once, as the second waits for the first (engine/build.py). What was built so
is found by the command itself, which shows it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import typer

from compiler import run
from toolchain import console
from toolchain.settings import python_environment

if TYPE_CHECKING:
    from toolchain.engine.client import Engine

_BYTES_EACH = 16 << 30
"""Memory for one build: linking LLVM, as DPC++ is built, takes that."""
_OWN = ("jobs", "json", "push", "registry", "private")
"""Options of the command itself."""


def fitting(engine: Engine) -> int:
    """How many builds the engine's machine has memory for; at least one."""
    return max(1, int(engine.info.get("MemTotal") or 0) // _BYTES_EACH)


def build_beside(context: typer.Context, names: Sequence[str], jobs: int) -> dict[str, int]:
    """Build images, `jobs` at a time, with the options of the command line; the exit codes of failed ones.

    What each says goes to standard error, with its name before it.
    """
    console.talk(f"building {len(names)} images, {jobs} at a time")
    words = list(_options(context))
    with ThreadPoolExecutor(jobs) as pool:
        codes = list(pool.map(lambda name: _build(name, words), names))
    return {name: code for name, code in zip(names, codes, strict=True) if code}


def _build(name: str, words: Sequence[str]) -> int:
    argv = [sys.executable, "-m", "toolchain", "image", "build", name, *words]
    done = run(
        argv, env=python_environment(), merged=True, on_line=lambda line: console.talk(f"{name}: {line}")
    )
    return done.returncode


def _options(context: typer.Context) -> Iterator[str]:
    """The options that were typed, as words."""
    for one in context.command.params:
        source = context.get_parameter_source(str(one.name))
        if one.param_type_name == "argument" or one.name in _OWN or source is None:
            continue
        if source.name == "COMMANDLINE":
            yield from _words(max(one.opts, key=len), context.params[str(one.name)])


def _words(option: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield option
        return
    for one in value if isinstance(value, (list, tuple)) else [value]:
        yield f"{option}={one}"
