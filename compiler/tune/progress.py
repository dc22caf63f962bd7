"""Where each kernel of a search stands: what was tried, what is best, what was told of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from compiler.stages.tuned import changed_decisions
from compiler.tune.candidate import KernelCandidate
from compiler.tune.network import NetworkKernel
from compiler.tune.record import OK, Record
from compiler.tune.report import TunedKernel


@dataclass(slots=True)
class KernelSearch:
    """One kernel of the network while its schedule is looked for.

    default: its untuned candidate. ms: of all its calls in an inference of the untuned library. records: by
    the programs that were measured, the fastest of each. tried: how many there were, failures too. settled:
    ids of those whose order was found out in turns, the fastest first.
    """

    kernel: NetworkKernel
    default: KernelCandidate
    ms: float
    records: dict[str, Record] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    tried: int = 0
    settled: tuple[str, ...] = ()
    kept: bool = False
    reason: str = ""

    def add(self, record: Record) -> None:
        """Take what became of a candidate."""
        self.tried += 1
        if record.measured.status != OK:
            self.failures[record.measured.status] += 1
        known = self.records.get(record.program)
        if known is None or record.measured.median < known.measured.median:
            self.records[record.program] = record

    @property
    def key(self) -> str:
        """The key of its workload."""
        return self.kernel.workload.key

    @property
    def default_seconds(self) -> float:
        """Median seconds of one call with the default schedule; 0 where that was not measured."""
        found = self.records.get(self.default.program)
        return found.measured.median if found is not None and found.measured.status == OK else 0.0

    @property
    def best(self) -> Record | None:
        """The fastest record; None where nothing was measured."""
        measured = [one for one in self.records.values() if one.measured.status == OK]
        return min(measured, key=lambda one: one.measured.median, default=None)

    @property
    def ratio(self) -> float:
        """What the best candidate takes of the default's time, at most all of it."""
        if self.best is None or not self.default_seconds:
            return 1.0
        return min(1.0, self.best.measured.median / self.default_seconds)

    @property
    def faster(self) -> list[Record]:
        """Records of other schedules that took less time than the default's, the fastest first."""
        found = [
            one
            for one in sorted(self.records.values(), key=lambda one: one.measured.median)
            if one.measured.median < self.default_seconds and one.program != self.default.program
        ]
        by_id = {one.id: one for one in found}
        first = [by_id[one] for one in self.settled if one in by_id]
        return first + [one for one in found if one.id not in self.settled]

    def row(self, whole: float) -> TunedKernel:
        """As it is reported; `whole` are the milliseconds of all kernels."""
        best = self.best
        return TunedKernel(
            name=self.kernel.name,
            workload=self.key,
            calls=self.kernel.calls,
            share=self.ms / whole if whole else 0.0,
            default_ms=1e3 * self.default_seconds,
            best_ms=1e3 * self.default_seconds * self.ratio,
            trials=self.tried,
            failures=dict(self.failures),
            kept=self.kept,
            reason=self.reason,
            record=best.id if best is not None and best.program != self.default.program else "",
            changed=changed_decisions(self.default.decisions, best.decisions) if best is not None else {},
        )
