"""What became of a graph, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class State(StrEnum):
    """How a graph ends."""

    PASSED = "passed"
    UNDECIDED = "undecided"  # oracles disagree, there is none, or rounding decides
    UNSUPPORTED = "unsupported"
    WRONG = "mismatch"
    INTERNAL = "internal error"
    CRASHED = "crash"
    TIMED_OUT = "timed out"


FAULTS = (State.WRONG, State.INTERNAL, State.CRASHED, State.TIMED_OUT)


@dataclass(frozen=True)
class Outcome:
    """A graph by its seed, how it ended, and why; `company`: seeds of the graphs without which it passes."""

    seed: int
    state: State
    reason: str = ""
    company: tuple[int, ...] = ()


class Outcomes:
    """Outcomes in a file, one line of JSON each, which say what they were made with; what is appended later
    counts."""

    def __init__(self, path: Path, made_with: str) -> None:
        self._path, self._made_with = path, made_with

    def read(self) -> Mapping[int, Outcome]:
        """By seed, those made with the same; a line that a killed process left half written is ignored."""
        found = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            if line.startswith("{") and line.endswith("}"):
                item = json.loads(line)
                if item.pop("with") == self._made_with:
                    found[item["seed"]] = Outcome(
                        item["seed"], State(item["state"]), item["reason"], tuple(item["company"])
                    )
        return found

    def add(self, outcome: Outcome) -> None:
        """Append one; several processes may do so at once."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            file.write(b"\n" + json.dumps({**asdict(outcome), "with": self._made_with}).encode() + b"\n")
