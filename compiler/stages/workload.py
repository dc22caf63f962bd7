"""What is tuned: the work of one kernel in each form that it may take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from compiler.core.files import sha256_bytes
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.loops.text import parse_func, print_func
from compiler.stages.tuned import Decisions

Work = tuple[Func, tuple[tuple[str, Layout], ...]]
"""A function to schedule, and the layouts of those of its parameters that are not row-major, by name."""


@dataclass(frozen=True)
class Workload:
    """What one kernel has to do, whatever its schedule.

    forms: its work in each form of its anchor, by name; `""` where there is no choice. The first one tells
    workloads apart. decision: what the choice among forms is called; a form is taken by its number.
    """

    forms: tuple[tuple[str, Work], ...]
    decision: str = ""

    @classmethod
    def of(cls, func: Func, layouts: Mapping[str, Layout]) -> Self:
        """The workload of a function that has no other form."""
        return cls((("", (func, tuple(layouts.items()))),))

    @cached_property
    def key(self) -> str:
        """The digest of its first form: the same for equal work in any model."""
        return sha256_bytes(work_text(self.forms[0][1]).encode())

    def work(self, decisions: Decisions) -> Work:
        """The work in the form that is decided on; the first one where none is, or where it is not there."""
        (number,) = decisions.get(self.decision, (0,))
        return self.forms[number if 0 <= number < len(self.forms) else 0][1]

    def to_json(self) -> str:
        """As `from_json` reads it."""
        forms = [[name, *_work_lists(work)] for name, work in self.forms]
        return json.dumps({"decision": self.decision, "forms": forms}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote; raises BadInputError for loops that cannot be read."""
        data = json.loads(text)
        forms = tuple((name, _work_of(func, layouts)) for name, func, layouts in data["forms"])
        return cls(forms, data["decision"])


def work_text(work: Work) -> str:
    """A work as text: its function and the layouts of its parameters."""
    func, layouts = work
    lines = (f"{name}: {'; '.join(item.text for item in layout.maps)}" for name, layout in layouts)
    return "\n".join((print_func(func), *lines))


def _work_lists(work: Work) -> tuple[str, list[list[Any]]]:
    func, layouts = work
    rows = [
        [name, [item.text for item in layout.maps], layout.shape, layout.lanes, layout.group]
        for name, layout in layouts
    ]
    return print_func(func), rows


def _work_of(text: str, rows: list[list[Any]]) -> Work:
    layouts = tuple(
        (name, Layout(tuple(map(IndexMap.parse, maps)), tuple(shape), lanes, group))
        for name, maps, shape, lanes, group in rows
    )
    return parse_func(text), layouts
