"""Every form of a report says what the records say, and no more, whatever they hold."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import xml.etree.ElementTree as ET
from datetime import datetime
from typing import Any

import pytest

from compiler import UsageError
from tests.support.records import HOSTILE, hostile_records, team_records, times, trial
from toolchain.records.record import FAILED, State
from toolchain.report.content import make_report, target_title
from toolchain.report.families import family_cell_words
from toolchain.report.junit import junit_report
from toolchain.report.markdown import markdown_report
from toolchain.report.plain import csv_report, json_report, json_text
from toolchain.report.words import device_words

FAMILIES = ("mnist", "resnet", "vgg")
TEAM = make_report(team_records(FAMILIES))


def cells(family: str, *states: State, target: str = "cpu") -> str:
    """What a family's cell shows when its networks a, b, c ended so."""
    records = [trial(name, target, state, family=family) for name, state in zip("abc", states, strict=False)]
    return family_cell_words(make_report(records).table[family, target])


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ((State.VERIFIED, State.VERIFIED), "✓"),
        ((State.VERIFIED, State.WRONG), "✓ (b ✗ wrong)"),
        ((State.WRONG, State.VERIFIED, State.WRONG), "✗ wrong (b ✓ verified)"),
        ((State.NOT_RUN, State.VERIFIED), "✓ (a – not run)"),  # noqa: RUF001
        ((State.NOT_RUN, State.NOT_RUN, State.VERIFIED), "– not-run (c ✓ verified)"),  # noqa: RUF001
        (
            (State.NOT_RUN, State.COMPILED_ONLY, State.VERIFIED),
            "○ compiled-only (a – not run) (c ✓ verified)",  # noqa: RUF001
        ),
        ((State.CRASHED, State.TIMED_OUT), "✗ timed-out (a ✗ crashed)"),
    ],
)
def test_a_family_shows_what_most_are_and_names_the_others(states: tuple[State, ...], shown: str) -> None:
    assert cells("x", *states) == shown


def test_the_layout_is_the_teams() -> None:
    assert TEAM.families == (*FAMILIES, "unet")
    assert [target_title(one) for one in TEAM.targets] == [
        "cpu", "cuda-NVIDIA", "SYCL-NVIDIA", "OpenCL-NVIDIA", "rocm-AMD", "SYCL-AMD", "OpenCL-AMD",
        "rocm-Hygon", "SYCL-Hygon", "OpenCL-Hygon", "SYCL-Intel", "OpenCL-Intel",
    ]  # fmt: skip
    page = markdown_report(TEAM)
    (resnet,) = [line for line in page.splitlines() if line.startswith("| resnet |")]
    assert resnet.split(" | ")[3] == "✓ (resnet50-v1-7 ✗ wrong)"
    assert resnet.split(" | ")[8] == "– not-run"  # noqa: RUF001
    assert "| resnet50-v1-7 | SYCL-NVIDIA | ✗ wrong | outputs differ |" in page
    assert "| unet | cpu | ✗ unsupported | Loop, 2 times: no record of it |" in page
    assert "no device: no DCU here" in page


def test_bugs_say_what_became_of_them() -> None:
    (bug,) = TEAM.bugs
    assert [(one.name, now) for one, now in bug.cells] == [("vgg16-7", "gone")]
    assert "| vgg16-7 | SYCL-AMD | hip-kernel-not-found:" in markdown_report(TEAM)


def test_what_got_slower_is_marked() -> None:
    assert [(one.name, one.cell.target) for one in TEAM.trials if one.slower] == [("resnet-9", "sycl-nvidia")]


def test_the_same_model_twice_on_a_target_is_told_apart() -> None:
    report = make_report(
        [trial("a", "cuda", arch=arch, threads=threads) for arch, threads in (("sm_70", 1), ("sm_80", 2))]
    )
    assert [one.name for one in report.trials] == ["a (sm_70, 1 thread)", "a (sm_80, 2 threads)"]


@pytest.mark.parametrize(
    ("target", "device", "shown"),
    [
        ("cuda-nvidia", "V100", "V100"),
        ("cuda-nvidia", "", "no device"),
        ("opencl-cpu", "", "cores of bench-1"),
        ("opencl-cpu", "PoCL", "PoCL"),
    ],
)
def test_what_only_compiled_for_a_device_names_no_cores(target: str, device: str, shown: str) -> None:
    assert device_words(trial("a", target, State.COMPILED_ONLY, device=device)) == shown


