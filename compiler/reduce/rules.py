"""Which rule of the schedules takes a step or offers a decision, as the calls on the stack tell."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.trace import Instruction
from compiler.stages.finished import PACKAGE

_RULES = PACKAGE / "schedule" / "rules"
_FORMS = PACKAGE / "stages" / "forms.py"
"""Who offers the forms of an operator's record."""


@dataclass(slots=True)
class WatchedChooser:
    """Chooses as another one does; `rules` has the rule behind each decision, by the decision's name."""

    chooser: Chooser
    rules: dict[str, str] = field(default_factory=dict)

    def choose(self, name: str, options: Sequence[Option]) -> tuple[int, ...]:
        self.rules.setdefault(name, current_rule())
        return self.chooser.choose(name, options)


@dataclass(slots=True)
class WatchedSteps:
    """The rule behind each instruction of a trace."""

    _rules: dict[int, tuple[Instruction, str]] = field(default_factory=dict)

    def __call__(self, instruction: Instruction) -> None:
        self._rules[id(instruction)] = instruction, current_rule()

    def rule(self, instruction: Instruction) -> str:
        """The rule that applied this very instruction; empty where it was none that was watched."""
        return self._rules.get(id(instruction), (instruction, ""))[1]


def current_rule() -> str:
    """The rule that is being carried out, by its file and function, and the function of it that acts.

    Empty outside of rules.
    """
    calls = list(_calls())
    if not calls:
        return ""
    (file, rule), (_, acting) = calls[-1], calls[0]
    return f"{file}: {rule}" + (f", in {acting}" if acting != rule else "")


def _calls() -> Iterator[tuple[str, str]]:
    """Functions of rules that are active, innermost first; those that only pick a rule are none."""
    for frame, _ in traceback.walk_stack(None):
        path = Path(frame.f_code.co_filename)
        if path == _FORMS or (path.is_relative_to(_RULES) and path.name != "__init__.py"):
            yield str(path.relative_to(PACKAGE)), frame.f_code.co_name
