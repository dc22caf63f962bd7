"""One unique piece of work -> one kernel: schedule it, lower it, print it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from compiler.core.diagnostics import BadInputError
from compiler.core.passes import PassEvent, run_passes
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.loops.text import parse_func, print_func
from compiler.lower import PASSES, lowering
from compiler.lower.place_allocations import WORKSPACE
from compiler.render.cstyle import KernelText, render_kernel
from compiler.schedule.analysis import static_shape
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.layouts import layouts_of
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import replay
from compiler.schedule.trace import Trace
from compiler.stages.constants import Maps
from compiler.stages.dump import LOOPS, RENDER, SCHEDULE, TRACE, Dump, Edit
from compiler.targets.target import Target

FIRST_LOWERING = 40
"""Number of the first lowering pass among the files of a dump."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel from its definition to its text.

    func: the work, before scheduling. layouts: of its parameters that are not row-major. trace: how it was
    scheduled. lowered: what was printed; its extra parameters are workspace. text: the source file.
    """

    number: int
    func: Func
    layouts: Mapping[str, Layout]
    trace: Trace
    scheduled: Func
    lowered: Func
    text: str
    scratch_bytes: int

    @property
    def workspace(self) -> tuple[int, ...]:
        """Bytes of each workspace parameter, in order."""
        count = int(dict(self.lowered.attrs).get(WORKSPACE, 0))
        last = len(self.lowered.params) - self.lowered.outputs
        buffers = self.lowered.params[last - count : last]
        return tuple((prod(static_shape(item)) * item.dtype.bits + 7) // 8 for item in buffers)

    def maps(self, param: int) -> Maps:
        """The index maps that lead from the logical to the physical layout of a parameter."""
        name = self.func.params[param].name
        return tuple(item.index_map.text for item in layouts_of(self.scheduled, name))


def make_kernel(
    number: int, func: Func, layouts: Mapping[str, Layout], target: Target, dump: Dump, edit: Edit | None
) -> Kernel:
    """Schedule, lower and print `func`; an edit takes the place of what its stage would have made.

    Raises BadInputError when the edited text does not fit.
    """
    func = _loops(number, func, edit)
    if dump:
        dump.kernel(LOOPS, number, print_func(func))
    trace, scheduled = _schedule(number, func, layouts, target, edit)
    if dump:
        dump.kernel(TRACE, number, trace.to_json(), ".json")
        dump.kernel(SCHEDULE, number, print_func(scheduled))
    lowered = run_passes(lowering(target.facts), scheduled, [_dumper(dump, number)] if dump else [])
    source = print_kernel(number, lowered, target)
    text = source.text
    if edit is not None and edit.applies(RENDER, number):
        text = edit.text
    dump.kernel(RENDER, number, text, ".cpp")
    return Kernel(number, func, layouts, trace, scheduled, lowered, text, source.scratch_bytes)


def print_kernel(number: int, lowered: Func, target: Target) -> KernelText:
    """The source file of a lowered kernel."""
    kernel = render_kernel(lowered, number, target.vocabulary, target.facts)
    return KernelText(kernel.name, f"{target.vocabulary.prelude}\n{kernel.text}", kernel.scratch_bytes)


def replay_kernel(number: int, func: Func, trace: Trace, target: Target) -> str:
    """The source file that a recorded trace gives; raises ScheduleError when the trace does not fit."""
    lowered = run_passes(lowering(target.facts), replay(trace, func).func)
    return print_kernel(number, lowered, target).text


def _loops(number: int, func: Func, edit: Edit | None) -> Func:
    if edit is None or not edit.applies(LOOPS, number):
        return func
    return _same_interface(parse_func(edit.text), func, edit)


def _schedule(
    number: int, func: Func, layouts: Mapping[str, Layout], target: Target, edit: Edit | None
) -> tuple[Trace, Func]:
    if edit is not None and edit.applies(TRACE, number):
        schedule = replay(Trace.from_json(edit.text), func)
    else:
        schedule = schedule_func(func, layouts, target.facts, AnalyticChooser())
    if edit is not None and edit.applies(SCHEDULE, number):
        return schedule.trace, _same_interface(parse_func(edit.text), schedule.func, edit)
    return schedule.trace, schedule.func


def _same_interface(edited: Func, original: Func, edit: Edit) -> Func:
    """The edited function, if it can stand in for the original: same parameters, same layouts."""
    if edited.params == original.params and edited.outputs == original.outputs:
        return edited
    raise BadInputError(
        "the edited function has other parameters than the one it replaces",
        where=str(edit.path),
        why="the model around it passes buffers of the original shapes",
        hint="change the body only",
    )


def _dumper(dump: Dump, number: int):  # type: ignore[no-untyped-def]
    stages = {name: f"{FIRST_LOWERING + position}-{name}" for position, (name, _) in enumerate(PASSES)}

    def observe(event: PassEvent[Func]) -> None:
        text = print_func(event.after) if event.changed else "(unchanged)"
        dump.kernel(stages[event.name], number, text)

    return observe
