"""`tk image lint` from the command line: exit codes, text, JSON."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.command import Result

SEED = Path(__file__).parent / "seed.Dockerfile"
CLEAN = "FROM scratch\nCOPY a /a\nUSER 1000\n"


def test_findings_are_exit_code_1(tk: Callable[..., Result], tmp_path: Path) -> None:
    shutil.copy(SEED, tmp_path / "Dockerfile")
    done = tk("image", "lint", "Dockerfile")
    assert done.code == 1
    assert "Dockerfile:7: error: a CMake before 3.20" in done.out
    assert done.out.count("pip.pypa.io/en/stable/topics/repeatable-installs") == 1
    assert "findings: " in done.err


def test_no_findings_are_exit_code_0(tk: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(CLEAN)
    done = tk("image", "lint", "Dockerfile")
    assert (done.code, done.out, done.err) == (0, "", "no findings\n")


def test_json(tk: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(CLEAN + "USER root\n")
    done = tk("image", "lint", "Dockerfile", "--json")
    (finding,) = done.json["findings"]
    assert (done.code, finding["rule"], finding["line"], finding["severity"]) == (1, "no-user", 4, "warning")
    assert {"why", "fix", "source", "message", "found"} <= finding.keys()


def test_ignored(tk: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(CLEAN + "USER root\n")
    assert tk("image", "lint", "Dockerfile", "--ignore", "no-user").code == 0
    unknown = tk("image", "lint", "Dockerfile", "--ignore", "no-usr")
    assert (unknown.code, "did you mean 'no-user'?" in unknown.err) == (2, True)


def test_no_file_and_no_dockerfile(tk: Callable[..., Result], tmp_path: Path) -> None:
    assert tk("image", "lint", "Dockerfile").code == 3
    (tmp_path / "Dockerfile").write_text("hello\n")
    done = tk("image", "lint", "Dockerfile")
    assert (done.code, "line 1: `HELLO`" in done.err) == (3, True)
