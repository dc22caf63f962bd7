"""What the accesses of a library's kernels cost, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import compiler
from toolchain import console

_LAUNCHES = (
    "function",
    "calls",
    "grid",
    "block",
    "fetch %",
    "moved MB",
    "least MB",
    "conflict",
    "idle %",
    "divergent",
    "barriers",
    "waits",
    "at once",
)
_ROWS = (
    "function",
    "line",
    "kind",
    "bytes",
    "requests",
    "sectors",
    "ideal",
    "wavefronts",
    "conflict",
    "lanes",
    "% of bytes",
    "text",
)
_TEXT = 40
"""Characters of a line that the table shows."""


def launches_table(report: compiler.AccessReport) -> str:
    """One row for each launch: its sums in one run of its grid."""
    return console.table(_LAUNCHES, [_launch(one, report.least[one.kernel]) for one in report.launches])


def _launch(one: compiler.LaunchAccess, least: int) -> tuple[object, ...]:
    efficiency = one.fetch_efficiency
    waits, at_once = one.waits
    return (
        one.function,
        one.calls,
        console.shape(one.grid),
        console.shape(one.block),
        None if efficiency is None else 100 * efficiency,
        one.moved / 1e6,
        least / 1e6,
        one.worst_conflict,
        100 * one.idle,
        one.divergent,
        one.barriers,
        waits,
        at_once,
    )


def rows_table(report: compiler.AccessReport) -> str:
    """One row for the lines of a kernel that do the same, those that move most bytes first."""
    return console.table(_ROWS, [row for one in report.launches for row in _lines(one)])


def _lines(one: compiler.LaunchAccess) -> list[tuple[object, ...]]:
    alike: dict[tuple[object, ...], list[compiler.AccessRow]] = {}
    for row in one.rows:
        if row.kind != "branch":
            alike.setdefault(_pattern(row), []).append(row)
    found = sorted(alike.values(), key=lambda rows: (-sum(row.share for row in rows), rows[0].line))
    return [_line(one.function, rows) for rows in found]


def _pattern(row: compiler.AccessRow) -> tuple[object, ...]:
    """What the table shows of a request: rows with the same go together."""
    return (
        row.kind,
        row.bytes,
        row.worst,
        *(f"{value / row.requests:.3g}" for value in (row.units, row.least, row.lanes)),
    )


def _line(function: str, rows: list[compiler.AccessRow]) -> tuple[object, ...]:
    first = rows[0]
    requests = sum(row.requests for row in rows)
    units, least, lanes = (
        sum(getattr(row, name) for row in rows) / requests for name in ("units", "least", "lanes")
    )
    lines = sorted({row.line for row in rows})
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return (
        function,
        f"{lines[0] or '?'}{more}",
        first.kind,
        first.bytes or None,
        requests,
        units if first.is_global else None,
        least if first.is_global else None,
        units if first.is_shared else None,
        first.worst if first.is_shared else None,
        lanes,
        100 * sum(row.share for row in rows) if first.is_global else None,
        first.text if len(first.text) <= _TEXT else f"{first.text[: _TEXT - 3]}...",
    )


def access_document(report: compiler.AccessReport) -> list[Mapping[str, Any]]:
    """Every launch with its rows and sums."""
    return [
        {
            **console.jsonable(one),
            "least_bytes": report.least[one.kernel],
            "moved_bytes": one.moved,
            "fetched_bytes": one.fetched,
            "fetch_efficiency": one.fetch_efficiency,
            "worst_conflict": one.worst_conflict,
            "idle": one.idle,
            "divergent": one.divergent,
            "waits": one.waits[0],
            "waits_at_once": one.waits[1],
        }
        for one in report.launches
    ]
