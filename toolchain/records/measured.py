"""Measurements of `tk bench` as records, and what was measured before."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from toolchain.records.cells import cell_of
from toolchain.records.device_state import device_state
from toolchain.records.host import host_versions
from toolchain.records.record import DeviceState, Latency, Place, Record, State, Subject
from toolchain.records.store import new_id


def measured_record(
    document: Mapping[str, Any], command: Sequence[str], before: DeviceState, selector: str = ""
) -> Record:
    """The record of a report of `tk bench`, as its JSON has it.

    command: repeats it. before: the machine's state at its beginning. selector: what `--device` said.
    """
    when = datetime.now(UTC)
    library = str(document["library"]).rpartition("/")[2]
    others = [one for one in (*document["others"], document["baseline"]) if one is not None]
    at_once = document["throughput"]
    return Record(
        id=new_id(when),
        kind="bench",
        when=when,
        state=State.MEASURED,
        subject=Subject(
            network=library.rpartition(".")[0] or library, model_sha256=str(document["model_sha256"])
        ),
        place=Place(
            target=str(document["target"]),
            arch=str(document["arch"]),
            device=str(document["device"]),
            selector=selector,
            threads=document["threads"],
            machine=platform.node(),
        ),
        versions=host_versions(),
        latency=measured_latency(document, at_once["per_second"] if at_once else None),
        baselines=tuple(measured_latency(one) for one in others),
        before=before,
        after=device_state(str(document["target"])),
        command=tuple(command),
    )


def measured_latency(timed: Mapping[str, Any], per_second: float | None = None) -> Latency:
    """The latency in a report of `tk bench`, or of something that it compares with."""
    p50 = _number(timed["p50_ms"])
    return Latency(
        engine=str(timed.get("engine", "tk")),
        p50_ms=p50,
        p90_ms=_number(timed["p90_ms"]),
        p99_ms=_number(timed["p99_ms"]),
        low_ms=_number(timed["low_ms"]),
        high_ms=_number(timed["high_ms"]),
        spread=_number(timed["spread"]),
        runs=int(timed["runs"]),
        threads=timed["threads"],
        per_second=per_second or (1e3 / p50 if p50 else None),
        noisy=str(timed["noisy"]),
    )


def earlier_measurements(record: Record, records: Iterable[Record]) -> tuple[Record, ...]:
    """Measurements of the same model at the same place on the same machine, the oldest first."""
    here = cell_of(record), record.place.machine, record.subject.model_sha256
    return tuple(
        one
        for one in sorted(records, key=lambda one: one.id)
        if one.kind == "bench"
        and one.latency is not None
        and (cell_of(one), one.place.machine, one.subject.model_sha256) == here
    )


def _number(value: Any) -> float:
    """NaN and infinities are texts in JSON."""
    return float(value)
