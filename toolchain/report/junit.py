"""A report as JUnit XML: a suite for each target, a test case for each cell.

The order of elements and the attributes are those that the schemas of Ant's and of Jenkins' format share.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from compiler import visible
from toolchain.records.cells import STATE_MEANINGS
from toolchain.records.record import FAILED, State
from toolchain.report.content import RecordReport, ReportCell
from toolchain.report.words import facts, log_end, why_words

_KEPT = "\n\t"


def junit_report(report: RecordReport) -> str:
    """The document; not run is skipped with its reason, wrong outputs are failures, the rest errors."""
    root = ET.Element("testsuites", name="tk")
    for target in report.targets:
        _suite(root, target, [one for one in report.trials if one.cell.target == target], report)
    _counts(root, report.trials)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _suite(root: ET.Element, target: str, trials: Sequence[ReportCell], report: RecordReport) -> None:
    newest = max(one.record.when for one in trials)
    machine = next((one.record.place.machine for one in trials if one.record.place.machine), "") or "unknown"
    suite = ET.SubElement(root, "testsuite", name=_xml(target), hostname=_xml(machine),
                          timestamp=f"{newest:%Y-%m-%dT%H:%M:%S}")  # fmt: skip
    _counts(suite, trials)
    ET.SubElement(suite, "properties")
    for one in trials:
        _case(suite, one, report)
    ET.SubElement(suite, "system-out").text = _xml(
        "\n".join(f"{one.name}: {one.state.value}" for one in trials if one.state != State.NOT_RUN)
    )
    ET.SubElement(suite, "system-err")


def _counts(element: ET.Element, trials: Sequence[ReportCell]) -> None:
    states = [one.state for one in trials]
    wrong, skipped = states.count(State.WRONG), states.count(State.NOT_RUN)
    errors = sum(state in FAILED for state in states) - wrong
    element.attrib |= {"tests": str(len(trials)), "failures": str(wrong), "errors": str(errors)}
    element.attrib |= {"skipped": str(skipped), "time": f"{sum(map(_seconds, trials)):.3f}"}


def _case(suite: ET.Element, trial: ReportCell, report: RecordReport) -> None:
    record = trial.record
    case = ET.SubElement(suite, "testcase", name=_xml(trial.name), time=f"{_seconds(trial):.3f}",
                         classname=_xml(f"{trial.cell.target}.{trial.family}"))  # fmt: skip
    why = _xml(why_words(record) or STATE_MEANINGS[record.state])
    if record.state == State.NOT_RUN:
        ET.SubElement(case, "skipped", message=why)
    elif record.state in FAILED:
        kind = "failure" if record.state == State.WRONG else "error"
        told = "\n".join(f"{label}: {text}" for label, text in facts(trial, report))
        ET.SubElement(case, kind, type=record.state.value, message=why).text = _xml(
            f"{told}\n\n{log_end(record.log)}"
        )


def _seconds(trial: ReportCell) -> float:
    return sum(value for value in trial.record.seconds.values() if 0 <= value < float("inf"))


def _xml(text: str) -> str:
    """Text that an XML document can hold; the writer escapes the rest."""
    return visible(text, keep=_KEPT)
