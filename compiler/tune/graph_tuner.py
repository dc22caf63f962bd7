"""The graph in a search: decisions of it before kernels are searched, and whether they stay at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.core.progress import Progress
from compiler.stages.compilation import Compilation
from compiler.stages.tuned import Tuned, no_records
from compiler.tune.database.store import Database
from compiler.tune.finish import TunedLibrary
from compiler.tune.graph_search import GraphSearch, keep_graph, known_graph, search_graph
from compiler.tune.network import BuiltLibrary, Network
from compiler.tune.progress import KernelSearch
from compiler.tune.record import Environment
from compiler.tune.report import TuneRequest

_GRAPH_SHARE, _TRIAL_SHARE = 0.25, 0.01
"""Of the time of a search: what decisions of the graph may take, and each comparison with one of them."""
_SHORTEST, _LONGEST = 0.3, 3.0


def comparison_seconds(share: float) -> float:
    """How long two libraries are compared that may take so much of a search."""
    return min(_LONGEST, max(_SHORTEST, share))


@dataclass(frozen=True, slots=True)
class GraphTuner:
    """What is decided of the graph of one request, in its network."""

    request: TuneRequest
    network: Network
    database: Database | None
    environment: Environment
    progress: Progress

    def decide(self, untuned: BuiltLibrary, compilation: Compilation) -> GraphSearch:
        """Decisions of the graph that gain in the network; all libraries from here on have them."""
        request = self.request
        if not request.graph:
            return self._known(untuned, compilation)
        limit = request.budget.seconds
        until = None if limit is None else time.monotonic() + _GRAPH_SHARE * limit
        seconds = comparison_seconds(math.inf if limit is None else _TRIAL_SHARE * limit)
        found = search_graph(
            self.network, untuned, compilation, self.environment, until, seconds, self.progress
        )
        if self.database is not None:
            keep_graph(self.database, found)
        workload = compilation.graph.workload
        if found.best is not None and workload is not None:
            self.network.graph = {workload.key: found.tuned}
        return found

    def _known(self, untuned: BuiltLibrary, compilation: Compilation) -> GraphSearch:
        """What an earlier search found, as `tk compile` takes it."""
        made = compilation.graph
        tuned = Tuned()
        if self.database is not None:
            tuned = known_graph(self.database, made, self.environment)
        if not tuned.decisions or made.workload is None:
            return GraphSearch(untuned, compilation)
        self.network.graph = {made.workload.key: tuned}
        return GraphSearch(*self.network.build("graph", no_records))

    def judge(
        self,
        graph: GraphSearch,
        original: BuiltLibrary,
        finished: TunedLibrary,
        searches: Sequence[KernelSearch],
        seconds: float,
    ) -> TunedLibrary:
        """The library, if it takes less time than the one where nothing is tuned, not even the graph."""
        compared = self.network.compare([original, finished.library], seconds)
        difference = compared.difference
        if not compared.wrong and (difference is None or difference.ratio < 1.0):
            return replace(finished, compared=compared)
        why = compared.wrong or "as a whole it does not take less time than the untuned one"
        warning = f"the tuned library is not used: {why}"
        if self.database is not None:
            keep_graph(self.database, graph, reason=warning)
        for one in searches:
            one.kept, one.reason = False, warning
        return TunedLibrary(original, None, finished.withdrawn, (*finished.warnings, warning))
