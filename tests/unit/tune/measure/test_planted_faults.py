"""Candidates that are wrong, crash, hang, eat memory, leave work behind or do not compile are told apart."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from compiler.core.settings import load_settings
from compiler.schedule.chooser import AnalyticChooser, Chooser, RandomChooser
from compiler.targets import get_target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.measure.measurer import LibraryMeasurer
from compiler.tune.measure.trials import TrialLimits
from compiler.tune.record import OK, Measured
from tests.support.tuned import product

TARGET = get_target("cpu")
BODY = "void tk_k0(void *const *bufs, tk_exec *exec) {\n"
FAULTS = {
    "wrong": ("wrong", "  ((float *)bufs[2])[7] = 3.0f; if (bufs) return;\n"),
    "crash": ("crash", "  *(volatile int *)8 = 1;\n"),
    "hang": ("timeout", "  for (volatile int on = 1; on;) {}\n"),
    "memory": ("memory", "  for (;;) __builtin_memset(__builtin_malloc(1 << 24), 1, 1 << 24);\n"),
    "process": ("busy", "  if (!fork()) for (volatile int on = 1; on;) {}\n"),
    "build": ("build", "  this is no C++;\n"),
    "input": ("wrong", "  ((float *)bufs[0])[3] += 1.0f;\n"),
    "around": ("wrong", "  ((float *)bufs[2])[-5] = 1.0f;\n"),
    "exit": ("crash", "  _exit(0);\n"),
    "daemon": (
        "busy",
        "  if (!fork()) { setsid(); if (fork()) _exit(0); for (volatile int on = 1; on;) {} }\n",
    ),
    "thread": (
        "busy",
        (
            "  static pthread_t spinning; if (!spinning) pthread_create(&spinning, nullptr, "
            "[](void *) -> void * { for (volatile int on = 1; on;) {} return nullptr; }, nullptr);\n"
        ),
    ),
}
"""The class that a candidate has to get, and what is put into its kernel."""
ONE_OF_EACH = list(FAULTS)[:6]


def measurer() -> LibraryMeasurer:
    """With seconds for each candidate, and room for little."""
    limits = TrialLimits(seconds=3.0, memory=1 << 28, timed=0.01)
    return LibraryMeasurer(TARGET, load_settings(), 1, limits=limits, working_set=1 << 20)


def candidates(count: int, seed: int = 0) -> list[KernelCandidate]:
    """The default schedule of a product, and random ones."""
    workload, source = product(24, 32, 48), random.Random(seed)
    choosers: list[Chooser] = [AnalyticChooser(), *(RandomChooser(source) for _ in range(count - 1))]
    return [make_candidate(workload, TARGET, one) for one in choosers]


def with_fault(candidate: KernelCandidate, fault: str) -> KernelCandidate:
    """The candidate with something put in at its kernel's beginning."""
    assert BODY in candidate.text
    text = candidate.text.replace(BODY, BODY + fault, 1)
    return replace(
        candidate, text=text.replace("extern", "#include <pthread.h>\n#include <unistd.h>\nextern", 1)
    )


def test_right_candidates_are_timed() -> None:
    found = measurer().measure(candidates(3))
    assert [one.status for one in found] == [OK] * 3, found
    assert all(one.seconds and min(one.seconds) > 0 and one.checked_by for one in found)


def measured(names: Sequence[str], count: int = 1) -> list[Measured]:
    """What becomes of `count` candidates with each fault, and of a sound one behind each."""
    made = candidates(len(names) * (count + 1), seed=len(names))
    planted = [name for name in names for name in (*[name] * count, "")]
    mixed = [
        with_fault(one, FAULTS[name][1]) if name else one for one, name in zip(made, planted, strict=True)
    ]
    found = measurer().measure(mixed)
    wanted = [FAULTS[name][0] if name else OK for name in planted]
    assert [one.status for one in found] == wanted, [one for one in found if one.status != OK]
    assert all(bool(one.seconds) == (one.status == OK) for one in found)
    assert all(one.message for one in found if one.status != OK)
    return found


@pytest.mark.slow  # each of these kinds in a search: tests/e2e/test_planted_in_search.py
def test_each_fault_gets_its_class_and_costs_no_other_candidate() -> None:
    measured(ONE_OF_EACH)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_twenty_of_each_fault(name: str) -> None:
    measured([name], 20)
