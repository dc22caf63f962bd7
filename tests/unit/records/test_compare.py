"""What changed between two runs: states by cell, and times beyond both confidence intervals."""

from __future__ import annotations

import itertools
import math
from datetime import UTC, datetime, timedelta

import pytest

from toolchain.records.cells import STATE_MEANINGS, mark_of, trials_by_cell
from toolchain.records.compare import REGRESSIONS, ChangeKind, compare_records
from toolchain.records.record import FAILED, PASSED, Latency, Place, Record, State, Subject
from toolchain.records.store import new_id

_START = datetime(2026, 1, 2, tzinfo=UTC)
_NUMBERS = itertools.count()


def record(
    state: State = State.VERIFIED,
    ms: tuple[float, float, float] | None = None,
    *,
    network: str = "mnist",
    kind: str = "cell",
    noisy: str = "",
    machine: str = "m",
    **place: object,
) -> Record:
    """One trial, later than those before; `ms` are the low end, median and high end of its latency."""
    when = _START + timedelta(seconds=next(_NUMBERS))
    latency = None
    if ms is not None:
        low, middle, high = ms
        latency = Latency(p50_ms=middle, p90_ms=high, p99_ms=high, low_ms=low, high_ms=high, spread=0.1,
                          runs=9, noisy=noisy)  # fmt: skip
    where = Place.model_validate({"target": "cpu", "machine": machine, **place})
    return Record(id=new_id(when), kind=kind, when=when, state=state, subject=Subject(network=network),
                  place=where, latency=latency)  # type: ignore[arg-type]  # fmt: skip


def kinds(before: list[Record], after: list[Record]) -> list[ChangeKind]:
    return [one.kind for one in compare_records(before, after).changes]


@pytest.mark.parametrize("old", [None, *State])
@pytest.mark.parametrize("new", [None, *State])
def test_every_pair_of_states(old: State | None, new: State | None) -> None:
    found = kinds([record(old)] if old else [], [record(new)] if new else [])
    ran = [one not in (None, State.NOT_RUN) for one in (old, new)]
    if ran[0] != ran[1]:
        assert found == [ChangeKind.NEW if ran[1] else ChangeKind.LOST]
    elif old == new or not ran[0]:
        assert found == []
    elif old in PASSED and new in FAILED:
        assert found == [ChangeKind.BROKEN]
    elif old in FAILED and new in PASSED:
        assert found == [ChangeKind.FIXED]
    elif new in FAILED:
        assert found == [ChangeKind.FAILS_OTHERWISE]
    else:
        assert found in ([ChangeKind.WEAKER], [ChangeKind.STRONGER])


def test_what_was_verified_and_is_only_compiled_is_shown_less() -> None:
    assert kinds([record(State.VERIFIED)], [record(State.COMPILED_ONLY)]) == [ChangeKind.WEAKER]
    assert kinds([record(State.MEASURED)], [record(State.EMULATED)]) == [ChangeKind.STRONGER]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ((9, 10, 11), (11.1, 12, 13), [ChangeKind.SLOWER]),
        ((9, 10, 11), (10.9, 12, 13), []),  # the intervals touch
        ((9, 10, 11), (7, 8, 8.9), [ChangeKind.FASTER]),
        ((9, 10, 11), (math.nan, 12, 13), []),
        ((9, 10, 11), (12, math.inf, math.inf), []),
    ],
)
def test_times_count_beyond_both_intervals(
    old: tuple[float, float, float], new: tuple[float, float, float], found: list[ChangeKind]
) -> None:
    assert kinds([record(ms=old)], [record(ms=new)]) == found


def test_regressions_are_failures_and_slower_cells_worst_first() -> None:
    before = [record(network=name, ms=(1, 2, 3)) for name in ("a", "b", "c")]
    after = [
        record(network="a", ms=(4, 5, 6)),
        record(State.CRASHED, network="b"),
        record(network="c", ms=(1, 2, 3)),
        record(State.WRONG, network="new"),
    ]
    found = compare_records(before, after)
    assert [(one.cell.network, one.kind) for one in found.changes] == [
        ("b", ChangeKind.BROKEN),
        ("a", ChangeKind.SLOWER),
        ("new", ChangeKind.NEW),
    ]
    assert found.regressions == found.changes[:2]
    assert found.changes[1].ratio == 2.5
    assert (found.same, found.timed) == (1, 2)
    assert {ChangeKind.BROKEN, ChangeKind.SLOWER} == REGRESSIONS


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ({"noisy": "busy"}, {}, "before: busy"),
        ({}, {"machine": "other"}, "another machine: m before, other now"),
        ({"device": "V100"}, {"device": "A100"}, "another device: V100 before, A100 now"),
    ],
)
def test_times_that_decide_nothing_are_listed(old: dict[str, str], new: dict[str, str], why: str) -> None:
    found = compare_records([record(ms=(1, 2, 3), **old)], [record(ms=(7, 8, 9), **new)])  # type: ignore[arg-type]
    assert found.changes == ()
    assert list(found.undecided.values()) == [why]


def test_a_device_that_is_named_only_when_it_runs_makes_no_other_cell() -> None:
    assert kinds([record(device="V100")], [record(State.NOT_RUN)]) == [ChangeKind.LOST]


def test_cells_are_told_apart() -> None:
    cells = trials_by_cell(
        [
            record(),
            record(network="x"),
            record(target="sycl-cpu"),
            record(arch="avx2"),
            record(threads=2),
            record(selector="1"),
            record(precision="tf32"),
            record(image="other"),  # where it was made is no cell of its own
        ]
    )
    assert len(cells) == 7


def test_the_newest_trial_counts_and_measurements_add_their_times() -> None:
    older, newer = record(State.WRONG), record(State.VERIFIED)
    bench = record(State.MEASURED, (1, 2, 3), kind="bench")
    (found,) = trials_by_cell([bench, newer, older]).values()
    assert (found.result, found.timed) == (newer, bench)
    assert found.every == (older, newer, bench)
    (failed,) = trials_by_cell([bench, record(State.CRASHED)]).values()
    assert failed.latency is None  # the time of what worked once says nothing of what fails now
    (alone,) = trials_by_cell([bench]).values()
    assert alone.result == bench


def test_every_state_has_a_sign_and_a_meaning() -> None:
    assert STATE_MEANINGS.keys() == set(State)
    assert {mark_of(one) for one in FAILED} == {"✗"}
    assert mark_of(State.NOT_RUN) not in {mark_of(one) for one in PASSED | FAILED}
