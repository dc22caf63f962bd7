"""The first decision about a kernel: which form of its anchor to schedule."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.core.target import TargetFacts
from compiler.graph.ir import Value
from compiler.graph.to_loops import ChooseForm, GroupFunc
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.schedule.chooser import Chooser, Option
from compiler.schedule.rules.estimate import seconds

Work = tuple[Func, tuple[tuple[str, Layout], ...]]
"""A function to schedule, and the layouts of those of its parameters that are not row-major, by name."""


def work_of(made: GroupFunc, layouts: Mapping[Value, Layout]) -> Work:
    """The work of a group, the same for groups that one kernel can compute."""
    found = (
        (buffer.name, layouts.get(value)) for buffer, value in zip(made.func.params, made.values, strict=True)
    )
    return made.func, tuple((name, layout) for name, layout in found if layout is not None and layout.maps)


def form_chooser(layouts: Mapping[Value, Layout], facts: TargetFacts, chooser: Chooser) -> ChooseForm:
    """Let `chooser` pick among forms by the estimated seconds of each; equal work is estimated once."""
    known: dict[Work, float] = {}

    def cost(made: GroupFunc) -> float:
        work = work_of(made, layouts)
        if work not in known:
            known[work] = seconds(work[0], dict(work[1]), facts)
        return known[work]

    def choose(name: str, candidates: Mapping[str, GroupFunc]) -> str:
        options = [Option((number,), cost(made)) for number, made in enumerate(candidates.values())]
        (chosen,) = chooser.choose(name, options)
        return list(candidates)[chosen]

    return choose
