"""The end of a search: the tuned library, which never ships slower than the untuned one.

Kernels were timed by themselves; what counts is the network. Libraries with and without the best candidates
run in turns, and a kernel whose gain does not show there keeps its default schedule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.core.diagnostics import CrashError
from compiler.core.progress import Progress, silent
from compiler.stages.tuned import Records, Tuned
from compiler.stages.workload import Workload
from compiler.tune.network import BuiltLibrary, Compared, Network
from compiler.tune.progress import KernelSearch
from compiler.tune.record import Record

_ROUNDS = 3
"""Attempts to find a candidate of a kernel that gains in the network: its best one, then the next ones."""


@dataclass(frozen=True, slots=True)
class TunedLibrary:
    """The library to ship, how it compares with the untuned one, and what has to be said of it.

    compared: None where it is the untuned library. withdrawn: records that did not gain, with the reason.
    """

    library: BuiltLibrary
    compared: Compared | None
    withdrawn: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def finish(
    network: Network,
    untuned: BuiltLibrary,
    searches: Sequence[KernelSearch],
    seconds: float,
    progress: Progress = silent,
) -> TunedLibrary:
    """Build the tuned library and keep what gains in it; marks `kept` and `reason` of the searches.

    `seconds` is how long each comparison of two libraries measures. A library that crashes with candidates in
    it is not used. Raises what a compile raises.
    """
    try:
        return _finish(network, untuned, searches, seconds, progress)
    except CrashError as error:
        warning = f"the tuned library is not used: {error.what} ({error.why})"
        ids = [one.id for search in searches for one in search.faster]
        return TunedLibrary(untuned, None, dict.fromkeys(ids, warning), (warning,))


def _finish(
    network: Network,
    untuned: BuiltLibrary,
    searches: Sequence[KernelSearch],
    seconds: float,
    progress: Progress,
) -> TunedLibrary:
    chosen = {one.key: one.faster[0] for one in searches if one.faster}
    kept: dict[str, Record] = {}
    withdrawn: dict[str, str] = {}
    by_key = {one.key: one for one in searches}
    for number in range(_ROUNDS):
        if not chosen:
            break
        progress("kernels in the network", number, _ROUNDS)
        built, _ = network.build(f"round{number}", records_of(kept | chosen))
        compared = network.compare([untuned, built], seconds)
        lost = {key: _why_not(key, compared) for key in chosen}
        kept |= {key: record for key, record in chosen.items() if not lost[key]}
        again: dict[str, Record] = {}
        for key, reason in lost.items():
            if reason:
                withdrawn[chosen[key].id] = reason
                by_key[key].reason = reason
                following = [one for one in by_key[key].faster if one.id not in withdrawn]
                again |= {key: following[0]} if following else {}
        chosen = again
    for key, record in chosen.items():
        withdrawn[record.id] = by_key[key].reason
    return _whole(network, untuned, searches, kept, withdrawn, seconds)


def _whole(
    network: Network,
    untuned: BuiltLibrary,
    searches: Sequence[KernelSearch],
    kept: Mapping[str, Record],
    withdrawn: Mapping[str, str],
    seconds: float,
) -> TunedLibrary:
    """The library with what was kept, if as a whole it takes less time and computes the same."""
    if not kept:
        return TunedLibrary(untuned, None, withdrawn)
    built, _ = network.build("tuned", records_of(kept))
    compared = network.compare([untuned, built], seconds)
    for again in range(2, _ROUNDS + 1):
        if compared.difference is not None and compared.difference.verdict == "undecided":
            compared = network.compare([untuned, built], again * seconds)
    difference = compared.difference
    warning = ""
    if compared.wrong:
        warning = f"the tuned library is not used: {compared.wrong} from the untuned one's"
    elif difference is not None and difference.ratio >= 1.0:
        takes = f"{difference.ratio:.3f} of the untuned one's time"
        warning = f"the tuned library is not used: as a whole it takes {takes}"
    if warning:
        return TunedLibrary(
            untuned, None, {**withdrawn, **{one.id: warning for one in kept.values()}}, (warning,)
        )
    for one in searches:
        one.kept = one.key in kept
        one.reason = "" if one.kept else one.reason
    return TunedLibrary(built, compared, withdrawn)


def _why_not(key: str, compared: Compared) -> str:
    """Why a kernel's candidate does not stay in the network; empty where it does."""
    before, after = compared.ms[key]
    low, high = compared.intervals[key]
    if high < 1.0:
        return ""
    most = f"{100 * (low - 1):+.1f} to {100 * (high - 1):+.1f} %"
    return f"{100 * (after / before - 1):+.1f} % in the network ({most})"


def records_of(chosen: Mapping[str, Record]) -> Records:
    """What a compile is told where each kernel has one record at most."""

    def find(workload: Workload) -> Tuned:
        record = chosen.get(workload.key)
        return Tuned() if record is None else Tuned(record.decisions, record.id)

    return find
