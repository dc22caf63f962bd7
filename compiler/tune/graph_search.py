"""The search over decisions of the graph: whole libraries in turns with the untuned one.

There are a handful of candidates, each with one decision changed. What they do to kernels cannot be measured
by itself: with other layouts other kernels are made, and what one gains another may lose.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compiler.core.diagnostics import BuildError, CrashError, TkError
from compiler.core.files import sha256_bytes
from compiler.core.progress import Progress, silent
from compiler.stages.compilation import Compilation
from compiler.stages.text import layouts_text
from compiler.stages.tuned import Decisions, GraphChoices, Tuned, no_records
from compiler.tune.database.store import Database, now
from compiler.tune.network import BuiltLibrary, Network
from compiler.tune.record import DEFAULT_NOTE, OK, Environment, Measured, Record

_CHECKED_BY = "untuned library"


@dataclass(frozen=True, slots=True)
class GraphSearch:
    """What a search over a graph's decisions found.

    library, compilation: with the best decisions, else the untuned ones. best: the record of these; None
    where none gained. records: of all that was tried.
    """

    library: BuiltLibrary
    compilation: Compilation
    best: Record | None = None
    records: Sequence[Record] = field(default_factory=tuple)

    @property
    def tuned(self) -> Tuned:
        """What a compile is told of the graph."""
        return Tuned() if self.best is None else Tuned(self.best.decisions, self.best.id)


def graph_candidates(made: GraphChoices) -> Iterator[Decisions]:
    """The decisions of a graph with one of them changed, for each other option."""
    for name, options in made.offered.items():
        for option in options:
            if option.value != made.decisions[name]:
                yield {**made.decisions, name: option.value}


def search_graph(
    network: Network,
    untuned: BuiltLibrary,
    compilation: Compilation,
    environment: Environment,
    until: float | None,
    seconds: float,
    progress: Progress = silent,
) -> GraphSearch:
    """Try the decisions of a graph one by one, and then the best ones again, until a time of the clock.

    `seconds` is how long each comparison of two libraries measures. What does not gain twice is not taken.
    """
    made = compilation.graph
    if made.workload is None:
        return GraphSearch(untuned, compilation)
    trial = _Trial(network, untuned, compilation, environment, seconds)
    candidates = list(graph_candidates(made))
    for number, decisions in enumerate(candidates):
        if until is not None and time.monotonic() >= until:
            break
        progress("layouts and fusion in the network", number, len(candidates))
        trial.attempt(decisions)
    for record, library, found in sorted(trial.gained, key=lambda one: one[0].measured.median):
        compared = network.compare([untuned, library], seconds)
        if compared.difference is not None and compared.difference.high < 1.0:
            return GraphSearch(library, found, record, trial.records)
    return GraphSearch(untuned, compilation, None, trial.records)


def known_graph(database: Database, made: GraphChoices, environment: Environment) -> Tuned:
    """What an earlier search found of a graph here, by these rules."""
    found = database.bests(made.workload.key) if made.workload is not None else []
    best = min(
        (one for one in found if one.environment == environment),
        key=lambda one: one.measured.median,
        default=None,
    )
    return Tuned() if best is None or best.is_default else Tuned(best.decisions, best.id)


def keep_graph(database: Database, found: GraphSearch, reason: str = "") -> None:
    """Keep what was tried; only the best one is compiled with, and not even that where there is a reason."""
    workload = found.compilation.graph.workload
    if workload is None or not found.records:
        return
    database.add(found.records, [workload])
    kept = found.best.id if found.best is not None and not reason else ""
    measured = [one.id for one in found.records if one.measured.status == OK and not one.is_default]
    lost = [one for one in measured if one != kept]
    database.withdraw(lost, reason or "it did not gain in the network")
    database.restore([kept] if kept else [])


class _Trial:
    """Libraries with other decisions, each beside the untuned one."""

    def __init__(
        self,
        network: Network,
        untuned: BuiltLibrary,
        compilation: Compilation,
        environment: Environment,
        seconds: float,
    ) -> None:
        assert compilation.graph.workload is not None
        self._network, self._untuned, self._seconds = network, untuned, seconds
        self._workload, self._environment = compilation.graph.workload, environment
        self._known = {_program(compilation)}
        self._default = compilation.graph.decisions
        self._program = _program(compilation)
        self.records: list[Record] = []
        self.gained: list[tuple[Record, BuiltLibrary, Compilation]] = []

    def attempt(self, decisions: Decisions) -> None:
        """Build and time a library, if nobody made the same one before."""
        tuned = Tuned(decisions, "candidate")
        self._network.graph = {self._workload.key: tuned}
        try:
            library, found = self._network.build(f"graph{len(self._known)}", no_records)
        except TkError as error:
            status = "build" if isinstance(error, BuildError) else "limit"
            self._keep(decisions, "", Measured(status, message=error.what))
            return
        finally:
            self._network.graph = {}
        program = _program(found)
        if program not in self._known:
            self._known.add(program)
            self._time(decisions, program, library, found)

    def _time(self, decisions: Decisions, program: str, library: BuiltLibrary, found: Compilation) -> None:
        try:
            compared = self._network.compare([self._untuned, library], self._seconds)
        except CrashError as error:
            self._keep(decisions, program, Measured("crash", message=error.what))
            return
        if compared.wrong:
            self._keep(decisions, program, Measured("wrong", message=compared.wrong))
            return
        before, after = (1e-3 * ms for ms in compared.whole)
        if not self.records or not self.records[0].is_default:
            default = Measured(OK, (before,), checked_by=_CHECKED_BY)
            self.records.insert(0, self._record(self._default, self._program, default, {DEFAULT_NOTE: "1"}))
        pace = self.records[0].measured.median / before
        record = self._keep(decisions, program, Measured(OK, (after * pace,), checked_by=_CHECKED_BY))
        if compared.difference is not None and compared.difference.high < 1.0:
            self.gained.append((record, library, found))

    def _keep(self, decisions: Decisions, program: str, measured: Measured) -> Record:
        self.records.append(self._record(decisions, program, measured, {}))
        return self.records[-1]

    def _record(
        self, decisions: Decisions, program: str, measured: Measured, notes: dict[str, str]
    ) -> Record:
        key, environment = self._workload.key, self._environment
        return Record.of(key, decisions, program, "", measured, environment, now(), notes)


def _program(compilation: Compilation) -> str:
    """What tells libraries of a graph apart: their kernels, in which order, on which layouts."""
    texts = [kernel.text for kernel in compilation.kernels]
    calls = [str(step.kernel) for step in compilation.steps]
    laid_out = layouts_text(compilation.laid_out.layouts)
    return sha256_bytes("\n".join([*texts, *calls, laid_out]).encode())
