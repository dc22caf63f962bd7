"""Candidates that are wrong, crash, hang, eat memory, leave work behind or do not compile are told apart."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from compiler.core.settings import load_settings
from compiler.schedule.chooser import AnalyticChooser, RandomChooser
from compiler.targets import get_target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.measure.measurer import LibraryMeasurer, TrialLimits
from compiler.tune.record import OK
from tests.support.tuned import product

TARGET = get_target("cpu")
BODY = "void tk_k0(void *const *bufs, tk_exec *exec) {\n"
FAULTS = {
    "wrong": "  ((float *)bufs[2])[7] = 3.0f; if (bufs) return;\n",
    "crash": "  *(volatile int *)8 = 1;\n",
    "timeout": "  for (volatile int on = 1; on;) {}\n",
    "memory": "  for (;;) __builtin_memset(__builtin_malloc(1 << 24), 1, 1 << 24);\n",
    "busy": (
        "  static pthread_t spinning; "
        "if (!spinning) pthread_create(&spinning, nullptr, [](void *) -> void * { for (volatile int on = 1; on;) {} "
        "return nullptr; }, nullptr);\n"
    ),
    "build": "  this is no C++;\n",
}
"""What is put into a kernel, by the class that it has to get."""
OUT_OF_BOUNDS = "  ((float *)bufs[2])[-5] = 1.0f;\n"


def measurer() -> LibraryMeasurer:
    """With a second for each candidate, and room for little."""
    limits = TrialLimits(seconds=2.0, memory=1 << 30, timed=0.01)
    return LibraryMeasurer(TARGET, load_settings(), 1, limits=limits, working_set=1 << 20)


def candidates(count: int, seed: int = 0) -> list[KernelCandidate]:
    """The default schedule of a product, and random ones."""
    workload, source = product(24, 32, 48), random.Random(seed)
    choosers = [AnalyticChooser(), *(RandomChooser(source) for _ in range(count - 1))]
    return [make_candidate(workload, TARGET, one) for one in choosers]


def with_fault(candidate: KernelCandidate, fault: str) -> KernelCandidate:
    """The candidate with something put in at its kernel's beginning."""
    assert BODY in candidate.text
    text = candidate.text.replace(BODY, BODY + fault, 1)
    return replace(candidate, text=text.replace("extern", "#include <pthread.h>\nextern", 1))


def test_right_candidates_are_timed() -> None:
    found = measurer().measure(candidates(3))
    assert [one.status for one in found] == [OK] * 3, found
    assert all(one.seconds and min(one.seconds) > 0 and one.checked_by for one in found)


def test_each_fault_gets_its_class_and_costs_no_other_candidate() -> None:
    made = candidates(2 * len(FAULTS))
    mixed = [
        one if number % 2 == 0 else with_fault(one, list(FAULTS.values())[number // 2])
        for number, one in enumerate(made)
    ]
    wanted = [OK if number % 2 == 0 else list(FAULTS)[number // 2] for number in range(len(mixed))]
    found = measurer().measure(mixed)
    assert [one.status for one in found] == wanted, found
    assert all(bool(one.seconds) == (one.status == OK) for one in found)
    assert all(one.message for one in found if one.status != OK)


def test_a_write_around_a_buffer_is_wrong() -> None:
    (found,) = measurer().measure([with_fault(candidates(1)[0], OUT_OF_BOUNDS)])
    assert found.status == "wrong"
    assert "memory around" in found.message


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_twenty_of_each_fault(kind: str) -> None:
    made = [with_fault(one, FAULTS[kind]) for one in candidates(20, seed=1)]
    sound = candidates(2, seed=2)
    found = measurer().measure([*made, *sound])
    assert [one.status for one in found] == [kind] * 20 + [OK] * 2
