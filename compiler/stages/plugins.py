"""Loads plugins: files that are named, and what installed packages offer under `tk.plugins`.

Light where there are none. A plugin's digest is that of its file, or of all files of its package: a library
that was made with it is found in the cache by that digest, never without it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from importlib.abc import SourceLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from compiler.core.diagnostics import BadInputError, did_you_mean
from compiler.core.files import sha256_bytes
from compiler.core.plugins import (
    NO_PLUGINS,
    LoadedPlugin,
    LoweringPass,
    Plugin,
    Plugins,
    ScheduleRule,
    failure,
    in_plugin,
)
from compiler.stages.finished import package_digest

GROUP = "tk.plugins"
CONSTANT = "PLUGIN"
_DIGITS = 16


def load_plugins(files: Sequence[Path], *, installed: bool = True) -> Plugins:
    """The plugins in files and, with `installed`, those of packages; checked for what cannot be together.

    Raises BadInputError for a file that is no plugin, or whose code fails.
    """
    offered = importlib.metadata.entry_points(group=GROUP) if installed else ()
    entries = sorted(offered, key=lambda one: (one.name, one.value))
    if not files and not entries:
        return NO_PLUGINS
    loaded = [*(_from_file(path) for path in files), *(_from_entry(one) for one in entries)]
    plugins = Plugins(tuple(_guarded(one) for one in loaded))
    _check(plugins)
    return plugins


# ---------------------------------------------------------------- where they come from


class _Loader(SourceLoader):
    """Runs the bytes that were read for the digest, whatever becomes of the file meanwhile."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self.content = path, content

    def get_filename(self, fullname: str) -> str:  # noqa: ARG002 - of the interface
        return str(self.path)

    def get_data(self, path: str | bytes) -> bytes:
        if str(path) != str(self.path):
            raise OSError(f"{path!r} is not part of the plugin")  # no compiled files beside it
        return self.content


def _from_file(path: Path) -> LoadedPlugin:
    try:
        content = path.resolve().read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise BadInputError("the plugin cannot be read", where=str(path), why=why) from error
    place, digest = path.resolve(), sha256_bytes(content)
    name = f"tk_plugin_{digest[:_DIGITS]}"
    found = LoadedPlugin(path.name, place, digest, Plugin())
    module = sys.modules.get(name)
    if module is None or module.__file__ != str(place):
        module = _run(name, _Loader(place, content), found)
    return replace(found, plugin=_plugin_of(getattr(module, CONSTANT, None), path.name, str(path)))


def _run(name: str, loader: _Loader, found: LoadedPlugin) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, found.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: dataclasses look their module up
    try:
        loader.exec_module(module)
    except SyntaxError as error:
        del sys.modules[name]
        raise in_plugin(found.name, error, f"{error.filename}:{error.lineno}") from error
    except Exception as error:
        del sys.modules[name]
        raise failure(error, found) or in_plugin(found.name, error, str(found.path)) from error
    return module


def _from_entry(entry: importlib.metadata.EntryPoint) -> LoadedPlugin:
    where = f"the entry point {entry.name} = {entry.value} of the group {GROUP}"
    try:
        loaded = entry.load()
        home = importlib.import_module(entry.module.partition(".")[0])
    except Exception as error:
        hint = f"`--no-plugins` leaves out what is installed; uninstall the package of `{entry.value}`"
        failed = in_plugin(entry.name, error, where)
        raise BadInputError(failed.what, where=failed.where, why=failed.why, hint=hint) from error
    place = Path(home.__file__ or "").resolve()
    place = place.parent if place.name == "__init__.py" else place
    digest = package_digest(place) if place.is_dir() else sha256_bytes(place.read_bytes())
    made = getattr(loaded, CONSTANT, None) if isinstance(loaded, ModuleType) else loaded
    return LoadedPlugin(entry.name, place, digest, _plugin_of(made, entry.name, where))


def _plugin_of(made: Any, name: str, where: str) -> Plugin:
    if isinstance(made, Plugin):
        return made
    raise BadInputError(
        f"`{name}` is no plugin",
        where=where,
        why=f"it has no constant {CONSTANT} of the class compiler.plugin.Plugin",
        hint=f"end it with `{CONSTANT} = Plugin(rules=(...,))`, as docs/schedules.md shows",
    )


# ---------------------------------------------------------------- what is asked of them


def _check(plugins: Plugins) -> None:
    """Refuse what the compiler could not tell apart, and passes after no pass."""
    from compiler.graph.ops import OPS
    from compiler.lower import PASSES

    built_in = [name for name, _ in PASSES]
    _check_names("rule", [], [item.name for item in plugins.rules])
    _check_names("operator", OPS, [item.name for item in plugins.operators])
    _check_names("pass", built_in, [item.name for item in plugins.passes])
    for item in plugins.passes:
        if item.after not in built_in:
            raise BadInputError(
                f"the pass `{item.name}` of a plugin comes after no pass",
                why=f"there is no pass `{item.after}`",
                hint=did_you_mean(item.after, built_in) or f"passes: {', '.join(built_in)}",
            )


def _check_names(kind: str, built_in: Iterable[str], names: Sequence[str]) -> None:
    taken = set(built_in)
    for name in names:
        if name in taken:
            raise BadInputError(
                f"a plugin has the {kind} `{name}`, and there is one of that name",
                why="a name stands for one thing in graphs, records and messages",
                hint="give it another name",
            )
        taken.add(name)


def _guarded(one: LoadedPlugin) -> LoadedPlugin:
    """The plugin whose rules and passes are looked at when they are done."""
    plugin = one.plugin
    rules = tuple(replace(rule, apply=_rule(rule, one)) for rule in plugin.rules)
    passes = tuple(replace(step, run=_pass(step, one)) for step in plugin.passes)
    return replace(one, plugin=replace(plugin, rules=rules, passes=passes))


def _rule(rule: ScheduleRule, one: LoadedPlugin) -> Callable[..., bool]:
    def apply(schedule: Any, facts: Any, chooser: Any) -> bool:
        taken: object = rule.apply(schedule, facts, chooser)
        if not isinstance(taken, bool):
            raise BadInputError(
                f"the rule `{rule.name}` of the plugin `{one.name}` gave {taken!r}",
                where=str(one.path),
                why="True says that it has scheduled the kernel, False that it leaves it to others",
                hint="end it with `return True`",
            )
        if taken:
            _verify(schedule.func, "scheduled", f"the rule `{rule.name}`", one)
        return taken

    return apply


def _pass(step: LoweringPass, one: LoadedPlugin) -> Callable[..., Any]:
    def run(func: Any, facts: Any) -> Any:
        from compiler.lower import LEADS_TO

        made = step.run(func, facts)
        if made is not func:
            _verify(made, LEADS_TO[step.after], f"the pass `{step.name}`", one)
        return made

    return run


def _verify(func: Any, stage: Any, what: str, one: LoadedPlugin) -> None:
    """Raise BadInputError where a plugin made no valid loop program."""
    from compiler.loops.ir import Func
    from compiler.loops.verify import problems_of

    problems = problems_of(func, stage) if isinstance(func, Func) else (f"it gave {type(func).__name__}",)
    if problems:
        said = f"{what} of the plugin `{one.name}` made no valid {stage} loop program"
        raise BadInputError(said, where=str(one.path), why="\n     ".join(problems[:5]))
