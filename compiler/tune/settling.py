"""Before the network decides: which of a kernel's last few candidates is the fastest, in turns.

Candidates were measured in different batches, each in turns with the default schedule. Where the best ones
are as near to each other as such times are known, their order is a matter of chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, runtime_checkable

from compiler.core.diagnostics import BuildError, CrashError
from compiler.core.progress import Progress, silent
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.targets import Target
from compiler.tune.candidate import KernelCandidate, RejectedError, make_candidate
from compiler.tune.progress import KernelSearch
from compiler.tune.record import Record
from compiler.verify.report import Difference

_MOST = 3
"""Candidates of a kernel: as many as the network tries."""
_CLOSE = 1.03
"""How much longer than the best one those take whose order is open."""
_SHARE = 0.01
"""Of the network's time that a kernel takes at least: less cannot be seen in the network."""


@runtime_checkable
class Settles(Protocol):
    """Compares candidates in turns; who measures elsewhere may have no way to."""

    def settle(self, candidates: Sequence[KernelCandidate], seconds: float) -> list[list[Difference]]:
        """How each compares with each: rows in their order; raises BuildError and CrashError."""
        ...


def settle_order(
    searches: Sequence[KernelSearch],
    measurer: Settles,
    target: Target,
    seconds: float,
    progress: Progress = silent,
) -> None:
    """Put the best candidates of each kernel that counts in the order in which they are known to be.

    `seconds` is how long a comparison takes at most. Where they cannot be compared their order stays.
    """
    whole = sum(one.ms for one in searches)
    open_ones = [
        (one, close) for one in searches if one.ms >= _SHARE * whole and len(close := _close(one)) > 1
    ]
    for number, (one, close) in enumerate(open_ones):
        progress("settling the order of the best", number, len(open_ones))
        made = dict(_made(one, close, target))
        if len(made) < 2:
            continue
        try:
            table = measurer.settle(list(made.values()), seconds)
        except (BuildError, CrashError):
            continue
        one.settled = tuple(_in_order(list(made), table))


def _close(search: KernelSearch) -> list[Record]:
    """The best records, as far as their times say nothing of their order."""
    best = search.faster[:_MOST]
    return [one for one in best if one.measured.median <= _CLOSE * best[0].measured.median]


def _made(
    search: KernelSearch, records: Sequence[Record], target: Target
) -> Iterable[tuple[str, KernelCandidate]]:
    """The candidates of records, by these' names, as far as the rules still make them."""
    for record in records:
        chooser = ReplayChooser(record.decisions, AnalyticChooser())
        try:
            made = make_candidate(search.kernel.workload, target, chooser)
        except RejectedError:
            continue
        if made.program == record.program:
            yield record.id, made


def _in_order(names: Sequence[str], table: Sequence[Sequence[Difference]]) -> list[str]:
    """By how many of the others each is faster than, less those that it is slower than; else as they were."""
    won = {
        name: sum((one.verdict == "faster") - (one.verdict == "slower") for one in row)
        for name, row in zip(names, table, strict=True)
    }
    return sorted(names, key=lambda name: -won[name])
