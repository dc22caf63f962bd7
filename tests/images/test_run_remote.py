"""Sessions on an engine that sees none of this machine's files, and the doctor with real engines."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import command
from tests.support.command import environment
from tests.support.device_trees import machine
from tests.support.engine import TestEngine
from toolchain.containers.host_probe import to_lines

pytestmark = pytest.mark.slow


def test_a_session_over_tcp(remote_engine: TestEngine, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("")
    words = ["image", "run", remote_engine.base, "--docker-host", remote_engine.url, "--"]
    script = "cat; pwd; ls; id -un; echo err >&2; exit 7"
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", *words, "sh", "-c", script],
        input=b"given\n", capture_output=True, cwd=tmp_path, env=environment(), timeout=120, check=False,
    )  # fmt: skip
    out, err = done.stdout.decode().split(), done.stderr.decode()
    assert done.returncode == 7, err
    assert out[:2] == ["given", "/tk/home"]
    assert "here" not in out
    assert "err\n" in err
    assert "the current folder is not in the container" in err


def test_what_would_be_run_there_is_what_that_machine_has(remote_engine: TestEngine, tmp_path: Path) -> None:
    (tmp_path / "machine").write_text(to_lines(machine("hygon-k100-ai", tmp_path / "tree")))
    words = ("image", "run", remote_engine.base, "--docker-host", remote_engine.url, "--devices", "hygon")
    shown = command.tk(*words, "--assume", "machine", "--dry-run", "--", "true", cwd=tmp_path)
    assert shown.code == 0
    assert f"docker --host {remote_engine.url} run --rm --init " in shown.out
    assert "--device /dev/mkfd" in shown.out
    explained = command.tk(*words, "--assume", "machine", "--explain", "--json", "--", "true", cwd=tmp_path)
    options = explained.json["launch"]["options"]
    assert {"flag": "group-add", "value": "39"}.items() <= next(
        one for one in options if one["flag"] == "group-add"
    ).items()
    # Without a captured machine that one is probed; it has no DCU.
    probed = command.tk(*words, "--dry-run", "--", "true", cwd=tmp_path)
    assert probed.code == 4
    assert f"the machine of {remote_engine.url} has no Hygon accelerator" in probed.err


@pytest.mark.parametrize("name", ["docker_engine", "podman_engine", "remote_engine"])
def test_the_doctor_with_an_engine(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine: TestEngine = request.getfixturevalue(name)
    done = command.tk("doctor", "--docker-host", engine.url, "--json", cwd=tmp_path)
    rows = {one["about"]: one for one in done.json["rows"]}
    assert rows["engine"]["state"] == "ok"
    assert rows["engine"]["found"].startswith(f"{engine.kind} ")
    assert engine.url in rows["engine"]["found"]
    assert "builder" in rows
    assert done.code == (4 if done.json["problems"] else 0)
