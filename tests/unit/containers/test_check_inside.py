"""The look at devices inside a container, before the work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from toolchain.containers import check_inside, job


def test_what_can_be_used_is_not_mentioned(capfd: pytest.CaptureFixture[str]) -> None:
    assert check_inside.main(["token", "/dev/null", "libc.so.6"]) == 0
    assert capfd.readouterr().err == ""


def test_everything_that_is_missing_is_named(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.touch()
    names = ["/dev/no-such-node", str(plain), "/dev/null", "libno-such-driver.so.1"]
    assert check_inside.main(["token", *names]) == 125
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "token missing /dev/no-such-node No such file or directory"
    assert lines[1] == f"token missing {plain} it is no device"
    assert lines[2].startswith("token missing libno-such-driver.so.1 ")
    assert len(lines) == 3


@pytest.mark.parametrize(("name", "status"), [("/dev/null /dev/zero", 7), ("/dev/null /dev/none", 125)])
def test_the_command_starts_only_when_all_is_there(name: str, status: int) -> None:
    """The shell's words around it, as in a container."""
    command = [sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(7)", "a b", "$HOME"]
    line = ["/bin/sh", "-c", job._CHECK_FIRST, "check", sys.executable, job._CHECK.read_text(), "t", name]
    done = subprocess.run([*line, *command], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert done.stdout == ("['a b', '$HOME']\n" if status == 7 else "")
    assert ("t missing /dev/none" in done.stderr) == (status == 125)
