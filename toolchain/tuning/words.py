"""A search in words: rows of kernels, the tuning_summary at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import compiler
from toolchain import console
from toolchain.tuning.schedules import value_text

Changes = Mapping[str, tuple[tuple[int, ...] | None, tuple[int, ...] | None]]

HEADER = ("kernel", "share", "default ms", "best ms", "gain", "trials", "errors")
_NAME_LETTERS = 48


def kernel_row(one: compiler.TunedKernel) -> tuple[str, ...]:
    """A kernel as a row below HEADER."""
    return (
        shown_name(one.name),
        f"{100 * one.share:.1f} %",
        f"{one.default_ms:.4g}" if one.default_ms else "-",
        f"{one.best_ms:.4g}" if one.best_ms else "-",
        f"{100 * one.gain:.1f} %" if one.default_ms else "-",
        str(one.trials),
        errors(one.failures),
    )


def shown_name(name: str) -> str:
    """A kernel's name, cut to a width that a table can have."""
    text = compiler.visible(name)
    return text if len(text) <= _NAME_LETTERS else f"{text[: _NAME_LETTERS - 1]}…"


def errors(failures: Mapping[str, int]) -> str:
    """Failures by class."""
    return ", ".join(f"{count} {name}" for name, count in sorted(failures.items())) or "-"


def by_time(kernels: Sequence[compiler.TunedKernel]) -> list[compiler.TunedKernel]:
    """Those that take most of the network's time first."""
    return sorted(kernels, key=lambda one: -one.share)


def tuning_summary(report: compiler.TuneReport) -> str:
    """What a search found: the kernels, decisions that changed, both libraries."""
    kernels = by_time(report.kernels)
    rows = [(*kernel_row(one), "tuned" if one.kept else one.reason or "default") for one in kernels]
    lines = [console.table((*HEADER, "in the library"), rows), ""]
    lines += [f"{shown_name(one.name)}: {decisions_text(one)}" for one in kernels if one.kept]
    found = report.difference
    kept = sum(one.kept for one in kernels)
    if found is None:
        speed = f"{report.untuned_ms:.4g} ms; no candidate gained in the network, so it is the untuned one"
    else:
        interval = f"{found.low:.3f} to {found.high:.3f}"
        speed = (
            f"{report.tuned_ms:.4g} ms, untuned {report.untuned_ms:.4g} ms: {found.ratio:.3f} of it "
            f"({interval}, {found.verdict})"
        )
    known = f", {report.known} were known" if report.known else ""
    lines += [
        "",
        f"{report.library}",
        f"  latency    {speed}",
        f"  kernels    {kept} of {len(kernels)} tuned",
        *_graph_lines(report),
        f"  candidates {report.measured} measured in {report.seconds:.0f} s{known}; ended by {report.ended}",
    ]
    if report.database is not None:
        lines.append(f"  database   {report.database}")
    return "\n".join(lines)


def _graph_lines(report: compiler.TuneReport) -> list[str]:
    """What came of other layouts and fusion, where they were tried."""
    if not report.graph_tried:
        return []
    return [
        f"  graph      {_changes(report.graph) or 'nothing gained'}, {report.graph_tried} libraries tried"
    ]


def decisions_text(one: compiler.TunedKernel) -> str:
    """The decisions that are not the default's."""
    return _changes(one.changed)


def _changes(changed: Changes) -> str:
    return "; ".join(
        f"{name} {value_text(before)} -> {value_text(after)}" for name, (before, after) in changed.items()
    )


def plan_table(kernels: Sequence[compiler.TunedKernel]) -> str:
    """The kernels that a search would go through."""
    header = ("kernel", "calls", "workload", "known")
    return console.table(
        header, [(shown_name(one.name), one.calls, one.workload[:12], one.trials) for one in kernels]
    )
