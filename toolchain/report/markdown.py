"""A report as Markdown: the team's table, what is wrong, known causes, times."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from compiler import counted, visible
from toolchain.records.cells import STATE_MEANINGS
from toolchain.records.compare import ChangeKind, RecordComparison
from toolchain.records.record import State
from toolchain.report.content import RecordReport, target_title
from toolchain.report.families import NOT_TRIED, family_rows, state_words
from toolchain.report.words import device_words, latency_words, speed_words, why_words

_SPECIAL = re.compile(r"[\\`*\[\]<>|~#&$!]|(?<!\w)_|_(?!\w)")


def markdown_report(report: RecordReport) -> str:
    """The whole report."""
    lines = ["# Networks and targets", "", _summary(report), ""]
    lines += _family_table(report)
    lines += ["", "A sign stands for most of a family; what differs is in brackets.", ""]
    lines += [f"- {state_words(one)}: {STATE_MEANINGS[one]}" for one in State]
    lines += [f"- {NOT_TRIED}: the plan has it, and there is no record"] * bool(report.untried)
    lines += ["- (empty): no record", ""]
    lines += [*_section("Problems", ("network", "target", "state", "why"), [
        (one.name, target_title(one.cell.target), state_words(one.state), why_words(one.record))
        for one in report.problems
    ])]  # fmt: skip
    lines += [*_section("Not run", ("network", "target", "why"), [
        (one.name, target_title(one.cell.target), one.record.why)
        for one in report.trials if one.state == State.NOT_RUN
    ])]  # fmt: skip
    lines += [*_section("Known causes", ("network", "platform", "bug", "state", "what to do"), [
        (one.name, target_title(one.cell.target), f"{bug.issue}: {bug.cause}",
         f"{now}, {state_words(one.state)}", bug.action)
        for bug in report.bugs for one, now in bug.cells
    ])]  # fmt: skip
    head = ("network", "target", "device", "latency", "changed")
    speed = (f"speed-up to {report.baseline}",) if report.baseline else ()
    lines += [*_section("Latency", (*head, *speed), [
        (one.name, target_title(one.cell.target), device_words(one.trials.timed or one.record),
         latency_words(one.latency), "slower" if one.slower else "",
         *([speed_words(one.speed) if one.speed else ""] if speed else []))
        for one in report.trials if one.latency
    ])]  # fmt: skip
    return "\n".join(lines).rstrip("\n") + "\n"


def markdown_comparison(found: RecordComparison) -> str:
    """What changed, worst first."""
    lines = ["# What changed", ""]
    lines.append(
        f"{counted(len(found.regressions), 'regression')}, {counted(len(found.changes), 'change')}; "
        f"{counted(found.same, 'cell')} as before; {counted(found.timed, 'latency', 'latencies')} compared."
    )
    lines.append("")
    rows = []
    for one in found.changes:
        states = [state_words(side.result.state) if side else "" for side in (one.before, one.after)]
        times = [
            latency_words(side.latency) if side and side.latency else "" for side in (one.before, one.after)
        ]
        ratio = f"{one.ratio:.2f}" if one.ratio is not None else ""
        why = one.after.result.why if one.after else ""
        shown = times if one.kind in (ChangeKind.SLOWER, ChangeKind.FASTER) else states
        rows.append((one.cell.model, target_title(one.cell.target), one.cell.arch, one.kind.value, *shown,
                     ratio, why))  # fmt: skip
    header = ("network", "target", "arch", "change", "before", "now", "ratio", "why")
    lines += _section("Changes", header, rows)
    undecided = [(cell.model, target_title(cell.target), why) for cell, why in found.undecided.items()]
    lines += _section("Times that decide nothing", ("network", "target", "why"), undecided)
    return "\n".join(lines).rstrip("\n") + "\n"


def _summary(report: RecordReport) -> str:
    counts = ", ".join(f"{number} {state.value}" for state, number in report.counts.items())
    untried = f"; {len(report.untried)} of the plan {NOT_TRIED}" if report.untried else ""
    return f"{counted(len(report.trials), 'cell')}: {counts or 'none'}{untried}."


def _family_table(report: RecordReport) -> Iterator[str]:
    rows = family_rows(report.families, report.targets, report.table)
    yield from _table(("network", *map(target_title, report.targets)), rows)


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        yield from (f"## {title}", "", *_table(header, rows), "")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield _row(header)
    yield "|" + "---|" * len(header)
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(map(_escaped_markdown, cells)) + " |"


def _escaped_markdown(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(lambda found: f"\\{found[0]}", " ".join(visible(text, keep="\n\t").split()))
