"""The search over decisions of the graph, with libraries that are only said to be timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler.core.diagnostics import BuildError, CrashError
from compiler.schedule.chooser import Option
from compiler.stages.graph_decisions import FUSION, LAYOUT, graph_workload
from compiler.stages.tuned import Decisions, GraphChoices, Records, Tuned
from compiler.tune.database.store import Database
from compiler.tune.graph_search import GraphSearch, graph_candidates, keep_graph, known_graph, search_graph
from compiler.tune.network import BuiltLibrary, Compared
from compiler.tune.record import Environment
from compiler.verify.report import Difference
from tests.support.sketch import Sketch

HERE = Environment("cpu", "x86-64-v3", "cpu", "", "g++", "-O2", 1, "tk")


def choices() -> GraphChoices:
    s = Sketch()
    workload = graph_workload(s.graph(s.conv(s.input(1, 3, 4, 4))))
    offered = {
        LAYOUT: (Option((0,), 0.0), Option((1,), 1.0), Option((2,), 1.0)),
        FUSION: (Option((32,), 0.0), Option((1,), 1.0)),
    }
    return GraphChoices(decisions={LAYOUT: (0,), FUSION: (32,)}, offered=offered, workload=workload)


@dataclass
class Network:
    """Libraries that take the time that is said of their decisions; below 0 one crashes, and 0.5 is wrong."""

    times: Mapping[tuple[str, int], Any]
    graph: Mapping[str, Tuned] = field(default_factory=dict)
    built: list[Decisions] = field(default_factory=list)
    compared: int = 0

    def build(self, name: str, _records: Records) -> tuple[BuiltLibrary, Any]:
        (tuned,) = self.graph.values()
        self.built.append(tuned.decisions)
        what = self.times[self._changed(tuned.decisions)]
        if isinstance(what, BuildError):
            raise what
        kernel = self._text(what)
        return BuiltLibrary(Path(name), [kernel]), compilation(kernel)

    def compare(self, libraries: Sequence[BuiltLibrary], _seconds: float) -> Compared:
        self.compared += 1
        what = float(libraries[-1].kernels[0].text)
        if what < 0:
            raise CrashError("it crashed", where="here", why="a signal", hint="none")
        wrong = "y0: differs" if what == 0.5 else ""
        whole = (10.0, 10.0 * what)
        return Compared({}, {}, whole, Difference(what, what - 0.01, what + 0.01, "faster"), wrong)

    @staticmethod
    def _changed(decisions: Decisions) -> tuple[str, int]:
        default = choices().decisions
        return next((name, value[0]) for name, value in decisions.items() if value != default[name])

    @staticmethod
    def _text(ratio: float) -> Any:
        return SimpleNamespace(text=str(ratio))


def compilation(kernel: Any) -> Any:
    return SimpleNamespace(kernels=[kernel], steps=[], laid_out=SimpleNamespace(layouts={}), graph=choices())


def searched(times: Mapping[tuple[str, int], Any]) -> tuple[GraphSearch, Network]:
    network = Network(times)
    untuned = BuiltLibrary(Path("untuned"), [])
    made = compilation(SimpleNamespace(text="1.0"))
    return search_graph(network, untuned, made, HERE, None, 0.1), network  # type: ignore[arg-type]


def test_candidates_have_one_decision_changed() -> None:
    found = list(graph_candidates(choices()))
    assert [(one[LAYOUT], one[FUSION]) for one in found] == [((1,), (32,)), ((2,), (32,)), ((0,), (1,))]


def test_the_fastest_library_that_gains_twice_is_taken() -> None:
    found, network = searched({(LAYOUT, 1): 0.9, (LAYOUT, 2): 0.8, (FUSION, 1): 1.2})
    assert found.best is not None
    assert found.best.decisions[LAYOUT] == (2,)
    assert [one.is_default for one in found.records] == [True, False, False, False]
    assert [round(one.measured.median * 1e3, 3) for one in found.records] == [10.0, 9.0, 8.0, 12.0]
    assert network.compared == 4, "the best one is looked at again"
    assert not network.graph


def test_what_is_the_same_library_is_not_timed() -> None:
    found, network = searched({(LAYOUT, 1): 1.0, (LAYOUT, 2): 1.2, (FUSION, 1): 1.2})
    assert found.best is None
    assert network.compared == 1
    assert len(network.built) == 3


def test_what_fails_is_a_record_with_its_class() -> None:
    error = BuildError("no", where="k.cpp", why="refused", hint="none")
    found, _ = searched({(LAYOUT, 1): error, (LAYOUT, 2): -1.0, (FUSION, 1): 0.5})
    assert [one.measured.status for one in found.records] == ["build", "crash", "wrong"]
    assert found.best is None


@pytest.mark.parametrize("reason", ["", "as a whole it is slower"])
def test_a_compile_finds_the_best_one_alone(reason: str, tmp_path: Path) -> None:
    found, _ = searched({(LAYOUT, 1): 0.9, (LAYOUT, 2): 0.8, (FUSION, 1): 1.2})
    database = Database.open(tmp_path / "t.db")
    keep_graph(database, found, reason)
    taken = known_graph(database, choices(), HERE).decisions
    assert taken.get(LAYOUT) == (None if reason else (2,))
    assert known_graph(database, choices(), replace(HERE, threads=2)) == Tuned()
