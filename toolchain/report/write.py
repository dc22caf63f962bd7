"""The forms of a report, by name and by the end of a file's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from compiler import Progress, silent
from toolchain.charts import ChartForm, draw_chart
from toolchain.report.content import RecordReport
from toolchain.report.figures import latency_chart
from toolchain.report.html import html_report
from toolchain.report.junit import junit_report
from toolchain.report.markdown import markdown_report
from toolchain.report.plain import csv_report, json_report, json_text
from toolchain.report.sheets import workbook_report

SUFFIXES: Mapping[str, str] = MappingProxyType(
    {
        "html": ".html",
        "markdown": ".md",
        "xlsx": ".xlsx",
        "junit": ".xml",
        "csv": ".csv",
        "json": ".json",
        "png": ".png",
        "svg": ".svg",
    }
)
"""The forms, and how their files' names end."""
TEXT_FORMS = frozenset({"markdown", "junit", "csv", "json", "svg"})
"""What can be read from standard output."""


def report_as(
    form: str, report: RecordReport, names: Sequence[str] = (), *, progress: Progress = silent
) -> bytes:
    """The report in a form of `SUFFIXES`; `names` are the networks that were asked for, for a chart's title.

    Raises HostError where a package that the form needs is not installed.
    """
    if form == "html":
        return html_report(report, progress=progress).encode()
    if form == "xlsx":
        return workbook_report(report)
    if form in ("png", "svg"):
        chart_form: ChartForm = "png" if form == "png" else "svg"
        return draw_chart(
            latency_chart(report.trials, f"Latency of {', '.join(names) or 'all networks'}"), chart_form
        )
    if form == "json":
        return json_text(json_report(report)).encode()
    texts = {"markdown": markdown_report, "junit": junit_report, "csv": csv_report}
    return texts[form](report).encode()
