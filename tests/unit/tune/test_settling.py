"""The order of a kernel's last few candidates, when their times say nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from compiler.core.diagnostics import CrashError
from compiler.schedule.chooser import AnalyticChooser
from compiler.targets import get_target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.network import NetworkKernel
from compiler.tune.progress import KernelSearch
from compiler.tune.settling import settle_order
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import RandomSearch
from compiler.verify.report import Difference, Verdict
from tests.support.tuned import HERE, product, record_of

WORKLOAD, TARGET = product(24, 32, 48), get_target("cpu")


@pytest.fixture(scope="module")
def candidates() -> list[KernelCandidate]:
    return RandomSearch(Space(WORKLOAD, TARGET), 1).propose(5)


def search_of(candidates: Sequence[KernelCandidate], *ms: float, share: float = 1.0) -> KernelSearch:
    """A kernel whose default takes 2 ms, and others so many."""
    default = make_candidate(WORKLOAD, TARGET, AnalyticChooser())
    search = KernelSearch(NetworkKernel(WORKLOAD, "product", 1, {}), default, 2.0 * share)
    for made, one in zip(candidates, (2.0, *ms), strict=False):
        search.add(record_of(made, HERE, (1e-3 * one,)))
    return search


class Settler:
    """Knows which program is the faster one, or crashes."""

    def __init__(self, order: Sequence[str], *, crashes: bool = False) -> None:
        self.order, self.crashes, self.asked = list(order), crashes, list[list[str]]()

    def settle(self, candidates: Sequence[KernelCandidate], seconds: float) -> list[list[Difference]]:
        assert seconds > 0
        programs = [one.program for one in candidates]
        self.asked.append(programs)
        if self.crashes:
            raise CrashError("it crashed")
        return [[self._difference(a, b) for b in programs] for a in programs]

    def _difference(self, a: str, b: str) -> Difference:
        places = self.order.index(a), self.order.index(b)
        verdict: Verdict = "same" if a == b else "faster" if places[0] < places[1] else "slower"
        return Difference(1.0, 1.0, 1.0, verdict)


def test_those_that_are_close_are_put_in_order(candidates: list[KernelCandidate]) -> None:
    search = search_of(candidates, 1.0, 1.01, 1.02, 1.5)
    programs = [one.program for one in search.faster]
    settler = Settler([programs[2], programs[0], programs[1]])
    settle_order([search], settler, TARGET, 0.3)
    assert settler.asked == [programs[:3]]
    assert [one.program for one in search.faster] == [programs[2], programs[0], programs[1], programs[3]]


@pytest.mark.parametrize("ms", [(1.0, 1.2), (1.0,), ()])
def test_what_is_far_apart_is_not_compared(candidates: list[KernelCandidate], ms: tuple[float, ...]) -> None:
    settler = Settler([])
    settle_order([search_of(candidates, *ms)], settler, TARGET, 0.3)
    assert settler.asked == []


def test_nor_are_those_of_a_kernel_that_takes_little(candidates: list[KernelCandidate]) -> None:
    settler = Settler([])
    searches = [search_of(candidates), search_of(candidates, 1.0, 1.01, share=0.005)]
    settle_order(searches, settler, TARGET, 0.3)
    assert settler.asked == []


def test_the_order_stays_where_they_cannot_be_compared(candidates: list[KernelCandidate]) -> None:
    search = search_of(candidates, 1.0, 1.01)
    before = search.faster
    settle_order([search], Settler([], crashes=True), TARGET, 0.3)
    assert search.faster == before
    assert search.settled == ()
