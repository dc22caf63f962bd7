"""What `tk ci init` writes: valid by GitHub's schema, audited, least permissions; scripts do their work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import command
from tests.support.command import ROOT
from tests.support.recipes import catalog, plan
from toolchain.images.lock.file import Lock, LockedImage, read_lock, write_lock
from toolchain.images.lock.pins import user_lock
from toolchain.images.named import plan_named
from toolchain.images.plan import Pins
from toolchain.main import main
from toolchain.recipes.evidence import Evidence, load_evidence, record_evidence
from toolchain.recipes.resolve import resolve
from toolchain.workflows import ACTIONS, ImagesWorkflow, images_workflow, release_workflow

TEXTS = {
    "ghcr": images_workflow(
        ImagesWorkflow(["cpu", "llvm-19"], "ghcr.io", False, ".[verify]", "evidence.json")
    ),
    "private": images_workflow(
        ImagesWorkflow(
            ["tvm-sycl-rocm@gfx906,gfx90a"],
            "r.example:5000/team",
            True,
            "tk-toolchain @ https://files.example/tk_toolchain-0.1.0-py3-none-any.whl",
            "ci/evidence.json",
        )
    ),
    "release": release_workflow(),
}
PACKAGE = "git+https://git.example/tk@0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(params=TEXTS)
def workflow(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(request.param, tmp_path)


def written(name: str, project: Path) -> Path:
    path = project / ".github" / "workflows" / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXTS[name])
    return path


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def jobs(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(text)["jobs"]
    return found


def scripts(text: str) -> list[str]:
    return [step["run"] for job in jobs(text).values() for step in job["steps"] if "run" in step]


def test_the_schema_of_github(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    files = [written(name, tmp_path) for name in TEXTS]
    done = subprocess.run([*argv, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_audit_finds_nothing(workflow: Path) -> None:
    argv = [str(Path(sys.executable).parent / "zizmor"), "--offline", "--no-progress", "--persona", "auditor"]
    done = subprocess.run([*argv, workflow], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", TEXTS)
def test_least_permissions_and_commits(name: str) -> None:
    text = TEXTS[name]
    assert yaml.safe_load(text)["permissions"] == {}
    for job in jobs(text).values():
        assert "timeout-minutes" in job
        assert "permissions" in job
        assert sum(one == "write" for one in job["permissions"].values()) <= 3
    used = re.findall(r"uses: (\S+)@(\S+) # (\S+)", text)
    assert used
    assert len(used) == text.count("uses:")
    for action, commit, version in used:
        known = ACTIONS[action]
        assert (commit, version) == (known.commit, known.version)
        assert re.fullmatch(r"[0-9a-f]{40}", commit)
        assert known.source


@pytest.mark.parametrize("name", TEXTS)
def test_scripts_are_shell_without_expressions(name: str) -> None:
    for one in scripts(TEXTS[name]):
        assert "${{" not in one
        done = subprocess.run(["bash", "-n"], input=one, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_commands_in_scripts_are_tk_s() -> None:
    """Each `tk` line's options are known to that command."""
    lines = [
        line
        for text in TEXTS.values()
        for one in scripts(text)
        for line in one.replace("\\\n", " ").splitlines()
        for line in re.findall(r"\btk (?:image|ci|zoo|compile|verify)\b.*", line)
    ]
    assert any("image publish" in line and "--private" in line for line in lines)
    for line in lines:
        words = re.findall(r"^[a-z ]+", line.removeprefix("tk "))[0].split()
        words = words[:2] if words[0] in ("image", "ci", "zoo") else words[:1]
        known = command.tk(*words, "--help").out
        assert all(option in known for option in re.findall(r"--[a-z-]+", line)), line


def test_what_is_committed_here_is_what_would_be_written() -> None:
    result = command.tk("ci", "init", "cpu", "llvm-19", "rocm-5.2-debian", "--release", "--json", cwd=ROOT)
    assert result.code == 0, result.err
    assert [one["written"] for one in result.json["files"]] == [False, False]


