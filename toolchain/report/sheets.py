"""A report as a workbook: a summary, and a sheet for each device, as the team keeps them."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from compiler import HostError, visible
from toolchain.records.record import State
from toolchain.report.content import RecordReport, ReportCell, target_title
from toolchain.report.families import family_rows
from toolchain.report.words import device_words, state_class, why_words

if TYPE_CHECKING:
    from openpyxl import Workbook
    from openpyxl.worksheet.worksheet import Worksheet

Value = str | float | int | None
_LONGEST_TEXT, _LONGEST_TITLE = 32767, 31  # what the format allows
_NO_TITLE = re.compile(r"[\[\]:*?/\\']")
_WIDEST_COLUMN = 60
_FILLS = {"passed": "E2F4E5", "unproven": "FFF3C4", "failed": "FFE1DE", "not-run": "ECEEF0"}


def workbook_report(report: RecordReport) -> bytes:
    """The workbook; raises HostError when openpyxl is not installed."""
    try:
        from openpyxl import Workbook
    except ImportError as error:
        raise HostError("openpyxl is not installed", hint="pip install 'tk-toolchain[report]'") from error
    book = Workbook()
    if book.active is not None:
        book.remove(book.active)
    newest = max((one.record.when for one in report.trials), default=None)
    if newest is not None:
        book.properties.created = book.properties.modified = newest.replace(tzinfo=None, microsecond=0)
    _summary_sheets(book, report)
    devices: dict[str, list[ReportCell]] = {}
    for one in report.trials:
        if one.state != State.NOT_RUN:
            devices.setdefault(device_words(one.trials.timed or one.record), []).append(one)
    for device, trials in sorted(devices.items()):
        sheet = _sheet(book, device, _HEADER, [_row_of(one) for one in trials])
        _colour(sheet, _HEADER.index("state") + 1, trials)
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()


_HEADER = ("network", "revision", "family", "target", "arch", "threads", "precision", "state", "why",
           "p50 ms", "low ms", "high ms", "p90 ms", "p99 ms", "speed-up", "slower", "error", "tolerance",
           "when", "run")  # fmt: skip


def _row_of(one: ReportCell) -> tuple[Value, ...]:
    record, latency, worst = one.record, one.latency, one.record.accuracy
    times = (
        (latency.p50_ms, latency.low_ms, latency.high_ms, latency.p90_ms, latency.p99_ms)
        if latency
        else (None,) * 5
    )
    return (
        one.cell.network, one.cell.revision, one.family, target_title(one.cell.target), one.cell.arch,
        record.place.threads, one.cell.precision, record.state.value, why_words(record), *times,
        one.speed.ratio if one.speed else None, "yes" if one.slower else "",
        worst.needed if worst else None, worst.tolerance if worst else None,
        record.when.isoformat(timespec="seconds"), record.run,
    )  # fmt: skip


def _summary_sheets(book: Workbook, report: RecordReport) -> None:
    header = ("network", *map(target_title, report.targets))
    rows = family_rows(report.families, report.targets, report.table)
    _sheet(book, "summary", header, [tuple(text or None for text in row) for row in rows])
    _sheet(
        book, "states", ("state", "cells"), [(state.value, count) for state, count in report.counts.items()]
    )
    if report.bugs:
        bugs = [
            (one.name, target_title(one.cell.target), bug.issue, bug.cause, now, one.state.value, bug.action)
            for bug in report.bugs
            for one, now in bug.cells
        ]
        _sheet(
            book, "known causes", ("network", "platform", "issue", "bug", "now", "state", "what to do"), bugs
        )
    waiting = [(one.name, target_title(one.cell.target), one.record.why)
               for one in report.trials if one.state == State.NOT_RUN]  # fmt: skip
    if waiting:
        _sheet(book, "not run", ("network", "target", "why"), waiting)


def _sheet(book: Workbook, title: str, header: Sequence[str], rows: Sequence[Sequence[Value]]) -> Worksheet:
    from openpyxl.utils import get_column_letter

    sheet: Worksheet = book.create_sheet(_title(title, {one.casefold() for one in book.sheetnames}))
    for number, row in enumerate([header, *rows], 1):
        for column, value in enumerate(row, 1):
            _put(sheet, number, column, value)
    for column, cells in enumerate(zip(header, *rows, strict=True), 1):
        width = max(len(str(one)) for one in cells if one is not None)
        sheet.column_dimensions[get_column_letter(column)].width = min(width + 2, _WIDEST_COLUMN)
    sheet.freeze_panes = "B2"
    if rows:
        sheet.auto_filter.ref = sheet.dimensions
    return sheet


def _put(sheet: Worksheet, row: int, column: int, value: Value) -> None:
    """A number as number, a text as text, also one that begins with `=`."""
    from openpyxl.styles import Font

    cell = sheet.cell(row, column)
    if isinstance(value, float) and not math.isfinite(value):
        value = str(value)
    if isinstance(value, str):
        cell.value = visible(value, keep="\n\t")[:_LONGEST_TEXT]
        cell.data_type = "s"
    else:
        cell.value = value
    if row == 1:
        cell.font = Font(bold=True)


def _colour(sheet: Worksheet, column: int, trials: Sequence[ReportCell]) -> None:
    from openpyxl.styles import PatternFill

    for row, one in enumerate(trials, 2):
        sheet.cell(row, column).fill = PatternFill("solid", start_color=_FILLS[state_class(one.state)])


def _title(name: str, taken: set[str]) -> str:
    """A title as the format allows it, that no other sheet has."""
    base = _NO_TITLE.sub(" ", visible(name)).strip()[:_LONGEST_TITLE] or "device"
    return next(one for one in _candidates(base) if one.casefold() not in taken)


def _candidates(base: str) -> Iterator[str]:
    yield base
    for number in range(2, 10_000):
        end = f" {number}"
        yield base[: _LONGEST_TITLE - len(end)] + end
