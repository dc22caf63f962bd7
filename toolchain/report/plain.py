"""A report for programs: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from compiler import visible
from toolchain.console import jsonable
from toolchain.records.compare import CellChange, RecordComparison
from toolchain.report.content import RecordReport, ReportCell
from toolchain.report.words import why_words

SCHEMA_VERSION = 1
"""Of the JSON document; one that says more or otherwise gets the next number."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_HEADER = ("family", "network", "revision", "target", "arch", "device", "machine", "threads", "precision",
           "state", "why", "p50_ms", "low_ms", "high_ms", "p90_ms", "p99_ms", "noisy", "speed_up", "slower",
           "needed", "tolerance", "causes", "when", "run", "record")  # fmt: skip


def csv_report(report: RecordReport) -> str:
    """A line for each cell.

    A text that a spreadsheet would read as a formula gets an apostrophe before it; what does not print is
    written as an escape.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerows([_csv_value(one) for one in _csv_row(trial)] for trial in report.trials)
    return stream.getvalue()


def json_report(report: RecordReport) -> dict[str, Any]:
    """The whole report with the records that it was made from; a number that JSON has not is a text."""
    return {
        "schema_version": SCHEMA_VERSION,
        "counts": {state.value: count for state, count in report.counts.items()},
        "families": report.families,
        "targets": report.targets,
        "baseline": report.baseline,
        "table": [
            {
                "family": family,
                "target": target,
                "state": cell.state.value if cell.state else None,
                "not_tried": cell.untried,
                "exceptions": [{"name": one.name, "state": one.state.value} for one in cell.exceptions],
            }
            for (family, target), cell in report.table.items()
        ],
        "known_causes": [
            {
                "issue": bug.issue,
                "cause": bug.cause,
                "action": bug.action,
                "cells": [
                    {"name": one.name, "target": one.cell.target, "now": now} for one, now in bug.cells
                ],
            }
            for bug in report.bugs
        ],
        "cells": [_json_cell(one) for one in report.trials],
    }


def json_text(document: dict[str, Any]) -> str:
    """A document as text; NaN and infinities in it are texts."""
    return json.dumps(jsonable(document), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def json_comparison(found: RecordComparison) -> dict[str, Any]:
    """What changed, worst first."""
    return {
        "schema_version": SCHEMA_VERSION,
        "regressions": len(found.regressions),
        "same": found.same,
        "timed": found.timed,
        "changes": [_json_change(one) for one in found.changes],
        "undecided": [
            {"network": cell.model, "target": cell.target, "arch": cell.arch, "why": why}
            for cell, why in found.undecided.items()
        ],
    }


def _csv_row(one: ReportCell) -> tuple[object, ...]:
    record, latency, worst = one.record, one.latency, one.record.accuracy
    times = (
        (latency.p50_ms, latency.low_ms, latency.high_ms, latency.p90_ms, latency.p99_ms, latency.noisy)
        if latency
        else (None,) * 6
    )
    return (
        one.family, one.cell.network, one.cell.revision, one.cell.target, one.cell.arch, record.place.device,
        record.place.machine, record.place.threads, one.cell.precision, record.state.value, why_words(record),
        *times,
        one.speed.ratio if one.speed else None, _yes_or_no(one),
        worst.needed if worst else None, worst.tolerance if worst else None,
        " ".join(cause.issue for cause in record.causes), record.when.isoformat(), record.run, record.id,
    )  # fmt: skip


def _yes_or_no(one: ReportCell) -> str | None:
    """Whether it got slower; nothing is said of what was not timed."""
    if one.latency is None:
        return None
    return "yes" if one.slower else "no"


def _csv_value(value: object) -> object:
    if not isinstance(value, str):
        return value
    shown = visible(value)
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def _json_cell(one: ReportCell) -> dict[str, Any]:
    timed = one.trials.timed
    return {
        "name": one.name,
        "family": one.family,
        "state": one.state.value,
        "slower": one.slower,
        "speed_up": {"ratio": one.speed.ratio, "low": one.speed.low, "high": one.speed.high}
        if one.speed
        else None,
        "record": json.loads(one.record.model_dump_json()),
        "timed_by": timed.id if timed else None,
        "latency": json.loads(one.latency.model_dump_json()) if one.latency else None,
        "trials": [record.id for record in one.trials.every],
    }


def _json_change(one: CellChange) -> dict[str, Any]:
    return {
        "network": one.cell.model,
        "target": one.cell.target,
        "arch": one.cell.arch,
        "change": one.kind.value,
        "ratio": one.ratio,
        "before": json.loads(one.before.result.model_dump_json()) if one.before else None,
        "after": json.loads(one.after.result.model_dump_json()) if one.after else None,
    }
