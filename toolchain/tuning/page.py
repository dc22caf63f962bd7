"""The folder of a search: one page with curves and decisions, and a log of every candidate of each kernel."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import compiler
from toolchain import console
from toolchain.charts import Line, LineChart, LinePoint, chart_element, chart_styles
from toolchain.pages.page import TABLE_SCRIPT, Page, render_page
from toolchain.tuning.schedules import decision_rows, marked_steps
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
        "prediction": _prediction(measured),
        "reasons": list(_reasons(records)),
        "changed": decisions_text(one),
        **_schedules(default, best),
    }


def _schedules(default: compiler.TuningRecord | None, best: compiler.TuningRecord | None) -> dict[str, Any]:
    """Decisions and steps of the best schedule beside the default's; empty where there is only one."""
    if default is None or best is None or best is default:
        return {"decisions": [], "steps": []}
    steps = marked_steps(default.trace, best.trace)
    return {
        "decisions": decision_rows(default, best),
        "steps": list(zip(("default", "best"), steps, strict=True)),
    }


class _Drawn(str):
    """SVG that is markup of ours."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def _charts(number: int, measured: Sequence[compiler.TuningRecord]) -> Iterator[str]:
    """The time of each candidate with the best one so far; what was predicted beside what was measured."""
    if len(measured) < 2:
        return
    yield chart_element(_curve(measured), f"curve{number}")
    if len(predicted := _predicted(measured)) > 1:
        yield chart_element(_predictions(predicted), f"predicted{number}")


def _curve(measured: Sequence[compiler.TuningRecord]) -> LineChart:
    times = [1e3 * one.measured.median for one in measured]
    bests = [min(times[: count + 1]) for count in range(len(times))]
    lines = (Line("each candidate", _points(times)), Line("best so far", _points(bests)))
    return LineChart("Time by candidate", "ms", tuple(str(count) for count in range(len(times))), lines)


def _predicted(measured: Sequence[compiler.TuningRecord]) -> list[tuple[float, float]]:
    """(measured, predicted) milliseconds of what the cost model was asked for, the fastest first."""
    pairs = ((one.measured.median, one.predicted) for one in measured)
    return sorted((1e3 * took, 1e3 * expected) for took, expected in pairs if expected is not None)


def _predictions(pairs: Sequence[tuple[float, float]]) -> LineChart:
    took, expected = zip(*pairs, strict=True)
    lines = (Line("measured", _points(took)), Line("predicted", _points(expected)))
    steps = tuple(str(count) for count in range(len(pairs)))
    return LineChart("Predicted and measured, the fastest candidate first", "ms", steps, lines)


def _prediction(measured: Sequence[compiler.TuningRecord]) -> str:
    """How well the cost model ordered what it proposed."""
    pairs = _predicted(measured)
    if len(pairs) < 2:
        return ""
    couples = [(a, b) for a, b in itertools.combinations(pairs, 2) if a[0] != b[0]]
    right = sum(a[1] < b[1] for a, b in couples)
    off = statistics.median(abs(expected / took - 1.0) for took, expected in pairs)
    return (
        f"The cost model predicted {len(pairs)} of these candidates: it was {100 * off:.0f} % off in the "
        f"median, and of {100 * right / max(1, len(couples)):.0f} % of the pairs it knew which is faster."
    )


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
