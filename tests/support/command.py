"""Run `tk` as a user does: a process of its own, everything it prints kept.

The process is forked from one that has imported tk's modules and done nothing else, as most of a short
command's time is its imports; `tests/cli/test_forked.py` shows that a new Python does the same.
"""

from __future__ import annotations

import atexit
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = (
    "toolchain.main", "compiler.pipeline", "compiler.verify.check", "toolchain.images.named",
    "toolchain.engine.client", "toolchain.commands.verify", "toolchain.commands.bench",
    "toolchain.commands.image.app", "compiler.compile", "compiler.targets.sycl", "compiler.targets.opencl",
)  # fmt: skip
_READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "TZ", "OMP_", "OPENBLAS_")
"""Beginnings of variables that Python and its libraries read before any code of ours runs."""


@dataclass(frozen=True, slots=True)
class Result:
    """Exit code and output of one `tk` command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def tk(
    *args: object,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    input: str | None = None,  # noqa: A002 - the name that subprocess uses
) -> Result:
    """Run `tk` with these arguments from the checkout, without colour."""
    variables = environment(env)
    run = fork if _read_at_start(variables) == _AT_START else start
    return run([str(arg) for arg in args], cwd or Path.cwd(), variables, timeout, input or "")


def start(args: list[str], cwd: Path, env: Mapping[str, str], timeout: float, text: str) -> Result:
    """Run `tk` in a new Python."""
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", *args],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        input=text,
        timeout=timeout,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def fork(args: list[str], cwd: Path, env: Mapping[str, str], timeout: float, text: str) -> Result:
    """Run `tk` in a copy of a Python that has imported it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *_IMPORTED])
    with tempfile.TemporaryDirectory() as directory:
        files = [Path(directory) / name for name in ("in", "out", "err")]
        for path, content in zip(files, (text, "", ""), strict=True):
            path.write_text(content)
        process = context.Process(target=_forked, args=(args, cwd, dict(env), files))
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(args, timeout)
        return Result(process.exitcode, *(path.read_text() for path in files[1:]))


def _forked(args: list[str], cwd: Path, env: Mapping[str, str], files: Sequence[Path]) -> None:
    """Make this process what Python makes of a new one, and be `tk`."""
    from toolchain.start import main

    for number, path in enumerate(files):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["tk", *args]
    try:
        sys.exit(main())
    finally:
        atexit._run_exitfuncs()


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that `tk` gets in tests: the checkout importable, no colour, 80 columns.

    Modules are compiled once, as for a user, whatever the caller's environment says.
    """
    left_out = ("TK_DEBUG", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE")
    base = {key: value for key, value in os.environ.items() if key not in left_out}
    return {**base, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "80", **(changes or {})}


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key.startswith(_READ_AT_START)}


_AT_START = _read_at_start(environment())
