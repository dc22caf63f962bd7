"""Plugins: loaded from files and packages, told apart by content, and each error with its file and line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler.core.diagnostics import BadInputError, ExitCode
from compiler.core.plugins import NO_PLUGINS, Plugins
from compiler.core.target import TargetFacts
from compiler.loops.build import Builder
from compiler.loops.ir import Func
from compiler.lower import PASSES, lowering
from compiler.schedule.chooser import AnalyticChooser, ConservativeChooser, RecordingChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.stages.plugins import load_plugins
from compiler.targets import get_target
from tests.support.schedules import checked
from tests.support.sources import ROOT

EXAMPLES = ROOT / "examples" / "plugins"
HEAD = "from compiler.plugin import *\n"


def rows(m: int = 8, n: int = 100) -> Func:
    b = Builder("rows")
    x = b.input("x", (m, n))
    return b.finish([b.reduce("y", (m,), (n,), lambda i, k: x[i, k])])


def facts() -> TargetFacts:
    return get_target("cpu:x86-64-v3").facts


def written(folder: Path, text: str, name: str = "mine.py") -> Plugins:
    (folder / name).write_text(text)
    return load_plugins([folder / name], installed=False)


# ---------------------------------------------------------------- rules


def test_a_rule_is_asked_first_and_keeps_the_meaning() -> None:
    plugins = load_plugins([EXAMPLES / "rows_rule.py"], installed=False)
    chooser = RecordingChooser(AnalyticChooser())
    s = schedule_func(rows(), {}, facts(), chooser, custom=plugins.rules)
    assert chooser.decisions == {"sum_rows.vectors": (8,), "rule.sum_rows": (1,)}
    assert [item.name for item in s.trace.instructions].count("rfactor") == 1
    checked(rows(), s)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_its_decisions_are_those_of_a_search(count: int) -> None:
    plugins = load_plugins([EXAMPLES / "rows_rule.py"], installed=False)
    chooser = ReplayChooser({"sum_rows.vectors": (count,)}, AnalyticChooser())
    s = schedule_func(rows(), {}, facts(), chooser, custom=plugins.rules)
    assert f'"factors": [null, {8 * count}]' in s.trace.to_json()
    checked(rows(), s)


def test_a_search_may_leave_it() -> None:
    plugins = load_plugins([EXAMPLES / "rows_rule.py"], installed=False)
    without = schedule_func(rows(), {}, facts(), AnalyticChooser())
    left = ReplayChooser({"rule.sum_rows": (0,)}, AnalyticChooser())
    assert schedule_func(rows(), {}, facts(), left, custom=plugins.rules).func == without.func
    least = ConservativeChooser(["rule.sum_rows"])
    assert schedule_func(rows(), {}, facts(), least, custom=plugins.rules).func == without.func


def test_a_kernel_that_is_none_of_its_kind() -> None:
    plugins = load_plugins([EXAMPLES / "rows_rule.py"], installed=False)
    b = Builder("plus")
    x = b.input("x", (8, 8))
    func = b.finish([b.compute("y", (8, 8), lambda i, j: x[i, j] + 1.0)])
    chooser = RecordingChooser(AnalyticChooser())
    s = schedule_func(func, {}, facts(), chooser, custom=plugins.rules)
    assert s.func == schedule_func(func, {}, facts(), AnalyticChooser()).func
    assert not any(name.startswith("rule.") for name in chooser.decisions)


def test_what_a_rule_did_before_it_gave_up_is_undone(tmp_path: Path) -> None:
    text = (
        "def rule(s, facts, chooser):\n    s.parallel(s.loops('y')[0])\n    return False\n"
        "PLUGIN = Plugin(rules=(ScheduleRule('mine', rule),))\n"
    )
    plugins = written(tmp_path, HEAD + text)
    assert schedule_func(rows(), {}, facts(), AnalyticChooser(), custom=plugins.rules).func == (
        schedule_func(rows(), {}, facts(), AnalyticChooser()).func
    )


# ---------------------------------------------------------------- passes


def test_a_pass_follows_the_one_that_it_names() -> None:
    plugins = load_plugins([EXAMPLES / "unroll_pass.py"], installed=False)
    names = [step.name for step in lowering(facts(), custom=plugins.passes)]
    assert names[names.index("settle_loop_kinds") + 1] == "unroll_short"
    assert len(names) == len(PASSES) + 1
    left_out = [step.name for step in lowering(facts(), {"vectorize"}, plugins.passes)]
    assert "unroll_short" in left_out
    assert "vectorize" not in left_out


# ---------------------------------------------------------------- errors

RULE = "PLUGIN = Plugin(rules=(ScheduleRule('r', rule),))\n"
FAILING = [
    ("def rule(:\n", "mine.py` failed", "mine.py:1", "SyntaxError"),
    ("x = 1\ny = x / 0\n", "mine.py` failed", "mine.py:2", "division by zero"),
    ("x = 1\n", "is no plugin", "mine.py", "no constant PLUGIN"),
    ("PLUGIN = 3\n", "is no plugin", "mine.py", "no constant PLUGIN"),
    (
        HEAD + "PLUGIN = Plugin(passes=(LoweringPass('p', None, 'vectorise'),))\n",
        "comes after no pass",
        "",
        "no pass `vectorise`",
    ),
    (
        HEAD + "PLUGIN = Plugin(passes=(LoweringPass('vectorize', None, 'vectorize'),))\n",
        "pass `vectorize`, and there is one",
        "",
        "one thing",
    ),
    (
        HEAD + "rule = 1\nPLUGIN = Plugin(rules=2 * (ScheduleRule('r', rule),))\n",
        "rule `r`, and there is one",
        "",
        "one thing",
    ),
]


@pytest.mark.parametrize(("text", "what", "where", "why"), FAILING)
def test_what_cannot_be_loaded(text: str, what: str, where: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as caught:
        written(tmp_path, text)
    assert what in caught.value.what
    assert where in caught.value.where
    assert why in caught.value.why
    assert caught.value.code is ExitCode.BAD_INPUT


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        load_plugins([tmp_path / "nothing.py"], installed=False)


@pytest.mark.parametrize(
    ("body", "line", "why"),
    [
        ("    s.nothing()\n", "mine.py:3", "AttributeError"),
        ("    s.split('nowhere', (None, 2))\n", "mine.py:3", "no loop 'nowhere'"),
        ("    x = 1\n    raise ValueError('too bad')\n", "mine.py:4", "too bad"),
    ],
)
def test_what_a_rule_raises(body: str, line: str, why: str, tmp_path: Path) -> None:
    plugins = written(tmp_path, f"{HEAD}def rule(s, facts, chooser):\n{body}    return True\n{RULE}")
    with pytest.raises(BadInputError, match=r"the plugin `mine\.py` failed") as caught, plugins.answering():
        schedule_func(rows(), {}, facts(), AnalyticChooser(), custom=plugins.rules)
    assert caught.value.where.endswith(line)
    assert why in caught.value.why


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("    pass\n", "gave None"),
        ("    s.func = s.func.replace(params=s.func.params[1:])\n    return True\n", "made no valid"),
    ],
)
def test_what_a_rule_may_not_do(body: str, what: str, tmp_path: Path) -> None:
    plugins = written(tmp_path, f"{HEAD}def rule(s, facts, chooser):\n{body}{RULE}")
    with pytest.raises(BadInputError, match=what) as caught:
        schedule_func(rows(), {}, facts(), AnalyticChooser(), custom=plugins.rules)
    assert caught.value.where.endswith("mine.py")


def test_an_error_of_the_compiler_stays_one() -> None:
    plugins = load_plugins([EXAMPLES / "rows_rule.py"], installed=False)
    with pytest.raises(KeyError), plugins.answering():
        raise KeyError("of our own")


# ---------------------------------------------------------------- content, packages


def test_the_identity_is_the_content(tmp_path: Path) -> None:
    first = written(tmp_path, HEAD + "PLUGIN = Plugin()\n").identity
    second = written(tmp_path, HEAD + "PLUGIN = Plugin()  # changed\n").identity
    assert first != second
    assert written(tmp_path, HEAD + "PLUGIN = Plugin()\n").identity == first
    assert [name for name, _ in first] == ["mine.py"]


def test_a_changed_file_is_run_again(tmp_path: Path) -> None:
    text = HEAD + "PLUGIN = Plugin(rules=(ScheduleRule('{}', lambda *given: False),))\n"
    assert [rule.name for rule in written(tmp_path, text.format("one")).rules] == ["one"]
    assert [rule.name for rule in written(tmp_path, text.format("two")).rules] == ["two"]


def test_plugins_of_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, info = tmp_path / "tk_rows_of_mine", tmp_path / "tk_rows_of_mine-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rules.py").write_text((EXAMPLES / "rows_rule.py").read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tk-rows-of-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tk.plugins]\nrows = tk_rows_of_mine.rules\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = load_plugins([])
    assert [rule.name for rule in found.rules] == ["sum_rows"]
    ((name, digest),) = found.identity
    assert name == "rows"
    (package / "more.py").write_text("")
    assert load_plugins([]).identity != ((name, digest),)
    assert load_plugins([], installed=False) is NO_PLUGINS
    with pytest.raises(BadInputError, match="rule `sum_rows`, and there is one"):
        load_plugins([EXAMPLES / "rows_rule.py"])
    for module in [one for one in sys.modules if one.startswith("tk_rows_of_mine")]:
        monkeypatch.delitem(sys.modules, module)


def test_a_package_whose_plugin_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "broken_of_mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-of-mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tk.plugins]\nbroken = broken_of_mine.nothing\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(BadInputError, match="the plugin `broken` failed") as caught:
        load_plugins([])
    assert "--no-plugins" in caught.value.hint
