"""README's section on images, followed to the letter."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT
from tests.support.documents import shell_commands
from tests.support.engine import TestEngine

pytestmark = pytest.mark.slow

BASE = "debian:bookworm-slim"
"""What `cpu` starts from. Where it cannot be pulled, the tests' own Debian is given that name."""


def test_followed_literally(docker_engine: TestEngine, tmp_path: Path) -> None:
    engine = docker_engine.open()
    if engine.image(BASE) is None:
        repository, tag = BASE.split(":")
        engine.api.tag(docker_engine.base, repository, tag)
    env = {**os.environ, "DOCKER_HOST": docker_engine.url, "PYTHONPATH": str(ROOT)}
    section = (ROOT / "README.md").read_text().partition("\n## Images\n")[2].partition("\n## ")[0]
    commands = [shlex.split(line) for line in shell_commands(section)]
    assert len(commands) > 8
    for program, *arguments in commands:
        assert program == "tk"
        argv = [sys.executable, "-m", "toolchain", *arguments]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True)
        allowed = (0, 4) if arguments[0] == "doctor" else (0,)  # 4: it found a problem, and says which
        assert done.returncode in allowed, f"tk {shlex.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert done.stdout
    assert (tmp_path / "mnist.so").exists()
