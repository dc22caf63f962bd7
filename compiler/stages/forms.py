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


def form_chooser(layouts: Mapping[Value, Layout], facts: TargetFacts, chooser: Chooser) -> ChooseForm:
    """Let `chooser` pick among forms by the estimated seconds of each; equal work is estimated once."""
    known: dict[Work, float] = {}

    def cost(made: GroupFunc) -> float:
        own = param_layouts(made, layouts)
        key = (made.func, tuple(own.items()))
        if key not in known:
            known[key] = seconds(made.func, own, facts)
        return known[key]

    def choose(name: str, candidates: Mapping[str, GroupFunc]) -> str:
        options = [Option((number,), cost(made)) for number, made in enumerate(candidates.values())]
        (chosen,) = chooser.choose(name, options)
        return list(candidates)[chosen]

    return choose


def param_layouts(made: GroupFunc, layouts: Mapping[Value, Layout]) -> dict[str, Layout]:
    """The layouts of those parameters of a group's function that are not row-major, by name."""
    found = {}
    for buffer, value in zip(made.func.params, made.values, strict=True):
        layout = layouts.get(value)
        if layout is not None and layout.maps:
            found[buffer.name] = layout
    return found
