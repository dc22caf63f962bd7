"""`tk report` as typed: files and standard output, what is refused, and comparisons with their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result
from tests.support.records import START, store_of, trial
from toolchain.matrix.runs import PlannedCell, RunDocument, RunStore
from toolchain.records.record import State

Tk = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    records = [
        trial("mnist", "cpu", ms=2.0, run="one", key="a"),
        trial("mnist", "cpu", ms=3.0, run="two", key="b"),
        trial("resnet", "cpu", State.VERIFIED, run="one", key="c", revision="resnet50-v1-7"),
        trial("resnet", "cpu", State.NOT_RUN, run="two", key="d", revision="resnet50-v1-7", why="no time"),
    ]
    folder = store_of(tmp_path / "records", records)
    for run, keys in (("one", "ac"), ("two", "bd")):
        cells = tuple(PlannedCell(title=key, keys=(key,)) for key in keys)
        RunStore(folder).begin(RunDocument(id=run, started=START, cells=cells))
    return folder


def test_a_table_is_the_default(tk: Tk, store: Path) -> None:
    done = tk("report", store)
    assert done.code == 0
    assert "| mnist | ✓ |" in done.out
    assert "| resnet | – not-run |" in done.out  # noqa: RUF001


def test_a_plan_shows_what_was_not_tried(tk: Tk, store: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(
        "models: {networks: [mnist, resnet18-v1, unet], revisions: [resnet50-v1-7]}\n"
        "targets: [cpu, opencl-cpu]\n"
    )
    page = tk("report", store, "--plan", "plan.yaml").out
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")][:4]
    assert [row[1:] for row in rows] == [
        ["cpu", "OpenCL-cpu"], ["✓", "not tried"],
        ["– not-run (not tried: resnet18-v1)", "not tried"], ["not tried", "not tried"],  # noqa: RUF001
    ]  # fmt: skip
    assert "6 of the plan not tried" in page
    empty = tk("report", "nowhere", "--plan", "plan.yaml", "--network", "unet", "--json").json
    assert [(one["target"], one["state"], one["not_tried"]) for one in empty["table"]] == [
        ("cpu", None, ["unet"]), ("opencl-cpu", None, ["unet"])]  # fmt: skip
    for end in ("html", "xlsx"):
        assert tk("report", store, "--plan", "plan.yaml", "-o", f"x.{end}").code == 0
    assert (tmp_path / "x.html").read_text().count("not tried</td>") == 4
    assert tk("report", "--plan", "plan.yaml", "--compare", "one", "two").code == 2


def test_formats_by_name_and_by_the_end_of_the_file(tk: Tk, store: Path, tmp_path: Path) -> None:
    done = tk("report", store, "-o", "a.csv", "-o", "b.md", "--network", "mnist")
    assert done.code == 0, done.err
    assert done.out == ""
    assert "resnet" not in (tmp_path / "a.csv").read_text()
    assert tk("report", store, "--format", "junit,json", "-o", "x.html").code == 0
    assert (tmp_path / "x.xml").read_text().startswith("<testsuites")
    assert json.loads((tmp_path / "x.json").read_text())["schema_version"] == 1
    assert len(tk("report", store, "--json", "-o", "c.csv").json["cells"]) == 2
    assert tk("report", store, "--format", "csv", "--run", "one").out.count("verified") == 2
    assert "not-run,no time" in tk("report", store, "--format", "csv", "--run", "last").out


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        (["--format", "htlm"], 2, "did you mean 'html'?"),
        (["--format", "html"], 2, "name a file with -o"),
        (["--format", "csv,junit"], 2, "name a file with -o"),
        (["-o", "x.txt"], 2, "the format is not clear"),
        (["-o", "a.csv", "-o", "b.csv", "--format", "csv"], 2, "several files"),
        (["-o", "missing/x.csv"], 2, "the folder of the result does not exist"),
        (["--network", "mnits"], 2, "did you mean 'mnist'?"),
        (["--run", "three"], 2, "no run is called 'three'"),
        (["--baseline", "cpuu"], 2, "did you mean 'cpu'?"),
        (["--compare", "one", "two", "-o", "x.html"], 2, "a comparison is no html"),
    ],
)
def test_what_does_not_fit_is_refused(tk: Tk, store: Path, line: list[str], code: int, says: str) -> None:
    done = tk("report", store, *line)
    assert (done.code, done.out) == (code, "")
    assert says in done.err


def test_a_folder_without_records(tk: Tk, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert tk("report", "empty").code == 3
    assert "there is no such folder" in tk("report", "missing").err


def test_records_of_another_version_are_named(tk: Tk, store: Path) -> None:
    path = next(store.rglob("*.json"))
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    assert f"left out: {path}" in tk("report", store).err


def test_comparing_finds_what_got_worse(tk: Tk, store: Path, tmp_path: Path) -> None:
    done = tk("report", store, "--compare", "one", "two")
    assert done.code == 1
    assert "| mnist | cpu |  | slower | 2 ms (1.96 to 2.04) | 3 ms (2.94 to 3.06) | 1.50 |" in done.out
    assert "| resnet50-v1-7 | cpu |  | not run any more |" in done.out
    found = tk("report", store, "--compare", "two", "one", "--json")
    assert found.code == 0
    assert [one["change"] for one in found.json["changes"]] == ["new", "faster"]
    other = store_of(tmp_path / "other", [trial("mnist", "cpu", State.CRASHED, why="exit code 139")])
    assert tk("report", "--compare", store, other, "-o", "what.md").code == 1
    assert "exit code 139" in (tmp_path / "what.md").read_text()
