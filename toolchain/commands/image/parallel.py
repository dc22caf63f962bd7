"""Several images at a time: each in a `tk` of its own, as far as the engine's memory goes.

What two of them need is built once, as the second waits for the first (engine/build.py). What was built so
is found by the command itself, which shows it and pushes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from compiler import HostError, run
from toolchain import console
from toolchain.commands.multi_target import said_inside
from toolchain.settings import python_environment

if TYPE_CHECKING:
    from toolchain.engine.client import Engine

Document = Mapping[str, Any]
_BYTES_EACH = 16 << 30
"""Memory for one build: linking LLVM, as DPC++ is built, takes that."""
_OWN = ("jobs", "json", "push", "registry", "private")
"""Options of the command itself."""


def fitting_jobs(engine: Engine) -> int:
    """How many builds the engine's machine has memory for; at least one."""
    return max(1, int(engine.info.get("MemTotal") or 0) // _BYTES_EACH)


def build_parallel(context: typer.Context, names: Sequence[str], jobs: int) -> dict[str, Document]:
    """Build images, `jobs` at a time, with the options of the command line; what `--json` prints of each.

    That of one that failed has its `name`, `exit_code` and `error`. What each says goes to standard error,
    with its name before it.
    """
    from concurrent.futures import ThreadPoolExecutor

    console.talk(f"building {len(names)} images, {jobs} at a time")
    words = list(_options(context))
    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(names, pool.map(lambda name: _build(name, words), names), strict=True))


def _build(name: str, words: Sequence[str]) -> Document:
    argv = [sys.executable, "-m", "toolchain", "image", "build", name, "--json", *words]
    done = run(argv, env=python_environment(), on_error_line=lambda line: console.talk(f"{name}: {line}"))
    if done.returncode < 0:
        killed = HostError(
            f"the process that built {name} was killed by signal {-done.returncode}",
            why="a machine that runs out of memory does that",
            hint="`--jobs 1` builds one image at a time",
        )
        console.show_error(killed)
        return console.failed_document(name, killed)
    if done.returncode:
        return {"name": name, "exit_code": done.returncode, **said_inside(done.stdout, done.returncode)}
    built: Document = json.loads(done.stdout)
    return built


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