def test_write_once_then_only_by_force(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["ci", "init", "cpu", "--package", PACKAGE]
    path = project / ".github" / "workflows" / "tk-images.yml"
    assert main([*words, "--dry-run"]) == 0
    assert not path.exists()
    assert "tk image publish" in capsys.readouterr().out
    assert main(words) == 0
    assert main(words) == 0
    first = path.read_text()
    assert PACKAGE in first
    other = ["ci", "init", "llvm-19", "--package", PACKAGE]
    assert main(other) == 3
    assert "would be written over" in capsys.readouterr().err
    assert path.read_text() == first
    assert main([*other, "--force"]) == 0
    assert "llvm-19" in path.read_text()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["cpu"], 2, "what should pip install as tk?"),
        ([], 2, "which images?"),
        (["cpu", "--package", "x\n  evil: true"], 2, "nothing that pip can install"),
        (["cpu", "--package", "${{ secrets.X }}"], 2, "nothing that pip can install"),
        (["cpu", "--package", PACKAGE, "--registry", "${{ x }}"], 2, "is no registry"),
        (["cpu", "--package", PACKAGE, "--evidence", "../x.json"], 2, "no file of the repository"),
        (["cpu", "--package", PACKAGE, "--release"], 2, "for the repository of tk itself"),
        (["cuda-11.2", "--package", PACKAGE], 3, "NVIDIA Deep Learning Container License"),
        (["cpuu", "--package", PACKAGE], 2, "did you mean 'cpu'?"),
    ],
)
def test_wrong_use(
    words: list[str], code: int, said: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ci", "init", *words]) == code
    assert said in capsys.readouterr().err
    assert not (project / ".github").exists()


def test_the_evidence_of_all_jobs_comes_together(tmp_path: Path) -> None:
    """The record job's own scripts, in a clone, with what two jobs left."""
    work, remote = repository(tmp_path)
    found = tmp_path / "runner" / "found"
    for index, name in enumerate(("cpu", "llvm-19")):
        (found / f"evidence-{index}").mkdir(parents=True)
        record_evidence([published(name)], found / f"evidence-{index}" / "evidence.json")
    steps = jobs(TEXTS["ghcr"])["record"]["steps"]
    env = {
        **command.environment(),
        "RUNNER_TEMP": str(tmp_path / "runner"),
        "GITHUB_REF_NAME": "main",
        "TOKEN": "secret",
        "PATH": f"{tk_on_path(tmp_path)}:{os.environ['PATH']}",
    }
    for step in steps:
        if "run" in step and "pip install" not in step["run"]:
            argv = ["bash", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(argv, cwd=work, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
    assert {one.name for one in load_evidence(work / "evidence.json")} == {"cpu", "llvm-19"}
    shown = subprocess.run(
        ["git", "-C", remote, "show", "--stat", "main"], capture_output=True, text=True, check=True
    )
    assert "evidence.json" in shown.stdout


def published(name: str) -> Evidence:
    wanted = plan(name)
    image = f"ghcr.io/o/r/{wanted.reference}@sha256:{'0' * 64}"
    return Evidence(name, "published", resolve(name, catalog()).recipe_hash, "a test", wanted.key, image)


def repository(tmp_path: Path) -> tuple[Path, Path]:
    """A clone with a lock, and what it was cloned from."""
    remote, work = tmp_path / "remote.git", tmp_path / "work"
    git = shutil.which("git") or "git"
    subprocess.run([git, "init", "-q", "--bare", "-b", "main", remote], check=True)
    subprocess.run([git, "clone", "-q", remote, work], check=True, capture_output=True)
    write_lock(work / "tk.lock", Lock())
    return work, remote


def tk_on_path(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "tk"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m toolchain "$@"\n')
    script.chmod(0o755)
    return folder


def test_a_folder_where_a_workflow_belongs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".github" / "workflows" / "tk-images.yml").mkdir(parents=True)
    assert main(["ci", "init", "cpu", "--package", PACKAGE]) == 3
    assert "found a directory" in capsys.readouterr().err


def test_a_published_image_is_named_in_the_lock(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = plan("cpu")
    pins = Pins(base_digest=f"sha256:{'1' * 64}", apt={name.partition("=")[0]: "1" for name in bare.apt})
    section = LockedImage(resolve("cpu", catalog()).recipe_hash, bare.base.reference, pins)
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    write_lock(user_lock(), Lock({bare.section: section}))  # it counts, but it is not the project's
    own = plan_named("cpu").plan.key
    record_evidence([replace(published("cpu"), plan=own)], project / "own.json")
    assert main(["ci", "record", str(project / "own.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["in_lock"] == []
    write_lock(project / "tk.lock", Lock({bare.section: section}))
    named = plan_named("cpu")
    assert named.pins is not None
    record = published("cpu")
    stale = Evidence("cpu", "published", record.recipe_hash, "a test", record.plan, record.image)
    record_evidence([stale], project / "stale.json")
    assert main(["ci", "record", str(project / "stale.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["in_lock"] == []
    fresh = Evidence("cpu", "published", record.recipe_hash, "a test", named.plan.key, record.image)
    record_evidence([fresh], project / "fresh.json")
    assert main(["ci", "record", str(project / "fresh.json"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["in_lock"] == ["cpu"]
    lock = read_lock(project / "tk.lock")
    assert lock is not None
    built = lock.images["cpu"].built
    assert built is not None
    assert f"{built.reference}@{built.digest}" == record.image
