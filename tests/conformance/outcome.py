"""What became of a case on a target, and the file in which that is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self


class State(StrEnum):
    """How a case ends."""

    PASSED = "passed"
    ROUNDED = "rounded"  # passes where floats of 16 bits may differ by two units in the last place
    BOUND = "bound"  # passes when the inputs that decide shapes are given to the compiler (`--bind`)
    UNSUPPORTED = "unsupported"
    DISPUTED = "disputed"  # differs from data that are not what the standard says (`disputed.py`)
    WRONG = "wrong"
    FAILED = "failed"  # a message that calls a right model wrong, or no library
    INTERNAL = "internal error"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Outcome:
    """A case, how it ended, why, and the key of all that this depends on."""

    case: str
    state: State
    reason: str = ""
    key: str = ""


class Outcomes:
    """Outcomes in a file, one line of JSON each; what is appended later counts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Mapping[str, Outcome]:
        """By case; a line that a killed process left half written is ignored."""
        found = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            if line.startswith("{") and line.endswith("}"):
                item = json.loads(line)
                found[item["case"]] = Outcome(**{**item, "state": State(item["state"])})
        return found

    def add(self, outcome: Outcome) -> None:
        """Append one; several processes may do so at once."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            file.write(b"\n" + json.dumps(asdict(outcome)).encode() + b"\n")

    @classmethod
    def of(cls, target: str, root: Path) -> Self:
        """Those of a target below the repository's build folder."""
        return cls(root / "build" / "conformance" / f"{target}.jsonl")