@pytest.mark.parametrize(
    ("baseline", "ratio"), [("other", 2.0), ("cpu", 0.5)], ids=["an engine beside it", "a target"]
)
def test_speed_ups_are_quotients_of_medians(baseline: str, ratio: float) -> None:
    records = [trial("a", "cuda", ms=4.0, baselines=(times(8.0, "other"),)), trial("a", "cpu", ms=2.0)]
    found = {one.cell.target: one.speed for one in make_report(records, baseline).trials}
    assert found["cuda"] is not None
    assert found["cuda"].ratio == pytest.approx(ratio)
    assert (found["cuda"].low, found["cuda"].high) == pytest.approx(
        (ratio * 0.98 / 1.02, ratio * 1.02 / 0.98)
    )
    assert (found["cpu"] is None) == (baseline == "other")


def test_an_unknown_baseline_is_refused_with_the_closest() -> None:
    with pytest.raises(UsageError, match="nothing was timed") as caught:
        make_report([trial("a", "cpu", ms=4.0, baselines=(times(8.0, "onnxruntime"),))], "onxruntime")
    assert "'onnxruntime'" in caught.value.hint


def test_csv_is_read_by_another_program() -> None:
    rows = list(csv.DictReader(io.StringIO(csv_report(TEAM))))
    assert len(rows) == len(TEAM.trials)
    by_cell = {(row["revision"], row["target"]): row for row in rows}
    assert float(by_cell["resnet-9", "sycl-nvidia"]["p50_ms"]) == pytest.approx(TEAM_MS)
    assert by_cell["mnist-9", "rocm-hygon"]["state"] == "not-run"
    assert by_cell["mnist-9", "rocm-hygon"]["p50_ms"] == ""


TEAM_MS = next(one.latency.p50_ms for one in TEAM.trials if one.slower and one.latency)


def test_hostile_csv_has_no_formula() -> None:
    rows = list(csv.reader(io.StringIO(csv_report(make_report(hostile_records())))))
    assert {len(row) for row in rows} == {len(rows[0])}
    texts = [one for row in rows for one in row if not re.fullmatch(r"-?inf|nan|-?[\d.e-]+", one)]
    assert [one for one in texts if one.startswith(("=", "+", "-", "@", "\t", "\r"))] == []
    assert any(one.startswith("'=cmd") for one in texts)
    assert all(one.isprintable() for one in texts)


def test_json_has_the_records_as_they_are() -> None:
    found = json.loads(json_text(json_report(make_report(hostile_records()))), parse_constant=pytest.fail)
    assert found["schema_version"] == 1
    assert {one["record"]["subject"]["network"] for one in found["cells"]} == set(HOSTILE)
    assert {one["latency"]["p50_ms"] for one in found["cells"] if one["latency"]} == {"NaN"}
    team = json.loads(json_text(json_report(TEAM)))
    assert sum(team["counts"].values()) == len(team["cells"]) == len(TEAM.trials)
    assert all(len(one["trials"]) in (1, 2) for one in team["cells"])


def test_hostile_markdown_stays_in_its_cells() -> None:
    page = markdown_report(make_report(hostile_records()))
    assert all(one.isprintable() or one == "\n" for one in page)
    assert not re.search(r"(?<!\\)<", page)
    lines = page.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("|---"):
            width = line.count("|")
            table = [lines[number - 1]]
            table += [*itertools.takewhile(bool, lines[number + 1 :])]
            assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in table] == [width] * len(table)


