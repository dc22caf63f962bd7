"""Run `tk` as a user does: a process of its own, everything it prints kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


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
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", *map(str, args)],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        input=input,
        timeout=timeout,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that `tk` gets in tests: the checkout importable, no colour, 80 columns.

    Modules are compiled once, as for a user, whatever the caller's environment says.
    """
    left_out = ("TK_DEBUG", "FORCE_COLOR", "PYTHONDONTWRITEBYTECODE")
    base = {key: value for key, value in os.environ.items() if key not in left_out}
    return {**base, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COLUMNS": "80", **(changes or {})}
