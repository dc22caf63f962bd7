"""The first decision about a kernel: which form of its anchor to schedule."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.core.target import TargetFacts
from compiler.graph.ir import Value
from compiler.graph.to_loops import ChooseForm, GroupFunc
from compiler.loops.layout import Layout
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.rules.estimate import form_seconds
from compiler.stages.workload import Work


def work_of(made: GroupFunc, layouts: Mapping[Value, Layout]) -> Work:
    """The work of a group, the same for groups that one kernel can compute."""
    found = (
        (buffer.name, layouts.get(value)) for buffer, value in zip(made.func.params, made.values, strict=True)
    )
    return made.func, tuple((name, layout) for name, layout in found if layout is not None and layout.maps)


class FormChoosers:
    """Let choosers pick among forms by the estimated seconds of each; equal work is estimated once."""

    def __init__(self, layouts: Mapping[Value, Layout], facts: TargetFacts) -> None:
        self._layouts = layouts
        self._facts = facts
        self._known: dict[tuple[Work, ...], list[float]] = {}

    def of(self, chooser: Chooser) -> ChooseForm:
        """How `chooser` picks."""

        def choose(name: str, candidates: Mapping[str, GroupFunc]) -> str:
            costs = self._costs(tuple(work_of(made, self._layouts) for made in candidates.values()))
            options = [Option((number,), cost) for number, cost in enumerate(costs)]
            (chosen,) = chooser.choose(name, options)
            return list(candidates)[chosen]

        return choose

    def _costs(self, works: tuple[Work, ...]) -> list[float]:
        if works not in self._known:
            pairs = [(func, dict(layouts)) for func, layouts in works]
            self._known[works] = form_seconds(pairs, self._facts)
        return self._known[works]
