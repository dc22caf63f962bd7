"""What `tk matrix` says of records and changes, as text and as documents."""

from __future__ import annotations

from typing import Any

from toolchain.matrix.runs import dump
from toolchain.records.compare import CellChange
from toolchain.records.record import Record


def hours_and_minutes(seconds: float) -> str:
    """As `1 h 20 min`, `3 min 5 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


TRIAL_HEADER = (
    "network",
    "target",
    "arch",
    "device",
    "threads",
    "precision",
    "state",
    "ms",
    "95 %",
    "when",
    "why",
)


def trial_row(record: Record) -> tuple[object, ...]:
    """A line under `TRIAL_HEADER`."""
    subject, place, latency = record.subject, record.place, record.latency
    interval = f"{latency.low_ms:.3g} to {latency.high_ms:.3g}" if latency else ""
    return (
        subject.revision or subject.network,
        place.target,
        place.arch,
        place.selector or place.device,
        place.threads,
        place.precision,
        str(record.state),
        latency.p50_ms if latency else None,
        interval,
        f"{record.when:%Y-%m-%d %H:%M}",
        record.why,
    )


def whole_record(record: Record) -> str:
    """A record as text: every field that says something, and the log."""
    document: Any = dump(record)
    fields = dict(document)
    log = fields.pop("log")
    fields["command"] = " ".join(fields["command"])
    lines = [line for name, value in fields.items() for line in _lines(name, value)]
    return "\n".join((*lines, "log:", *(f"  {line}" for line in str(log).splitlines())))


def _lines(name: str, value: Any) -> list[str]:
    if value in (None, "", [], {}):
        return []
    if isinstance(value, dict):
        inner = [line for key, one in value.items() for line in _lines(key, one)]
        return [f"{name}:", *(f"  {line}" for line in inner)] if inner else []
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [f"{name}:", *(f"  {line}" for one in value for line in _lines("-", one))]
    return [f"{name}: {', '.join(map(str, value)) if isinstance(value, list) else value}"]


def change_document(change: CellChange) -> dict[str, Any]:
    """The same for programs."""
    sides = {"before": change.before, "after": change.after}
    return {
        "cell": change.cell,
        "kind": change.kind,
        "ratio": change.ratio,
        **{name: one and {"id": one.result.id, "state": one.result.state, "why": one.result.why,
                          "p50_ms": one.latency and one.latency.p50_ms}
           for name, one in sides.items()},
    }  # fmt: skip


def change_line(change: CellChange) -> str:
    """One line."""
    title = f"{change.kind}: {change.cell.title}"
    before, after = ((side.latency if side else None) for side in (change.before, change.after))
    if change.ratio is not None and before and after:
        return (
            f"{title}: {before.p50_ms:.3g} ms [{before.low_ms:.3g}, {before.high_ms:.3g}] before, "
            f"{after.p50_ms:.3g} ms [{after.low_ms:.3g}, {after.high_ms:.3g}] now, {change.ratio:.2f} times"
        )
    old, new = (one.result.state if one else "no record" for one in (change.before, change.after))
    why = f": {change.after.result.why}" if change.after and change.after.result.why else ""
    return f"{title}: {old} before, {new} now{why}"
