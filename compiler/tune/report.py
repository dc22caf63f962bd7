"""What a search is asked for, and what it reports: frozen records that print as tables and dump as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.cluster.address import ClusterAddress
from compiler.reports import CompileOptions

if TYPE_CHECKING:
    from compiler.verify.report import Difference


@dataclass(frozen=True, slots=True)
class Budget:
    """When a search ends: after wall seconds, after measured candidates, or when little is to be gained.

    min_gain: share of the network's latency that the next batch of a kernel is predicted to save at least.
    """

    seconds: float | None = None
    trials: int | None = None
    min_gain: float = 0.0005


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """Tune the kernels of `model`, compiled as `options` say, into `database`.

    options: the tuned library goes to its output. strategy: its name, as `strategies/choice.py` has
    them. kernels: texts of which a kernel's name has to hold one; none for all. threads: that the library is
    tuned for. trust: records of other environments count as measured here. workers: candidates that are built
    at the same time on this machine; None for as many as compilations. cluster: whose workers build and
    measure in place of this machine, those with the device called device_key; None for its only one.
    graph: whether decisions of the graph (layouts, fusion) are tried before the kernels' are.
    """

    model: Path
    options: CompileOptions
    database: Path | None = None
    budget: Budget = field(default_factory=Budget)
    strategy: str = "evolution"
    seed: int = 0
    threads: int | None = None
    kernels: tuple[str, ...] = ()
    trust: bool = False
    workers: int | None = None
    cluster: ClusterAddress | None = None
    device_key: str | None = None
    graph: bool = False


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """What became of one kernel of the network.

    name: its operators and first node. calls: in one inference. share: of the untuned library's time in
    kernels. default_ms, best_ms: medians of one call, by itself. trials, failures: candidates, the latter by
    class. kept: whether the tuned library has another kernel than the untuned one; reason: why not.
    changed: decisions that are not the default's, as default and best.
    """

    name: str
    workload: str
    calls: int
    share: float
    default_ms: float
    best_ms: float
    trials: int
    failures: Mapping[str, int] = field(default_factory=dict)
    kept: bool = False
    reason: str = ""
    record: str = ""
    changed: Mapping[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None]] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """Share of its time that the best candidate saves, measured by itself."""
        return 1.0 - self.best_ms / self.default_ms if self.default_ms and self.trials else 0.0


@dataclass(frozen=True, slots=True)
class TuneState:
    """How far a search has come: told after every batch.

    predicted: the network's time as a part of the untuned one's, if kernels take in it what they take alone.
    seconds_left: None where only trials or gains end it. event: what happened last.
    """

    kernels: tuple[TunedKernel, ...]
    predicted: float
    trials: int
    seconds: float
    seconds_left: float | None
    event: str
    untuned_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class TuneReport:
    """What a search found.

    untuned_ms, tuned_ms: medians of the two libraries, measured in turns; difference: of the second by the
    first, None where they are the same library. ended: why the search did. measured: candidates of this run,
    known: those whose records were there. graph: decisions of the graph that are not the default's, as
    default and best; graph_tried: how many were.
    """

    library: Path
    target: str
    arch: str
    threads: int
    kernels: tuple[TunedKernel, ...]
    untuned_ms: float
    tuned_ms: float
    difference: Difference | None
    ended: str
    seconds: float
    measured: int
    known: int
    database: Path | None
    warnings: tuple[str, ...] = ()
    graph: Mapping[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None]] = field(default_factory=dict)
    graph_tried: int = 0
