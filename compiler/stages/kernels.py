"""One unique piece of work -> one kernel: schedule it, lower it, print it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

from compiler.core.diagnostics import BadInputError, TkError
from compiler.core.passes import PassEvent, run_passes
from compiler.graph.fuse import Group
from compiler.graph.ir import Value
from compiler.graph.to_loops import Derived
from compiler.loops.ir import CONSTANT, Func
from compiler.loops.layout import Layout
from compiler.loops.queries import static_shape
from compiler.loops.text import parse_func, print_func
from compiler.loops.verify import Stage, verify, verifying
from compiler.lower import LEADS_TO, PASSES, lowering
from compiler.render.cstyle import render_kernel
from compiler.render.device import Launch, render_launches
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.layouts import all_layouts, layouts_of
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import Trace
from compiler.stages.constants import Maps
from compiler.stages.dump import LOOPS, LOWER, RENDER, SCHEDULE, TRACE, Dump, Edit
from compiler.targets.target import Target


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel from its definition to its text.

    func: the work, before scheduling. layouts: of its parameters that are not row-major. trace: how it was
    scheduled. lowered: what was printed; its extra parameters are workspace. text: the source file, or its
    part of the module of a device. launches: what a device runs for one call of it.
    """

    number: int
    func: Func
    layouts: Mapping[str, Layout]
    trace: Trace
    scheduled: Func
    lowered: Func
    text: str
    scratch_bytes: int
    launches: tuple[Launch, ...] = ()

    @property
    def workspace(self) -> tuple[int, ...]:
        """Bytes of each workspace parameter, in order."""
        buffers = self.lowered.workspace
        return tuple((prod(static_shape(item)) * item.dtype.bits + 7) // 8 for item in buffers)

    def maps(self, param: int) -> Maps:
        """The index maps that lead from the logical to the physical layout of a parameter."""
        name = self.func.params[param].name
        return tuple(item.index_map.text for item in layouts_of(self.scheduled, name))


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call: which kernel, for which group, on which tensors.

    derived: those tensors that are computed from constants at compile time.
    """

    kernel: int
    group: Group
    values: tuple[Value, ...]
    derived: Mapping[Value, Derived] = field(default_factory=dict)


def make_kernel(
    number: int,
    func: Func,
    layouts: Mapping[str, Layout],
    target: Target,
    dump: Dump,
    edit: Edit | None,
    *,
    last: str = "render",
    check: bool = False,
) -> Kernel | None:
    """Schedule, lower and print `func`; an edit takes the place of what its stage would have made.

    None where `last` is a stage before the source text. `check` verifies the program after every pass. Raises
    BadInputError when the edited text does not fit, and InternalError for what `check` finds.
    """
    func = _loops(number, func, edit)
    if check:
        verify(func, "imported", after="loops")
    if dump:
        dump.kernel(LOOPS, number, print_func(func))
    if last == "loops":
        return None
    trace, scheduled = _schedule(number, func, layouts, target, edit)
    if check:
        verify(scheduled, "scheduled", after="schedule")
    if dump:
        dump.kernel(TRACE, number, trace.to_json(), ".json")
        dump.kernel(SCHEDULE, number, print_func(scheduled))
    if last == "schedule":
        return None
    lowered = _lowered(number, scheduled, target, dump, check=check)
    if last == "lower":
        return None
    source = print_kernel(number, lowered, target)
    text = source.text
    if edit is not None and edit.applies(RENDER, number):
        text = edit.text
    dump.kernel(RENDER, number, text, ".cpp")
    return Kernel(
        number, func, layouts, trace, scheduled, lowered, text, source.scratch_bytes, source.launches
    )


def _lowered(number: int, scheduled: Func, target: Target, dump: Dump, *, check: bool) -> Func:
    observers = [*([_dumper(dump, number)] if dump else []), *([verifying(LEADS_TO)] if check else [])]
    lowered = run_passes(lowering(target.facts), scheduled, observers)
    if check:
        verify(lowered, "flat", after="lower")
    return lowered


@dataclass(frozen=True, slots=True)
class Source:
    """A kernel as text: a file of its own, or for a device a part of the model's module."""

    text: str
    scratch_bytes: int = 0
    launches: tuple[Launch, ...] = ()


def print_kernel(number: int, lowered: Func, target: Target) -> Source:
    """The source of a lowered kernel."""
    if target.device is not None:
        made = render_launches(lowered, number, target.vocabulary, target.facts)
        return Source(made.text, launches=made.launches)
    kernel = render_kernel(lowered, number, target.vocabulary, target.facts)
    return Source(f"{target.vocabulary.prelude}\n{kernel.text}", kernel.scratch_bytes)


def replay_kernel(number: int, func: Func, trace: Trace, target: Target) -> str:
    """The source file that a recorded trace gives; raises ScheduleError when the trace does not fit."""
    lowered = run_passes(lowering(target.facts), replay(trace, func).func)
    return print_kernel(number, lowered, target).text


def _loops(number: int, func: Func, edit: Edit | None) -> Func:
    if edit is None or not edit.applies(LOOPS, number):
        return func
    return _edited(func, edit, "imported")


def _schedule(
    number: int, func: Func, layouts: Mapping[str, Layout], target: Target, edit: Edit | None
) -> tuple[Trace, Func]:
    if edit is not None and edit.applies(TRACE, number):
        schedule = _replayed(func, layouts, edit)
    else:
        schedule = schedule_func(func, layouts, target.facts, AnalyticChooser())
    if edit is not None and edit.applies(SCHEDULE, number):
        return schedule.trace, _edited(schedule.func, edit, "scheduled")
    return schedule.trace, schedule.func


def _replayed(func: Func, layouts: Mapping[str, Layout], edit: Edit) -> Schedule:
    """What an edited trace makes; the tensors between kernels keep the layouts that the model chose."""
    try:
        schedule = replay(Trace.from_json(edit.text), func)
    except TkError as error:
        raise BadInputError(
            f"the edited trace cannot be applied: {error.what}",
            where=str(edit.path),
            why=error.why,
            hint=error.hint,
        ) from error
    for item in func.params:
        wanted = layouts[item.name].maps if item.name in layouts else ()
        made = tuple(entry.index_map.text for entry in layouts_of(schedule.func, item.name))
        if item.scope != CONSTANT and made != wanted:
            raise BadInputError(
                f"the edited trace changes the layout of `{item.name}`",
                where=str(edit.path),
                why=f"other kernels keep this tensor as {'; '.join(wanted) or 'row-major'}",
                hint="leave the steps that transform parameters other than constants as they are",
            )
    _verify_edited(schedule.func, "scheduled", edit)
    return schedule


def _verify_edited(func: Func, stage: Stage, edit: Edit) -> None:
    try:
        verify(func, stage, edited=True)
    except BadInputError as error:
        raise BadInputError(error.what, where=str(edit.path), why=error.why, hint=error.hint) from error


def _edited(original: Func, edit: Edit, stage: Stage) -> Func:
    """The edited function, if it is valid and can stand in for the original: same parameters and layouts."""
    edited = parse_func(edit.text, str(edit.path))
    _verify_edited(edited, stage, edit)
    same = edited.params == original.params and edited.outputs == original.outputs
    if same and all_layouts(edited) == all_layouts(original):
        return edited
    raise BadInputError(
        "the edited function has other parameters or layouts than the one it replaces",
        where=str(edit.path),
        why="the model around it passes buffers of the original shapes",
        hint="change the body only",
    )


def _dumper(dump: Dump, number: int) -> Callable[[PassEvent[Func]], None]:
    stages = {name: f"{LOWER}/{position:02}-{name}" for position, (name, _) in enumerate(PASSES, 1)}

    def observe(event: PassEvent[Func]) -> None:
        if event.changed:
            dump.kernel(stages[event.name], number, print_func(event.after))

    return observe
