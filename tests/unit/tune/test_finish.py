"""The end of a search: what stays in the tuned library, and when it is the untuned one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from compiler.core.diagnostics import CrashError
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.tuned import Records
from compiler.targets import get_target
from compiler.tune.candidate import make_candidate
from compiler.tune.finish import finish
from compiler.tune.network import BuiltLibrary, Compared, Network, NetworkKernel
from compiler.tune.progress import KernelSearch
from compiler.tune.record import OK, Measured, Record
from compiler.verify.report import Difference, Verdict
from tests.support.tuned import HERE, product

UNTUNED = BuiltLibrary(Path("untuned.so"), ())
WORKLOAD = product(4, 8, 16)


def search_of(*seconds: float) -> KernelSearch:
    """A kernel whose default takes a second, and candidates that take so many by themselves."""
    default = make_candidate(WORKLOAD, get_target("cpu:x86-64"), AnalyticChooser())
    search = KernelSearch(NetworkKernel(WORKLOAD, "product", 1, default.decisions), default, 1e3)
    for number, one in enumerate((1.0, *seconds)):
        program = f"candidate {number}" if number else default.program
        measured = Measured(OK, (one,))
        search.add(Record.of(WORKLOAD.key, {}, program, "", measured, HERE, "2026-11-24", {"n": f"{number}"}))
    return search


class Scripted:
    """A network whose candidates take these parts of the default's time, in order, and a whole that does."""

    def __init__(
        self, kernels: Sequence[float], whole: float, verdict: Verdict = "faster", wrong: str = ""
    ) -> None:
        self.kernels, self.whole, self.verdict, self.wrong = list(kernels), whole, verdict, wrong
        self.built: list[str] = []

    def build(self, name: str, records: Records) -> tuple[BuiltLibrary, None]:
        self.built.append(name)
        assert records(WORKLOAD).record
        return BuiltLibrary(Path(f"{name}.so"), ()), None

    def compare(self, libraries: Sequence[BuiltLibrary], seconds: float) -> Compared:
        assert libraries[0] is UNTUNED
        assert seconds > 0
        ratio = self.kernels.pop(0) if self.built[-1] != "tuned" else self.whole
        difference = Difference(self.whole, self.whole, self.whole, self.verdict)
        ms = {WORKLOAD.key: (1.0, ratio)}
        return Compared(ms, {WORKLOAD.key: (ratio, ratio)}, (1.0, self.whole), difference, self.wrong)


def ended(search: KernelSearch, network: Any) -> Any:
    return finish(cast(Network, network), UNTUNED, [search], 0.1)


def test_what_gains_is_kept() -> None:
    search = search_of(0.5, 0.7)
    made = ended(search, Scripted([0.8], 0.9))
    assert (made.library.path.name, search.kept, made.withdrawn, made.warnings) == ("tuned.so", True, {}, ())


def test_the_next_best_is_tried_where_the_best_does_not_gain() -> None:
    search = search_of(0.5, 0.7)
    best, following = search.faster
    made = ended(search, Scripted([1.1, 0.8], 0.9))
    assert search.kept
    assert made.withdrawn.keys() == {best.id}
    assert following.id not in made.withdrawn


def test_nothing_is_kept_where_nothing_gains() -> None:
    search = search_of(0.5, 0.7)
    made = ended(search, Scripted([1.1, 1.2], 0.9))
    assert (made.library, search.kept, len(made.withdrawn)) == (UNTUNED, False, 2)
    assert "in the network" in search.reason


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (lambda: Scripted([0.8], 1.02, "slower"), "1.020 of the untuned one's time"),
        (lambda: Scripted([0.8], 1.0, "undecided"), "1.000 of the untuned one's time"),
        (lambda: Scripted([0.8], 0.9, wrong="y: differs by 0.5"), "y: differs by 0.5"),
    ],
)
def test_the_untuned_library_stays_where_the_whole_does_not_gain(
    network: Callable[[], Scripted], said: str
) -> None:
    search = search_of(0.5)
    made = ended(search, network())
    assert (made.library, search.kept) == (UNTUNED, False)
    assert len(made.withdrawn) == 1
    assert said in made.warnings[0]


def test_a_library_that_crashes_is_not_used() -> None:
    class Crashing(Scripted):
        def compare(self, *_: object) -> Compared:  # type: ignore[override]  # whatever is compared
            raise CrashError("the library crashed with signal 11", why="it was timed")

    search = search_of(0.5)
    made = ended(search, Crashing([], 0.9))
    assert (made.library, search.kept, len(made.withdrawn)) == (UNTUNED, False, 1)
    assert "signal 11" in made.warnings[0]
