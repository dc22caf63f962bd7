"""Two schedules beside each other as text: decisions and steps, those that differ marked."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import compiler


@dataclass(frozen=True, slots=True)
class MarkedLine:
    """A line of text; differs: the other schedule has none like it."""

    text: str
    differs: bool


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision of both schedules, as text."""

    name: str
    default: str
    best: str

    @property
    def differs(self) -> bool:
        """Whether the two decide otherwise."""
        return self.default != self.best


def decision_rows(default: compiler.TuningRecord, best: compiler.TuningRecord) -> list[DecisionRow]:
    """All decisions of the best schedule, then those that the default alone was asked for."""
    names = dict.fromkeys((*best.decisions, *default.decisions))
    return [
        DecisionRow(name, value_text(default.decisions.get(name)), value_text(best.decisions.get(name)))
        for name in names
    ]


def value_text(value: tuple[int, ...] | None) -> str:
    """A decision's value."""
    return "not asked" if value is None else " ".join(map(str, value))


def marked_steps(default: str, best: str) -> tuple[list[MarkedLine], list[MarkedLine]]:
    """The steps of both traces, a line for each."""
    before, after = _steps(default), _steps(best)
    same = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = ({n for block in same for n in range(block[side], block[side] + block.size)} for side in (0, 1))
    return tuple(  # type: ignore[return-value]  # two of them
        [MarkedLine(line, number not in known) for number, line in enumerate(lines)]
        for lines, known in zip((before, after), kept, strict=True)
    )


def _steps(trace: str) -> list[str]:
    return [_step(item) for item in json.loads(trace)["instructions"]]


def _step(item: Mapping[str, Any]) -> str:
    given = ", ".join(f"{name}={_argument(value)}" for name, value in item["with"].items())
    made = _names(item["gives"])
    return f"{item['do']}({given})" + (f" -> {made}" if made else "")


def _argument(value: object) -> str:
    return json.dumps(value, separators=(", ", ": "))


def _names(made: Sequence[object]) -> str:
    return ", ".join(map(str, made))
