"""A report as one HTML page: table, details, problems, known causes, charts, every trial."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compiler import Progress, silent, some
from toolchain.charts import Chart, chart_element, chart_styles
from toolchain.pages.page import TABLE_SCRIPT, Page, render_page
from toolchain.records.cells import STATE_MEANINGS
from toolchain.records.record import State
from toolchain.report.content import RecordReport, ReportCell, target_title
from toolchain.report.families import NOT_TRIED, state_words
from toolchain.report.figures import history_charts, latency_chart, speed_chart
from toolchain.report.words import (
    device_words,
    facts,
    latency_words,
    log_end,
    milliseconds,
    speed_words,
    state_class,
    why_words,
)

_HERE = Path(__file__).parent


def html_report(report: RecordReport, *, progress: Progress = silent) -> str:
    """The page; raises HostError when there are times to draw and matplotlib is not installed."""
    numbers = {one.record.id: number for number, one in enumerate(report.trials)}
    charts = list(_charts(report))
    drawn: dict[str, list[dict[str, object]]] = {}
    for number, (section, chart) in enumerate(charts):
        progress("drawing charts", number, len(charts))
        drawn.setdefault(section, []).append(
            {"title": chart.title, "svg": _Drawn(chart_element(chart, f"chart{number}"))}
        )
    values = {
        "report": report,
        "states": tuple(State),
        "meanings": STATE_MEANINGS,
        "charts": drawn,
        "number_of": numbers,
        "period": _period(report),
        "machines": sorted({one.record.place.machine for one in report.trials if one.record.place.machine}),
        "state_order": {state: order for order, state in enumerate(State)},
        "not_tried": NOT_TRIED,
        "some": some,
        "target_title": target_title,
        "state_words": state_words,
        "state_class": state_class,
        "device_words": device_words,
        "latency_words": latency_words,
        "milliseconds": milliseconds,
        "speed_words": speed_words,
        "why_words": why_words,
    }
    scripts = (TABLE_SCRIPT, _HERE / "report.js")
    styles = (chart_styles(), (_HERE / "report.css").read_text(encoding="utf-8"))
    data = {"cells": [_details(one, report) for one in report.trials]}
    return render_page(Page(_HERE / "report.html.j2", "Networks and targets", values, styles, scripts, data))


class _Drawn(str):
    """An SVG that was drawn here, with its names escaped: markup, not text."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def _charts(report: RecordReport) -> Iterator[tuple[str, Chart]]:
    """Each chart with the section that it belongs to."""
    for family in report.families:
        chart = latency_chart([one for one in report.trials if one.family == family], family)
        if chart.panels:
            yield "Latency", chart
    if report.baseline:
        yield "Speed-up", speed_chart(report)
    yield from (("History", chart) for chart in history_charts(report))


def _period(report: RecordReport) -> str:
    days = sorted(f"{record.when:%Y-%m-%d}" for one in report.trials for record in one.trials.every)
    return " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""


def _details(one: ReportCell, report: RecordReport) -> dict[str, Any]:
    """What the dialog shows of a cell."""
    return {
        "title": f"{one.name} on {target_title(one.cell.target)}",
        "state": state_words(one.state),
        "class": state_class(one.state),
        "facts": list(facts(one, report)),
        "log": log_end(one.record.log),
    }
