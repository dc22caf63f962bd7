"""What a report says, before any form: the table, what is wrong, how quick it is, and how that changed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler import UsageError, did_you_mean
from toolchain.records.cells import Cell, CellTrials, trials_by_cell
from toolchain.records.compare import ChangeKind, latency_change, why_not_comparable
from toolchain.records.record import FAILED, PASSED, Latency, Record, State
from toolchain.report.families import FamilyCell, Untried, family_cells

_FAMILIES = ("mnist", "alexnet", "caffenet", "densenet", "efficientnet", "inception", "googlenet",
             "mobilenet", "rcnn", "resnet", "shufflenet", "squeezenet", "vgg", "zfnet")  # fmt: skip
# In the order of the team's table; a vendor's own language comes before them, and is written as it is.
_LANGUAGES = {"sycl": "SYCL", "opencl": "OpenCL"}
_VENDORS = {"nvidia": "NVIDIA", "amd": "AMD", "hygon": "Hygon", "intel": "Intel"}


@dataclass(frozen=True, slots=True)
class Speed:
    """How many times as fast as something else, with the interval that follows from both."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ReportCell:
    """One cell of the report. name: of the model, with what tells it apart from the same model beside it."""

    name: str
    family: str
    trials: CellTrials
    speed: Speed | None = None
    slower: bool = False

    @property
    def cell(self) -> Cell:
        """What was tried where."""
        return self.trials.cell

    @property
    def record(self) -> Record:
        """The trial that says the state."""
        return self.trials.result

    @property
    def state(self) -> State:
        """How it ended."""
        return self.record.state

    @property
    def latency(self) -> Latency | None:
        """The newest of what works."""
        return self.trials.latency


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """A model that a plan has on a target, named as records name it."""

    family: str
    network: str
    revision: str
    target: str

    @property
    def model(self) -> str:
        """As `Cell.model`."""
        return self.revision or self.network


@dataclass(frozen=True, slots=True)
class Bug:
    """A known issue that logs show. cells: each with `open`, `gone` or `not tried again`."""

    issue: str
    cause: str
    action: str
    cells: tuple[tuple[ReportCell, str], ...]


@dataclass(frozen=True, slots=True)
class RecordReport:
    """All that is reported.

    baseline: what speeds are relative to, or empty. untried: what a plan has that no record is of.
    """

    trials: tuple[ReportCell, ...]
    families: tuple[str, ...]
    targets: tuple[str, ...]
    table: Mapping[tuple[str, str], FamilyCell[ReportCell]]
    bugs: tuple[Bug, ...]
    baseline: str
    untried: tuple[Untried, ...] = ()

    @property
    def counts(self) -> Mapping[State, int]:
        """How many cells ended in each state, in the order of states, without those that none has."""
        found = Counter(one.state for one in self.trials)
        return {state: found[state] for state in State if found[state]}

    @property
    def problems(self) -> tuple[ReportCell, ...]:
        """The cells that failed."""
        return tuple(one for one in self.trials if one.state in FAILED)


def make_report(
    records: Iterable[Record], baseline: str = "", planned: Iterable[PlannedModel] = ()
) -> RecordReport:
    """Put records in order, with what a plan has beside them.

    Raises UsageError for a baseline that no record has a time of.
    """
    cells = trials_by_cell(records)
    names = _names(cells)
    speeds = _speeds(cells, baseline) if baseline else {}
    trials = [
        ReportCell(names[cell], one.result.subject.family or cell.network, one, speeds.get(cell),
              any(slower for _, _, slower in timed_history(one)[-1:]))
        for cell, one in cells.items()
    ]  # fmt: skip
    known = {(one.cell.model, one.cell.target) for one in trials}
    wanted = tuple(dict.fromkeys(planned))
    untried = tuple(
        Untried(one.family, one.model, one.target) for one in wanted if (one.model, one.target) not in known
    )
    families = _in_order({*(one.family for one in trials), *(one.family for one in wanted)}, _FAMILIES)
    targets = tuple(
        sorted({*(one.cell.target for one in trials), *(one.target for one in wanted)}, key=_target_order)
    )
    trials.sort(key=lambda one: (families.index(one.family), targets.index(one.cell.target), one.cell))
    table = family_cells(trials, lambda one: one.cell.target, untried)
    return RecordReport(tuple(trials), families, targets, table, _bugs(trials), baseline, untried)


def target_title(target: str) -> str:
    """A target as in the head of the team's table: `cuda-NVIDIA`, `SYCL-AMD`."""
    language, _, vendor = target.partition("-")
    return "-".join(filter(None, [_LANGUAGES.get(language, language), _VENDORS.get(vendor, vendor)]))


def needs_device(target: str) -> bool:
    """Whether a target's kernels run on a vendor's device, not on the cores of a machine."""
    return target.partition("-")[2] in _VENDORS


