"""Each thing of a package has a name of its own, and what nothing makes yet is written down."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from compiler.schedule.primitives import PRIMITIVES
from tests.rules.test_nodes import declared
from tests.support.sources import ROOT, Source, python_sources

HEADING = "What nothing makes yet"
MAKES_EVERYTHING = "compiler/loops/parser.py"  # the text form has all that there is


def named_twice(sources: Sequence[Source]) -> list[str]:
    """Classes and functions without `_` that stand at the top of several modules."""
    names = Counter(
        item.name
        for source in sources
        for item in source.tree().body
        if isinstance(item, ast.ClassDef | ast.FunctionDef) and not item.name.startswith("_")
    )
    return sorted(name for name, count in names.items() if count > 1)


def called(*tops: str, but: Sequence[str] = ()) -> set[str]:
    """The names of all functions, classes and methods that the code under `tops` calls."""
    calls = (
        node.func
        for source in python_sources(*tops)
        if not source.path.startswith(tuple(but))
        for node in source.nodes()
        if isinstance(node, ast.Call)
    )
    return {call.attr if isinstance(call, ast.Attribute) else ast.unparse(call) for call in calls}


@pytest.mark.parametrize("package", ["compiler", "toolchain"])
def test_no_two_definitions_of_one_name(package: str) -> None:
    """But `main`, as what a program starts with is called everywhere."""
    assert set(named_twice(python_sources(package))) <= {"main"}


def test_the_rule_can_fail() -> None:
    first, second = "def load(): ...\nclass _Plan: ...", "class load: ...\nclass _Plan: ..."
    assert named_twice([Source("a.py", first), Source("b.py", second)]) == ["load"]


def test_the_roadmap_names_all_that_nothing_makes_yet() -> None:
    _, _, section = (ROOT / "docs" / "roadmap.md").read_text().partition(f"## {HEADING}\n")
    table = section.partition("\n## ")[0].splitlines()
    first_column = " ".join(line.split("|")[1] for line in table if line.startswith("| `"))
    nodes = {name for source in python_sources("compiler/loops") for name in declared(source)}
    unmade = nodes - called("compiler", but=[MAKES_EVERYTHING])
    unmade |= PRIMITIVES.keys() - called("compiler/schedule", but=["compiler/schedule/primitives/"])
    assert sorted(re.findall(r"`(\w+)`", first_column)) == sorted(unmade)
