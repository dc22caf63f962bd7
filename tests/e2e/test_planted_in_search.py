"""A search over candidates of which many are broken, by a plugin: each is classified, none is a best."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.settings import load_settings
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.plugins import load_plugins
from compiler.targets import Target, get_target
from compiler.tune.candidate import make_candidate
from compiler.tune.database.store import Database
from compiler.tune.measure.measurer import LibraryMeasurer
from compiler.tune.measure.trials import TrialLimits
from compiler.tune.network import NetworkKernel
from compiler.tune.progress import KernelSearch
from compiler.tune.record import OK, Record
from compiler.tune.report import Budget
from compiler.tune.session import Search
from compiler.tune.strategies.choice import make_strategy
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.tasks import GradientScheduler, Task
from tests.support.plugins.planted_faults import COUNT, FAULTS, KIND, KINDS, NUMBER
from tests.support.tuned import HERE, product

PLUGIN = Path(__file__).parents[1] / "support" / "plugins" / "planted_faults.py"


def target() -> Target:
    return replace(get_target("cpu"), plugins=load_plugins([PLUGIN], installed=False))


def searched(path: Path, each: int, more: int) -> tuple[Database, KernelSearch, list[Record]]:
    """The database, the kernel and all its records, after a search that began with `each` of all faults."""
    workload, broken = product(24, 32, 48), target()
    faults = [{KIND: (1 + kind,), NUMBER: (number,)} for number in range(each) for kind in range(len(KINDS))]
    database = Database.open(path / "tuning.db")
    limits = TrialLimits(seconds=3.0, memory=1 << 28, timed=0.01)
    kernel = KernelSearch(
        NetworkKernel(workload, "product", 1, {}),
        make_candidate(workload, broken, AnalyticChooser()),
        1.0,
    )
    search = Search(
        [kernel],
        [make_strategy("evolution", Space(workload, broken), 0, faults)],
        GradientScheduler([Task("product", 1, 1e-3)], 0.0),
        LibraryMeasurer(broken, load_settings(), 1, limits=limits, working_set=1 << 20),
        HERE,
        database,
        Budget(trials=1 + len(faults) + more, min_gain=0.0),
        1.0,
    )
    search.run()
    assert search.ended == "trials"
    return database, kernel, list(database.tried(workload.key))


def fault_of(record: Record) -> str:
    """Its name; empty where there is none, and where the rule that brings it was left."""
    (kind,), (taken,) = record.decisions[KIND], record.decisions.get("rule.faults", (0,))
    return KINDS[kind - 1] if taken else ""


def check(database: Database, kernel: KernelSearch, records: list[Record]) -> Counter[str]:
    """Every record has the class of its fault, and the best ones have none; counts of the faults."""
    wanted = [FAULTS[fault_of(one)][0] if fault_of(one) else OK for one in records]
    found = [(fault_of(one), one.measured.status) for one in records]
    assert [status for _, status in found] == wanted, found
    assert all(one.measured.message for one in records if fault_of(one))
    assert not any(one.measured.seconds for one in records if fault_of(one))
    best = kernel.best
    assert best is not None
    assert not fault_of(best)
    assert not any(fault_of(one) for one in (*kernel.faster, *database.top(kernel.key, len(records))))
    assert kernel.failures == Counter(one.measured.status for one in records if fault_of(one))
    return Counter(map(fault_of, records))


def test_a_search_goes_on_among_faults(tmp_path: Path) -> None:
    counts = check(*searched(tmp_path, 1, 5))
    assert counts[""] >= 2
    assert all(counts[kind] for kind in KINDS)


@pytest.mark.slow
def test_twenty_of_each_fault_in_a_search(tmp_path: Path) -> None:
    counts = check(*searched(tmp_path, COUNT, 24))
    assert counts[""] >= 2
    assert all(counts[kind] >= COUNT for kind in KINDS)