def language_number(target: str) -> int:
    """By which charts colour a target: a vendor's own language, one of all, or this machine's cores."""
    language, _, vendor = target.partition("-")
    if language in _LANGUAGES:
        return 1 + [*_LANGUAGES].index(language)
    return 0 if vendor else 1 + len(_LANGUAGES)


def timed_history(trials: CellTrials) -> tuple[tuple[Record, Latency, bool], ...]:
    """The trials of a cell that worked and were timed, oldest first.

    Each with whether it is slower than the one before on the same machine and device, beyond both intervals.
    """
    found: list[tuple[Record, Latency, bool]] = []
    for record in trials.every:
        now = record.latency
        if now is None or record.state not in PASSED:
            continue
        before = next((old for old in reversed(found) if _same_place(old[0], record)), None)
        decided = before is not None and not why_not_comparable(before[1], now)
        slower = before is not None and decided and latency_change(before[1], now) == ChangeKind.SLOWER
        found.append((record, now, slower))
    return tuple(found)


def _same_place(one: Record, other: Record) -> bool:
    return (one.place.machine, one.place.device) == (other.place.machine, other.place.device)


def _in_order(names: Iterable[str], first: Sequence[str]) -> tuple[str, ...]:
    known = [name for name in first if name in names]
    return (*known, *sorted(set(names) - set(known)))


def _target_order(target: str) -> tuple[int, int, str]:
    """By vendor, then by language, as in the team's table; this machine's cores come first."""
    language, _, vendor = target.partition("-")
    return (_place_in(_VENDORS, vendor), _place_in(_LANGUAGES, language), target)


def _place_in(known: Mapping[str, str], name: str) -> int:
    return [*known].index(name) if name in known else -1


def _names(cells: Mapping[Cell, CellTrials]) -> dict[Cell, str]:
    """What each cell is called beside others: with architecture, device and so on where they differ."""
    beside: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in cells:
        beside[cell.network, cell.revision, cell.target].append(cell)
    return {cell: _name(cell, group) for group in beside.values() for cell in group}


def _name(cell: Cell, group: Sequence[Cell]) -> str:
    words = {
        "arch": cell.arch,
        "selector": f"device {cell.selector}" if cell.selector else "",
        "threads": cell.thread_words,
        "precision": cell.precision,
    }
    apart = [
        text for field, text in words.items() if len({getattr(one, field) for one in group}) > 1 and text
    ]
    return f"{cell.model} ({', '.join(apart)})" if apart else cell.model


def _speeds(cells: Mapping[Cell, CellTrials], baseline: str) -> dict[Cell, Speed]:
    targets = {cell.target for cell, one in cells.items() if one.latency}
    engines = {other.engine for one in cells.values() if one.timed for other in one.timed.baselines}
    if baseline not in targets | engines:
        known = sorted(targets | engines)
        raise UsageError(
            f"nothing was timed on `{baseline}`",
            where="--baseline",
            why=f"times are known of {', '.join(known) or 'nothing'}",
            hint=did_you_mean(baseline, known),
        )
    found: dict[Cell, Speed] = {}
    for cell, one in cells.items():
        other = _baseline_of(one, cells, baseline)
        if one.latency and other and one.latency.low_ms > 0 and one.latency.p50_ms > 0:
            own = one.latency
            speed = Speed(other.p50_ms / own.p50_ms, other.low_ms / own.high_ms, other.high_ms / own.low_ms)
            if math.isfinite(speed.ratio):
                found[cell] = speed
    return found


def _baseline_of(one: CellTrials, cells: Mapping[Cell, CellTrials], baseline: str) -> Latency | None:
    """The baseline's time of the same model: of the same session, or of the quickest cell of that target."""
    engines = one.timed.baselines if one.timed else ()
    own = [other for other in engines if other.engine == baseline]
    same = [
        other.latency
        for cell, other in cells.items()
        if cell.target == baseline and cell.model == one.cell.model and other.latency
    ]
    return min(own or same, key=lambda latency: latency.p50_ms, default=None)


def _bugs(trials: Sequence[ReportCell]) -> tuple[Bug, ...]:
    """Known issues that any trial of a cell showed, and what became of them by the newest."""
    texts: dict[str, tuple[str, str]] = {}
    found: dict[str, dict[Cell, tuple[ReportCell, str]]] = defaultdict(dict)
    for one in trials:
        for record in one.trials.every:
            for cause in record.causes:
                texts[cause.issue] = (cause.cause, cause.action)
                found[cause.issue][one.cell] = (one, _now(one.record, cause.issue))
    return tuple(Bug(issue, *texts[issue], tuple(found[issue].values())) for issue in sorted(found))


def _now(newest: Record, issue: str) -> str:
    if any(cause.issue == issue for cause in newest.causes):
        return "open"
    return "not tried again" if newest.state == State.NOT_RUN else "gone"
