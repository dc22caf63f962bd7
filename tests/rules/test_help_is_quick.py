"""`tk --help` answers at once, in 150 ms where Python itself starts in 20; no numpy, no onnx."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from tests.support.command import environment

LIMIT_SECONDS = 0.150
LIMIT_STARTS = 7.5
"""The same limit in starts of an empty interpreter, for machines that take longer than 20 ms for one."""
HEAVY = ("numpy", "onnx", "onnxruntime", "ml_dtypes", "rich", "docker", "requests", "yaml", "jinja2")
_PROBE = """
import sys
from toolchain.main import main
code = main({arguments!r})
print(sorted(set(sys.modules) & set({heavy!r})), code, file=sys.stderr)
"""


def loaded(arguments: tuple[str, ...], first: str = "") -> str:
    """The heavy modules that a command has loaded, and its exit code."""
    probe = f"{first}\n{_PROBE.format(arguments=list(arguments), heavy=HEAVY)}"
    argv = [sys.executable, "-c", probe]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("compile", "--help"), ("image", "--help"), ("zoo", "list")]
)
def test_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert loaded(arguments) == "[] 0"


def test_the_rule_can_fail() -> None:
    assert loaded(("--help",), first="import numpy") == "['numpy'] 0"


def test_answers_in_time() -> None:
    """Processor time, the best of several: on a busy machine the clock on the wall measures the others."""
    pairs = [(seconds("-m", "toolchain", "--help"), seconds("-c", "pass")) for _ in range(9)]
    helped, started = (min(times) for times in zip(*pairs, strict=True))
    assert helped < max(LIMIT_SECONDS, LIMIT_STARTS * started)


def seconds(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment(), capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
