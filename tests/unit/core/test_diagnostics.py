"""Errors: what, where, why, hint and a code."""

from __future__ import annotations

import copy

import pytest

from compiler.core import diagnostics
from compiler.core.diagnostics import BadInputError, ExitCode, TkError, UsageError, did_you_mean

KINDS = [kind for kind in vars(diagnostics).values() if isinstance(kind, type) and issubclass(kind, TkError)]


def test_lines_leave_empty_fields_out() -> None:
    assert UsageError("a", hint="b").lines() == ["error: a", "hint: b"]
    full = UsageError("a", where="b", why="c", hint="d")
    assert full.lines() == ["error: a", "where: b", "why: c", "hint: d"]
    assert str(full) == "a\nwhere: b\nwhy: c\nhint: d"


def test_codes_are_the_contract() -> None:
    assert {kind.__name__: int(kind.default_code) for kind in KINDS} == {
        "TkError": 70,
        "UsageError": 2,
        "BadInputError": 3,
        "HostError": 4,
        "LimitError": 4,
        "BuildError": 5,
        "WrongResultError": 6,
        "CrashError": 7,
        "MemoryLimitError": 7,
        "DiskLimitError": 7,
        "InternalError": 70,
    }
    assert UsageError("a", code=ExitCode.HOST).code == ExitCode.HOST


@pytest.mark.parametrize("kind", KINDS)
def test_copies_keep_all_fields(kind: type[TkError]) -> None:
    twin = copy.copy(kind("a", where="b", why="c", hint="d", code=ExitCode.BUILD))
    assert type(twin) is kind
    assert (twin.what, twin.where, twin.why, twin.hint, twin.code) == ("a", "b", "c", "d", ExitCode.BUILD)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cpuu", "did you mean 'cpu'?"), ("CPU", "did you mean 'cpu'?"), ("zzz", ""), ("", "")],
)
def test_did_you_mean(name: str, expected: str) -> None:
    assert did_you_mean(name, ["cpu", "sycl-cpu", "cuda"]) == expected


def test_errors_are_exceptions_of_one_tree() -> None:
    with pytest.raises(TkError, match="what happened"):
        raise BadInputError("what happened")