# What both schemas of JUnit's XML allow: element -> attributes it must have, and what stands in it.
JUNIT: dict[str, tuple[set[str], str]] = {
    "testsuites": ({"name", "tests", "failures", "errors", "skipped", "time"}, "(testsuite )*"),
    "testsuite": (
        {"name", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"},
        "properties (testcase )*system-out system-err ",
    ),
    "properties": (set(), ""),
    "testcase": ({"name", "classname", "time"}, "((skipped|failure|error) )?"),
    "skipped": ({"message"}, ""),
    "failure": ({"type", "message"}, ""),
    "error": ({"type", "message"}, ""),
    "system-out": (set(), ""),
    "system-err": (set(), ""),
}


@pytest.mark.parametrize("records", [team_records(FAMILIES), hostile_records()], ids=["team", "hostile"])
def test_junit_is_valid_and_counts_right(records: list[Any]) -> None:
    report = make_report(records)
    root = ET.fromstring(junit_report(report))
    for element in root.iter():
        attributes, content = JUNIT[element.tag]
        assert element.attrib.keys() == attributes
        assert re.fullmatch(content, "".join(f"{one.tag} " for one in element))
        if "time" in attributes:
            assert math.isfinite(float(element.attrib["time"]))
        if "timestamp" in attributes:
            assert datetime.fromisoformat(element.attrib["timestamp"]).tzinfo is None
        for name, tag in (
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            if name in attributes:
                assert int(element.attrib[name]) == len(list(element.iter(tag)))
    assert len(list(root.iter("testcase"))) == len(report.trials)


def test_another_parser_reads_junit() -> None:
    junitparser = pytest.importorskip("junitparser")
    suites = {one.name: one for one in junitparser.JUnitXml.fromstring(junit_report(TEAM).encode())}
    assert suites.keys() == set(TEAM.targets)
    found = {
        (suite.name, case.name): [type(one).__name__ for one in case.result]
        for suite in suites.values()
        for case in suite
    }
    for one in TEAM.trials:
        kinds = {State.NOT_RUN: ["Skipped"], State.WRONG: ["Failure"]}
        wanted = kinds.get(one.state, ["Error"] if one.state in FAILED else [])
        assert found[one.cell.target, one.name] == wanted
    (reason,) = [case.result[0].message for case in suites["rocm-hygon"] if case.name == "mnist-9"]
    assert reason == "no device: no DCU here"


def workbook(report: Any) -> dict[str, list[list[Any]]]:
    """The sheets as another library reads them."""
    pytest.importorskip("openpyxl", reason="the extra `report` is not installed")
    calamine = pytest.importorskip("python_calamine")
    from toolchain.report.sheets import workbook_report

    book = calamine.CalamineWorkbook.from_filelike(io.BytesIO(workbook_report(report)))
    return {name: book.get_sheet_by_name(name).to_python() for name in book.sheet_names}


def test_another_library_reads_the_workbook() -> None:
    sheets = workbook(TEAM)
    assert {
        "summary",
        "states",
        "known causes",
        "not run",
        "Tesla V100-32GB",
        "Radeon Pro (gfx906)",
    } <= sheets.keys()
    header, *rows = sheets["summary"]
    resnet = dict(zip(header, next(row for row in rows if row[0] == "resnet"), strict=True))
    assert resnet["SYCL-NVIDIA"] == "✓ (resnet50-v1-7 ✗ wrong)"
    header, *rows = sheets["Tesla V100-32GB"]
    times_of = {(row[1], row[3]): row[header.index("p50 ms")] for row in rows}
    assert times_of["resnet-9", "SYCL-NVIDIA"] == pytest.approx(TEAM_MS)
    assert {type(one) for one in times_of.values()} <= {float, str}
    assert not any("not-run" in row for row in rows)


def test_hostile_workbook_has_texts_and_no_formulas() -> None:
    import zipfile

    pytest.importorskip("openpyxl", reason="the extra `report` is not installed")
    from toolchain.report.sheets import workbook_report

    report = make_report(hostile_records())
    with zipfile.ZipFile(io.BytesIO(workbook_report(report))) as archive:
        for name in archive.namelist():
            assert b"<f>" not in archive.read(name)
            assert b"<f " not in archive.read(name)
    sheets = workbook(report)
    assert "=cmd|' /C calc'!A0" in {one for rows in sheets.values() for row in rows for one in row}
    assert all(len(name) <= 31 for name in sheets)


def test_a_long_device_name_shared_by_two_makes_two_sheets() -> None:
    names = ["x" * 40 + end for end in ("1", "2")]
    sheets = workbook(make_report([trial("a", "cpu", ms=1.0, device=one, selector=one) for one in names]))
    assert {"x" * 31, "x" * 29 + " 2"} <= sheets.keys()
