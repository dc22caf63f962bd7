"""What plugins add to the compiler, by the layers that take it, and whose fault an error is.

A target carries the plugins of a compile, as schedules and lowered loops depend on both. What a rule, an
operator and a pass are given is the business of those layers: `compiler/plugin.py` has the words for it.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import BadInputError, TkError


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """One way to schedule kernels: `apply(schedule, facts, chooser)` gives True where it has scheduled one.

    It gives False, whatever it has done by then, where the kernel is none of its kind. Open decisions it
    asks of the chooser, under names that start with its own.
    """

    name: str
    apply: Callable[..., bool]


@dataclass(frozen=True, slots=True)
class LoweringPass:
    """A pass over loops: `run(func, facts)` gives the function, the same object where it changed nothing.

    after: the built-in pass that it follows.
    """

    name: str
    run: Callable[..., Any]
    after: str


@dataclass(frozen=True, slots=True)
class Plugin:
    """What one module adds: rules, asked before the built-in ones, operators' records and passes."""

    rules: tuple[ScheduleRule, ...] = ()
    operators: tuple[Any, ...] = ()
    passes: tuple[LoweringPass, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A plugin with the file or folder that it is code of, and the digest of all that is in there."""

    name: str
    path: Path
    digest: str
    plugin: Plugin


@dataclass(frozen=True, slots=True)
class Plugins:
    """The plugins of a compile, in the order that they were named."""

    loaded: tuple[LoadedPlugin, ...] = ()

    @property
    def rules(self) -> tuple[ScheduleRule, ...]:
        return tuple(rule for one in self.loaded for rule in one.plugin.rules)

    @property
    def operators(self) -> tuple[Any, ...]:
        return tuple(op for one in self.loaded for op in one.plugin.operators)

    @property
    def passes(self) -> tuple[LoweringPass, ...]:
        return tuple(step for one in self.loaded for step in one.plugin.passes)

    @property
    def identity(self) -> tuple[tuple[str, str], ...]:
        """Names and digests: what decides, with all else, over what comes of a compile."""
        return tuple((one.name, one.digest) for one in self.loaded)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Turn what fails in a plugin's code into a BadInputError that names its file and line."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            for one in self.loaded:
                if (found := failure(error, one)) is not None:
                    raise found from error
            raise


NO_PLUGINS = Plugins()


def failure(error: BaseException, one: LoadedPlugin) -> BadInputError | None:
    """The error as one of the plugin, if its code was running: innermost line first.

    What became of one of Python's own errors on its way is that error.
    """
    cause = error.__cause__
    if isinstance(cause, Exception) and type(cause).__module__ == "builtins":
        return failure(cause, one)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(one.path):
            return in_plugin(one.name, error, f"{frame.filename}:{frame.lineno}")
    return None


def in_plugin(name: str, error: BaseException, where: str) -> BadInputError:
    """What the user reads of an error in a plugin."""
    said = str(error) if not isinstance(error, TkError) else ": ".join(filter(None, (error.what, error.why)))
    why = f"{type(error).__name__}: {said}" if not isinstance(error, TkError) else said
    hint = error.hint if isinstance(error, TkError) else ""
    return BadInputError(f"the plugin `{name}` failed", where=where, why=why, hint=hint)
