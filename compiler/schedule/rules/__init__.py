"""The design space of a kernel: rules write its schedule, a chooser fills the open decisions.

There is no other way to a schedule: the untuned compile, the tuner and the replay of a database record differ
in the chooser only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.core.plugins import ScheduleRule
from compiler.core.target import TargetFacts
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.schedule.chooser import AskedOnce, Chooser, Option
from compiler.schedule.known_steps import KnownSteps
from compiler.schedule.rules.common import inline_injective
from compiler.schedule.rules.options import decide
from compiler.schedule.rules.threads import schedule_threads
from compiler.schedule.rules.threads.scores import last_of_scores
from compiler.schedule.rules.vector import schedule_vectors
from compiler.schedule.schedule import Observe, Schedule


def schedule_func(
    func: Func,
    layouts: Mapping[str, Layout],
    facts: TargetFacts,
    chooser: Chooser,
    *,
    rules: bool = True,
    observe: Observe | None = None,
    custom: Sequence[ScheduleRule] = (),
    known: KnownSteps | None = None,
) -> Schedule:
    """Schedule a kernel for a target; `layouts` has the layout of each parameter that is not row-major.

    Without `rules` the loops of a processor stay as they are; those of threads need theirs. `observe` is told
    of each step from within the rule that takes it. `custom` rules, of plugins, are asked before all others.
    `known` has steps that other schedules took.
    """
    chooser = AskedOnce(chooser)
    schedule = Schedule(func, observe=observe, known=known)
    kept = last_of_scores(schedule.program) if facts.binds_threads else ""
    inline_injective(schedule, repeat=facts.binds_threads, kept=kept)
    for name, layout in layouts.items():
        for index_map in layout.maps:
            schedule.transform_layout(name, index_map)
    if rules and any(_takes(rule, schedule, facts, chooser) for rule in custom):
        return schedule
    if facts.binds_threads:
        schedule_threads(schedule, facts, chooser)
    elif rules:
        schedule_vectors(schedule, _width(layouts, facts, chooser), chooser)
    return schedule


_HALF = 256
"""Bits of the narrower vectors of processors with 512: clocks may be higher, rests are shorter."""


def _width(layouts: Mapping[str, Layout], facts: TargetFacts, chooser: Chooser) -> TargetFacts:
    """The target with vectors as wide as a kernel takes them; blocks of channels are of the widest ones."""
    if facts.vector_bits != 2 * _HALF or any(layout.lanes for layout in layouts.values()):
        return facts
    bits = decide(chooser, "vector.bits", facts.vector_bits, (_HALF,))
    return replace(facts, vector_bits=bits) if bits != facts.vector_bits else facts


TAKE, LEAVE = (1,), (0,)
"""Of the decision `rule.NAME`, which a search may take either way where a plugin's rule fits a kernel."""


def _takes(rule: ScheduleRule, schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Whether a plugin's rule has scheduled the kernel, and is to be taken."""
    made = schedule.copy()
    if not rule.apply(made, facts, chooser):
        return False
    taken = chooser.choose(f"rule.{rule.name}", [Option(TAKE, 0.0), Option(LEAVE, 1.0)]) == TAKE
    if taken:
        schedule.adopt(made)
    return taken
