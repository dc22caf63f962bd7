"""Soft limits on length: files of 500 lines (700 of tests), functions of 60; exceptions need a reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.sources import ROOT, Source, python_sources, violations

MOST_FILE_LINES = 500
MOST_TEST_LINES = 700  # tests are tables of cases
MOST_FUNCTION_LINES = 60
# path -> why it is longer
LONG_FILES: dict[str, str] = {}
# path::function -> why it is longer
LONG_FUNCTIONS: dict[str, str] = {}


def long_file(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    is_test = source.path.startswith("tests/") and not source.path.startswith("tests/support/")
    limit = MOST_TEST_LINES if is_test else MOST_FILE_LINES
    if lines > limit and source.path not in LONG_FILES:
        yield f"{lines} lines; split it by topic"


def long_functions(source: Source) -> Iterator[str]:
    for node in source.nodes():
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        lines = _code_lines(node)
        if lines > MOST_FUNCTION_LINES and f"{source.path}::{node.name}" not in LONG_FUNCTIONS:
            yield f"{node.name} has {lines} lines"


def _code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines without signature and docstring: options of a command are a table, not logic."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (node.end_lineno or node.lineno) - body[0].lineno + 1 if body else 0


def test_python_files() -> None:
    assert violations(long_file, "compiler", "toolchain", "tests", "benchmarks") == []


def test_functions() -> None:
    assert violations(long_functions, "compiler", "toolchain") == []


def test_c_files() -> None:
    paths = [path for path in (ROOT / "compiler").rglob("*") if path.suffix in (".c", ".h", ".cpp", ".hpp")]
    sources = [Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in paths]
    assert sources
    assert [f"{one.path}: {found}" for one in sources for found in long_file(one)] == []


def test_exceptions_are_needed() -> None:
    long = {
        one.path for one in python_sources("compiler", "toolchain") if one.text.count("\n") > MOST_FILE_LINES
    }
    assert LONG_FILES.keys() - long == set(), "no longer needed in LONG_FILES"


@pytest.mark.parametrize(
    ("rule", "text"),
    [(long_file, "x = 1\n" * 501), (long_functions, "def f():\n" + "    x = 1\n" * 61)],
)
def test_the_rules_can_fail(rule: object, text: str) -> None:
    assert list(rule(Source("compiler/graph/x.py", text)))  # type: ignore[operator]
