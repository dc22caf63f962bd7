"""The charts of a report: latency, speed-up and history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolchain.charts import SERIES_COLOURS, Bar, BarChart, BarPanel, Line, LineChart, LinePoint
from toolchain.records.record import Record
from toolchain.report.content import RecordReport, ReportCell, language_number, target_title, timed_history

_OTHERS = SERIES_COLOURS - 1
_LATENCY_UNIT = "ms, median with its 95 % confidence interval"


def latency_chart(trials: Iterable[ReportCell], title: str) -> BarChart:
    """Bars by target for each model, with other engines that were timed beside it."""
    timed = [one for one in trials if one.latency]
    models = dict.fromkeys(one.cell.model for one in timed)
    panels = [
        BarPanel(model, _latency_bars([one for one in timed if one.cell.model == model])) for model in models
    ]
    return BarChart(title, _LATENCY_UNIT, tuple(panels))


def speed_chart(report: RecordReport) -> BarChart:
    """How many times as fast as the baseline everything is; the line is at 1."""
    quick = [one for one in report.trials if one.speed]
    models = dict.fromkeys(one.cell.model for one in quick)
    panels = [
        BarPanel(model, _speed_bars([one for one in quick if one.cell.model == model])) for model in models
    ]
    unit = f"times as fast as {target_title(report.baseline)}, with the interval of the quotient"
    return BarChart(f"Speed-up to {target_title(report.baseline)}", unit, tuple(panels), reference=1.0)


def history_charts(report: RecordReport) -> tuple[LineChart, ...]:
    """A chart for each model that was timed more than once; circles mark what got slower."""
    models = dict.fromkeys(one.cell.model for one in report.trials)
    charts = (_history([one for one in report.trials if one.cell.model == model], model) for model in models)
    return tuple(chart for chart in charts if len(chart.steps) > 1)


def _latency_bars(trials: Sequence[ReportCell]) -> tuple[Bar, ...]:
    bars = [
        Bar(_place(one, trials), one.latency.p50_ms, one.latency.low_ms, one.latency.high_ms,
            language_number(one.cell.target), one.slower)
        for one in trials if one.latency
    ]  # fmt: skip
    for one in trials:
        for other in one.trials.timed.baselines if one.trials.timed else ():
            label = f"{other.engine} beside {_place(one, trials)}"
            bars.append(Bar(label, other.p50_ms, other.low_ms, other.high_ms, _OTHERS))
    return tuple(bars)


def _speed_bars(trials: Sequence[ReportCell]) -> tuple[Bar, ...]:
    return tuple(
        Bar(
            _place(one, trials),
            one.speed.ratio,
            one.speed.low,
            one.speed.high,
            language_number(one.cell.target),
        )
        for one in trials
        if one.speed
    )


def _history(trials: Sequence[ReportCell], model: str) -> LineChart:
    histories = [(one, timed_history(one.trials)) for one in trials]
    found = sorted({_step(record): record for _, points in histories for record, _, _ in points}.values(),
                   key=lambda record: record.id)  # fmt: skip
    steps = {_step(record): number for number, record in enumerate(found)}
    lines = tuple(
        Line(_place(one, trials), tuple(
            LinePoint(steps[_step(record)], ms.p50_ms, ms.low_ms, ms.high_ms, slower)
            for record, ms, slower in points
        ))
        for one, points in histories if points
    )  # fmt: skip
    return LineChart(model, _LATENCY_UNIT, tuple(f"{record.when:%m-%d %H:%M}" for record in found), lines)


def _step(record: Record) -> str:
    """Trials of one run stand at one place."""
    return record.run or record.id


def _place(one: ReportCell, trials: Sequence[ReportCell]) -> str:
    """The target, and what tells it apart from the same target beside it."""
    title = target_title(one.cell.target)
    extra = one.name.removeprefix(one.cell.model)
    several = sum(other.cell.target == one.cell.target for other in trials) > 1
    return f"{title}{extra}" if several else title
