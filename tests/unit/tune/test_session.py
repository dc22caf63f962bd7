"""A search that is interrupted says of all that it kept that it was measured."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from compiler.stages.workload import Workload
from compiler.targets import get_target
from compiler.tune.candidate import KernelCandidate
from compiler.tune.database.store import Database
from compiler.tune.network import NetworkKernel
from compiler.tune.record import Measured, Record
from compiler.tune.report import Budget
from compiler.tune.session import Search, kernel_search
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import RandomSearch
from compiler.tune.strategies.tasks import RoundRobin, Task
from tests.support.tuned import HERE, product

WORKLOAD, TARGET = product(24, 32, 48), get_target("cpu")


class SameTime:
    """Measures a millisecond, whatever it is given."""

    def measure(self, candidates: Sequence[KernelCandidate]) -> list[Measured]:
        return [Measured("ok", (1e-3,)) for _ in candidates]


class Interrupted(RandomSearch):
    """An interrupt comes while it learns."""

    def learn(self, candidate: KernelCandidate | Record, measured: Measured) -> None:
        super().learn(candidate, measured)
        signal.raise_signal(signal.SIGINT)


def search_of(database: Database, strategy: RandomSearch) -> Search:
    kernel = kernel_search(NetworkKernel(WORKLOAD, "product", 1, {}), TARGET, 1.0)
    scheduler = RoundRobin([Task("product", 1, 1e-3)])
    measurer, budget = SameTime(), Budget(trials=40)
    return Search([kernel], [strategy], scheduler, measurer, HERE, database, budget, whole=1.0)


def test_what_was_kept_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Database.add

    def interrupted(
        self: Database, made: Iterable[Record], of: Iterable[Workload] = (), **more: Mapping[str, Any]
    ) -> int:
        kept = add(self, made, of, **more)
        signal.raise_signal(signal.SIGINT)
        return kept

    monkeypatch.setattr(Database, "add", interrupted)
    database = Database.open(tmp_path / "tuning.db")
    search = search_of(database, RandomSearch(Space(WORKLOAD, TARGET), 1))
    search.run()
    kept = [one for one in database.tried(WORKLOAD.key) if one.measured.status == "ok"]
    assert search.ended == "interrupted"
    assert search.trials == len(kept) == len(search.kernels[0].records) > 0


def test_an_interrupt_while_it_learns(tmp_path: Path) -> None:
    database = Database.open(tmp_path / "tuning.db")
    search = search_of(database, Interrupted(Space(WORKLOAD, TARGET), 1))
    search.run()
    assert search.ended == "interrupted"
    assert search.trials == len(search.kernels[0].records) > 0
