"""What counts as the same fault, and what becomes of a trial that did not answer."""

from __future__ import annotations

import pytest

from compiler.core.diagnostics import BuildError, InternalError
from compiler.core.forked import Forked
from compiler.core.passes import Pass, run_passes
from compiler.reduce.checker import fault_of, outcome_of, same_fault
from compiler.reduce.report import Fault
from compiler.reduce.trial import Outcome, class_of_error, error_place

INF = float("inf")

CASES = [
    (Fault("wrong", size=0.5), Outcome("wrong", size=0.06), True),
    (Fault("wrong", size=0.5), Outcome("wrong", size=0.04), False),
    (Fault("wrong", size=INF), Outcome("wrong", size=0.2), True),
    (Fault("wrong", size=INF), Outcome("wrong", size=0.05), False),
    (Fault("wrong", size=0.5), Outcome("crash", "SIGSEGV (run)"), False),
    (Fault("wrong", size=0.5), Outcome("invalid"), False),
    (Fault("crash", "SIGSEGV (run)"), Outcome("crash", "SIGSEGV (run)"), True),
    (Fault("crash", "SIGSEGV (run)"), Outcome("crash", "SIGFPE (run)"), False),
    (Fault("crash", "SIGSEGV (run)"), Outcome("crash", "SIGSEGV (compile)"), False),
    (Fault("hang", "compile"), Outcome("hang", "compile"), True),
    (Fault("hang", "compile"), Outcome("hang", "run"), False),
    (Fault("compile", "KeyError: #"), Outcome("compile", "KeyError: #"), True),
    (Fault("compile", "KeyError: #"), Outcome("compile", "ValueError: #"), False),
    (Fault("unsupported", "NonZero: no"), Outcome("unsupported", "Det: no\nNonZero: no"), True),
    (Fault("unsupported", "NonZero: no"), Outcome("unsupported", "Det: no"), False),
    (Fault("slow", size=10.0), Outcome("slow", size=5.0), True),
    (Fault("slow", size=10.0), Outcome("slow", size=4.0), False),
    (Fault("slow", size=4.0), Outcome("slow", size=2.5), False),
]


@pytest.mark.parametrize(("fault", "outcome", "same"), CASES)
def test_same_fault(fault: Fault, outcome: Outcome, same: bool) -> None:
    assert same_fault(fault, outcome, slower=3.0) is same


@pytest.mark.parametrize(
    ("told", "number", "timed_out", "kind", "detail"),
    [
        ("compile: kernels", 11, False, "crash", "SIGSEGV (compile)"),
        ("run", 8, False, "crash", "SIGFPE (run)"),
        ("run", 9, False, "out of memory", ""),
        ("run", 9, True, "hang", "run"),
        ("reference", 11, False, "invalid", ""),
        ("reference", 9, True, "invalid", ""),
        ("", 11, False, "invalid", ""),
    ],
)
def test_trials_that_did_not_answer(told: str, number: int, timed_out: bool, kind: str, detail: str) -> None:
    found = outcome_of(Forked(None, told, number, timed_out, "", 1.0))
    assert (found.kind, found.detail) == (kind, detail)


def test_outcomes_go_through_json() -> None:
    found = Outcome("wrong", "d", "m", INF, ("y",), (), ("Conv.form",), "w")
    assert Outcome.read(found.plain()) == found
    assert outcome_of(Forked(found.plain(), "", 0, False, "", 1.0)) == found


def test_an_unsupported_operator_is_the_first_of_several() -> None:
    assert fault_of(Outcome("unsupported", "Det: no\nNonZero: no", "...")).detail == "Det: no"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (KeyError("kernel 3 of `a`"), KeyError("kernel 17 of `b/c`")),
        (InternalError("node 'x' is 4 long"), InternalError("node 'yy' is 5 long")),
        (
            BuildError("g++", why="/t/a.cpp:3:1: error: no x3"),
            BuildError("g++", why="/u/b.cpp:4: error: no x9"),
        ),
    ],
)
def test_errors_of_one_class(one: Exception, other: Exception) -> None:
    assert class_of_error(one) == class_of_error(other)
    assert class_of_error(one) != class_of_error(ValueError("something else"))


def test_the_pass_that_an_error_came_from() -> None:
    def fail(_: int) -> int:
        raise KeyError("x")

    with pytest.raises(KeyError) as found:
        run_passes([Pass("first", lambda one: one), Pass("second", fail)], 1)
    assert error_place(found.value).startswith("second at core/passes.py")
