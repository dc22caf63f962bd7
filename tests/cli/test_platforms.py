"""Where tk does not run: one message, exit code 4, what works there, before anything newer is imported."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT, environment
from toolchain import start

EARLY = ("__init__.py", "__main__.py", "start.py")
"""Read by whatever Python is there."""

# As it would be there: the facts, and no module of ours that needs more.
_FAKE = """
import os, sys
real = os.confstr
{facts}
before = set(sys.modules)
from toolchain import start
sys.argv = ["tk", *{arguments!r}]
code = start.main()
ours = sorted(n for n in set(sys.modules) - before if n.split(".")[0] in ("toolchain", "compiler", "typer"))
sys.platform = "linux"
sys.stderr.write("|".join(ours))
sys.exit(code)
"""
_NO_GLIBC = "def confstr(name): raise ValueError('unrecognized configuration name')\nos.confstr = confstr"
PLATFORMS = {
    "macOS": ("sys.platform = 'darwin'", "does not run on macOS", "container or virtual machine"),
    "Windows": ("sys.platform = 'win32'; del os.confstr", "does not run on Windows itself", "WSL 2"),
    "FreeBSD": ("sys.platform = 'freebsd14'", "does not run on this system (freebsd14)", "Linux machine"),
    "musl": (_NO_GLIBC, "tk needs glibc", "a container with glibc"),
    "Python 3.10": (
        "sys.version_info = (3, 10, 12, 'final', 0)",
        "needs Python 3.11 or newer",
        "need no Python",
    ),
    "Python 3.6": ("sys.version_info = (3, 6, 9, 'final', 0)", "needs Python 3.11 or newer", "newer one"),
}


def started(facts: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    program = _FAKE.format(facts=facts, arguments=arguments)
    argv = [sys.executable, "-c", program]
    return subprocess.run(argv, env=environment(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", PLATFORMS)
def test_one_message_and_what_works_there(name: str) -> None:
    facts, what, works = PLATFORMS[name]
    done = started(facts, "compile", "x.onnx", "--json")
    assert done.returncode == 4
    *lines, loaded = done.stderr.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["error", "why", "hint"]
    assert what in lines[0]
    assert works in lines[2]
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["where"]) == (4, "")
    assert f"error: {error['what']}" == lines[0]
    assert loaded == "toolchain|toolchain.start"


def test_without_json_standard_output_is_empty() -> None:
    done = started("sys.platform = 'darwin'", "image", "run", "cpu", "--", "program", "--json")
    assert (done.returncode, done.stdout) == (4, "")


def test_here_nothing_is_said() -> None:
    assert start.find_problem() == {}


@pytest.mark.parametrize("name", EARLY)
def test_old_pythons_read_it(name: str) -> None:
    """No syntax, and no import, that came after Python 3.5."""
    tree = ast.parse((ROOT / "toolchain" / name).read_text(), feature_version=(3, 7))
    newer = (ast.JoinedStr, ast.NamedExpr, ast.Match, ast.AnnAssign, ast.AsyncFunctionDef, ast.TryStar)
    assert [type(node).__name__ for node in ast.walk(tree) if isinstance(node, newer)] == []
    tops = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {one.module if isinstance(one, ast.ImportFrom) else one.names[0].name for one in tops}
    assert names <= {"os", "sys", "toolchain.start"}


def test_the_commands_start_there() -> None:
    text = Path(ROOT, "pyproject.toml").read_text()
    assert 'tk = "toolchain.start:main"' in text
    assert 'toolchain = "toolchain.start:main"' in text
    assert f'requires-python = ">={".".join(map(str, start.OLDEST))}"' in text
