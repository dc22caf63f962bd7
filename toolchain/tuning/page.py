"""The folder of a search: one page with curves and decisions, and a log of every candidate of each kernel."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import compiler
from toolchain import console
from toolchain.charts import Line, LineChart, LinePoint, chart_element, chart_styles
from toolchain.pages.page import TABLE_SCRIPT, Page, render_page
from toolchain.tuning.words import HEADER, by_time, decisions_text, kernel_row, shown_name

_HERE = Path(__file__).parent
_REASONS = 8
PAGE = "index.html"


def write_tuning_folder(
    folder: Path,
    model: Path,
    report: compiler.TuneReport,
    records: Sequence[compiler.TuningRecord],
) -> None:
    """Write the page and the logs; raises HostError when matplotlib is not installed.

    records: of this run, in their order.
    """
    of: dict[str, list[compiler.TuningRecord]] = {}
    for record in records:
        of.setdefault(record.workload, []).append(record)
    kernels = by_time(report.kernels)
    for number, one in enumerate(kernels):
        lines = (json.dumps(console.jsonable(record)) for record in of.get(one.workload, ()))
        compiler.write_atomic(folder / log_name(number), "".join(f"{line}\n" for line in lines))
    compiler.write_atomic(folder / PAGE, _page(model, report, kernels, of))


def log_name(number: int) -> str:
    """The log of a kernel, by its place in the page's table."""
    return f"kernel{number:03}.jsonl"


def _page(
    model: Path,
    report: compiler.TuneReport,
    kernels: Sequence[compiler.TunedKernel],
    of: Mapping[str, Sequence[compiler.TuningRecord]],
) -> str:
    values = {
        "report": report,
        "header": (*HEADER, "in the library"),
        "rows": [(*kernel_row(one), "tuned" if one.kept else one.reason or "default") for one in kernels],
        "kernels": [_kernel(number, one, of.get(one.workload, ())) for number, one in enumerate(kernels)],
    }
    styles = (chart_styles(), (_HERE / "tuning.css").read_text(encoding="utf-8"))
    page = Page(_HERE / "tuning.html.j2", f"Tuning of {model.name}", values, styles, (TABLE_SCRIPT,), {})
    return render_page(page)


def _kernel(
    number: int, one: compiler.TunedKernel, records: Sequence[compiler.TuningRecord]
) -> dict[str, Any]:
    """What the page says of one kernel."""
    measured = [record for record in records if record.measured.seconds]
    best = min(measured, key=lambda record: record.measured.median, default=None)
    default = next((record for record in measured if record.is_default), None)
    return {
        "number": number,
        "name": shown_name(one.name),
        "log": log_name(number),
        "charts": [_Drawn(chart) for chart in _charts(number, measured)],
        "reasons": list(_reasons(records)),
        "changed": decisions_text(one),
        "traces": [
            (title, record.trace)
            for title, record in (("default", default), ("best", best))
            if record is not None and record.trace
        ],
    }


class _Drawn(str):
    """SVG that is markup of ours."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def _charts(number: int, measured: Sequence[compiler.TuningRecord]) -> Iterator[str]:
    """The time of each candidate, and the best one so far."""
    if len(measured) < 2:
        return
    yield chart_element(_curve(measured), f"curve{number}")


def _curve(measured: Sequence[compiler.TuningRecord]) -> LineChart:
    times = [1e3 * one.measured.median for one in measured]
    bests = [min(times[: count + 1]) for count in range(len(times))]
    lines = (Line("each candidate", _points(times)), Line("best so far", _points(bests)))
    return LineChart("Time by candidate", "ms", tuple(str(count) for count in range(len(times))), lines)


def _points(values: Sequence[float]) -> tuple[LinePoint, ...]:
    return tuple(
        LinePoint(step, value, value, value) for step, value in enumerate(values) if math.isfinite(value)
    )


def _reasons(records: Sequence[compiler.TuningRecord]) -> Iterator[tuple[str, int, str]]:
    """Failures by class and message, the most frequent first: class, count, message."""
    counts: dict[tuple[str, str], int] = {}
    for record in records:
        if not record.measured.seconds:
            key = record.measured.status, record.measured.message
            counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    for (status, message), count in ordered[:_REASONS]:
        yield status, count, message
