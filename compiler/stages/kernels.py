"""Each unique piece of work -> one kernel: schedule it, lower it, print it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Self

from compiler.core.diagnostics import BadInputError, TkError
from compiler.core.passes import PassEvent, run_passes
from compiler.graph.convert import LaidOut
from compiler.graph.edit import described
from compiler.graph.fuse import Group
from compiler.graph.ir import Node, Value
from compiler.graph.memory import SAMPLE_ALIGNMENT
from compiler.graph.to_loops import Derived, GroupForms, GroupFunc, chosen_form, form_decision
from compiler.loops.ir import CONSTANT, EXTENTS, IN_PLACE, OPERANDS, SAMPLES, SYMBOLS, Buffer, Func
from compiler.loops.layout import Layout
from compiler.loops.queries import static_shape
from compiler.loops.text import parse_func, print_func
from compiler.loops.verify import Stage, verify_func, verifying
from compiler.lower import LEADS_TO, PASSES, lowering
from compiler.render.cstyle import render_kernel
from compiler.render.device import render_launches
from compiler.render.launch import Launch
from compiler.schedule.chooser import RecordingChooser
from compiler.schedule.layout_changes import all_layouts, layouts_of
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule, replay
from compiler.schedule.trace import Trace
from compiler.stages.constants import Maps
from compiler.stages.dump import LOOPS, LOWER, RENDER, SCHEDULE, TRACE, Edit
from compiler.stages.forms import FormChoosers, work_of
from compiler.stages.job import CompileJob
from compiler.stages.optional import FUSED_WINOGRAD, SCHEDULE_RULES
from compiler.stages.parts import Parts
from compiler.stages.states import states_of
from compiler.stages.tuned import Decisions, Tuned, no_records
from compiler.stages.workload import Work, Workload
from compiler.targets.target import Target


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel from its definition to its text.

    func: the work, before scheduling. layouts: of its parameters that are not row-major. trace: how it was
    scheduled. lowered: what was printed; its extra parameters are workspace. text: the source file, or its
    part of the module of a device. launches: what a device runs for one call of it. workload, decisions:
    what it was made for, and how its schedule was chosen. record: the id of the tuning record behind that.
    """

    number: int
    func: Func
    layouts: Mapping[str, Layout]
    trace: Trace
    scheduled: Func
    lowered: Func
    text: str
    scratch_bytes: int
    workload: Workload
    launches: tuple[Launch, ...] = ()
    decisions: Decisions = field(default_factory=dict)
    record: str = ""

    @property
    def workspace(self) -> tuple[int, ...]:
        """Bytes of each workspace parameter but counters, in order."""
        return tuple(_bytes_of(item) for item in self.lowered.workspace if item not in self.lowered.counters)

    @property
    def counters(self) -> tuple[int, ...]:
        """Bytes of each parameter behind them that is zero between calls."""
        return tuple(map(_bytes_of, self.lowered.counters))

    def maps(self, param: int) -> Maps:
        """The index maps that lead from the logical to the physical layout of a parameter."""
        name = self.func.params[param].name
        return tuple(item.index_map for item in layouts_of(self.scheduled, name))


def _bytes_of(buffer: Buffer) -> int:
    return (prod(static_shape(buffer)) * buffer.dtype.bits + 7) // 8


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call: which kernel, for which group, on which tensors.

    derived: those tensors that are computed from constants at compile time.
    """

    kernel: int
    group: Group
    values: tuple[Value, ...]
    derived: Mapping[Value, Derived] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel to make: its work in the form that was chosen, and what is known of its workload."""

    work: Work
    workload: Workload
    tuned: Tuned = field(default_factory=Tuned)

    @property
    def form(self) -> dict[str, tuple[int, ...]]:
        """The form that was chosen, as a decision; empty where there is one form only."""
        works = [work for _, work in self.workload.forms]
        return {self.workload.decision: (works.index(self.work),)} if len(works) > 1 else {}

    @classmethod
    def of(cls, func: Func, layouts: Mapping[str, Layout]) -> Self:
        """The task of a function in its only form, of which nothing is known."""
        return cls((func, tuple(layouts.items())), Workload.of(func, layouts))


Known = dict[Work, tuple[int, KernelTask]]
"""The kernels of a library by their work: numbers and tasks."""


def library_steps(laid_out: Sequence[LaidOut], job: CompileJob) -> tuple[list[KernelTask], list[list[Step]]]:
    """The unique pieces of work of all graphs, each to be one kernel, and each graph's calls in order."""
    known: Known = {}
    steps = [model_steps(one, job, known)[1] for one in laid_out]
    return _tasks(known), steps


def model_steps(
    laid_out: LaidOut, job: CompileJob, known: Known | None = None
) -> tuple[list[KernelTask], list[Step]]:
    """The unique pieces of work of a graph, each to be one kernel, and the calls of these in order.

    `known` has the work of other graphs of the library with its numbers; what is new is added.
    """
    known = {} if known is None else known
    makers = _Makers(laid_out, job)
    steps: list[Step] = []
    for group in laid_out.computed:
        made, task = makers.of(group)
        number, _ = known.setdefault(task.work, (len(known), task))
        steps.append(Step(number, group, made.values, made.derived))
    return _tasks(known), steps


def _tasks(known: Known) -> list[KernelTask]:
    return [task for _, task in known.values()]


class _Makers:
    """From a group to the function that its kernel computes, in the form that is known or chosen for it."""

    def __init__(self, laid_out: LaidOut, job: CompileJob) -> None:
        self._laid_out, self._job = laid_out, job
        facts, constants = job.target.facts, laid_out.fused.graph.constants
        self._forms = GroupForms(
            constants,
            laid_out.layouts,
            pieces=not facts.binds_threads,
            searched=job.records is not no_records,
            threads=facts.binds_threads and job.does_whole(FUSED_WINOGRAD),
        )
        self._choosers = FormChoosers(laid_out.layouts, facts)
        self._grown = {state.present for state in states_of(laid_out)}
        sizes = laid_out.fused.graph.symbols and (job.target.device is None or facts.binds_threads)
        self._parts = Parts(laid_out) if sizes else None
        self._tuned: dict[Workload, Tuned] = {}

    def of(self, group: Group) -> tuple[GroupFunc, KernelTask]:
        """The function, and the task of making its kernel."""
        forms = self._forms.of(group)
        finished = {name: self._finished(group, made) for name, made in forms.items()}
        layouts, job = self._laid_out.layouts, self._job
        works = tuple((name, work_of(made, layouts)) for name, made in finished.items())
        workload = Workload(works, form_decision(group) if len(works) > 1 else "")
        if workload not in self._tuned:
            self._tuned[workload] = job.records(workload)
        tuned = self._tuned[workload]
        name = chosen_form(group, finished, self._choosers.of(job.chooser_of(tuned)))
        if len(forms) > 1 and self._parts is not None:
            self._finished(group, forms[name])  # what others read of its result is this form's
        return finished[name], KernelTask(dict(works)[name], workload, tuned)

    def _finished(self, group: Group, made: GroupFunc) -> GroupFunc:
        """The function with all that the model around it says of its tensors."""
        if self._parts is not None:
            made = _of_sizes(self._parts.add(group, made), self._laid_out, self._parts)
        made = _of_samples(made, self._laid_out, on_device=self._job.target.device is not None)
        return _in_place(made, group.nodes[-1]) if group.nodes[-1].output in self._grown else made


def _of_sizes(made: GroupFunc, laid_out: LaidOut, parts: Parts) -> GroupFunc:
    """The function with how much of each axis of its tensors a run has, as far as they are row-major."""
    layouts, first = laid_out.layouts, len(made.values) - made.func.outputs
    rows = [
        (number, axis, extent.offset, extent.divisor, *extent.factors)
        for number, value in enumerate(made.values)
        if value not in made.derived and (value not in layouts or not layouts[value].maps)
        for axis, extent in parts.of(value).items()
    ]
    results = tuple(row for row in rows if row[0] >= first)
    sums = any(block.is_reduction for block in made.func.blocks())
    operands = tuple(row for row in rows if row[0] < first and sums)
    ranges = tuple((item.minimum, item.maximum) for item in laid_out.fused.graph.symbols)
    attrs = (*made.func.attrs, (SYMBOLS, ranges), (EXTENTS, results), (OPERANDS, operands))
    return replace(made, func=made.func.replace(attrs=attrs)) if results or operands else made


def _in_place(made: GroupFunc, node: Node) -> GroupFunc:
    """The function that finds its result begun: with the first operand of its last node."""
    attrs = (*made.func.attrs, (IN_PLACE, made.values.index(node.inputs[0])))
    return replace(made, func=made.func.replace(attrs=attrs))


def _of_samples(made: GroupFunc, laid_out: LaidOut, *, on_device: bool) -> GroupFunc:
    """The function with the way from one sample of a free batch to the next in each of its tensors."""
    graph, roots = laid_out.fused.graph, laid_out.roots
    if graph.batch is None:
        return made
    shared = graph.constants.keys() | made.derived.keys() | {*graph.inputs[len(graph.operands) :]}
    memory = [roots[value].parent if value in roots else value for value in made.values]
    alignment = SAMPLE_ALIGNMENT if on_device else 1
    steps = tuple(0 if root in shared else laid_out.elements_apart(root, alignment) for root in memory)
    attrs = (*made.func.attrs, (SAMPLES, (graph.batch.largest, *steps)))
    return replace(made, func=made.func.replace(attrs=attrs))


_SHOWN = 4


def kernel_name(group: Group) -> str:
    """A kernel as passes name it that are applied to it: its operators and their ONNX nodes."""
    shown = [described(node) for node in group.nodes[:_SHOWN]]
    more = len(group.nodes) - len(shown)
    return " + ".join([*shown, f"{more} more"] if more else shown)


def make_kernel(number: int, task: KernelTask, job: CompileJob, name: str = "") -> Kernel | None:
    """Schedule, lower and print the work of a task; an edit takes the place of what its stage makes.

    `name` is what passes call it that are applied to it. None where the job ends before the source text.
    With `debug` the program is verified after every pass. Raises BadInputError when the edited text does not
    fit, and InternalError for what is found then.
    """
    dump, check = job.dump, job.settings.debug
    func, layouts = task.work[0], dict(task.work[1])
    if edit := job.edit_of(LOOPS, number):
        func = _edited(func, edit, "imported")
    if check:
        verify_func(func, "imported", after="loops")
    if dump:
        dump.kernel(LOOPS, number, print_func(func))
    if job.last == "loops":
        return None
    chooser = RecordingChooser(job.chooser_of(task.tuned))
    trace, scheduled = _schedule(number, func, layouts, job, chooser, name)
    if check:
        verify_func(scheduled, "scheduled", after="schedule")
    if dump:
        dump.kernel(TRACE, number, trace.to_json(), ".json")
        dump.kernel(SCHEDULE, number, print_func(scheduled))
    if job.last == "schedule":
        return None
    lowered = _lowered(number, scheduled, job, name)
    if job.last == "lower":
        return None
    source = print_kernel(number, lowered, job.target)
    edit = job.edit_of(RENDER, number)
    text = edit.text if edit else source.text
    dump.kernel(RENDER, number, text, ".cpp")
    return Kernel(
        number=number,
        func=func,
        layouts=layouts,
        trace=trace,
        scheduled=scheduled,
        lowered=lowered,
        text=text,
        scratch_bytes=source.scratch_bytes,
        launches=source.launches,
        workload=task.workload,
        decisions=task.form | chooser.decisions,
        record=task.tuned.record,
    )


def _schedule(
    number: int,
    func: Func,
    layouts: Mapping[str, Layout],
    job: CompileJob,
    chooser: RecordingChooser,
    name: str,
) -> tuple[Trace, Func]:
    rules = takes_rules(job, name)
    facts, custom = job.target.facts, job.target.plugins.rules
    schedule = schedule_func(func, layouts, facts, chooser, rules=rules, custom=custom)
    if edit := job.edit_of(TRACE, number):
        replayed = _replayed(func, layouts, edit)
        if replayed.trace != schedule.trace:  # nobody decided on it
            chooser.decisions.clear()
        schedule = replayed
    if edit := job.edit_of(SCHEDULE, number):
        return schedule.trace, _edited(schedule.func, edit, "scheduled")
    return schedule.trace, schedule.func


def _lowered(number: int, scheduled: Func, job: CompileJob, name: str) -> Func:
    check, custom = job.settings.debug, job.target.plugins.passes
    stages = {**LEADS_TO, **{step.name: LEADS_TO[step.after] for step in custom}}
    observers = [
        *([_dumper(job, number)] if job.dump else []),
        *([verifying(stages)] if check else []),
    ]
    passes = lowering(job.target.facts, job.options.without, custom)
    lowered = run_passes(passes, scheduled, observers, job.limits, name)
    if check:
        verify_func(lowered, "flat", after="lower")
    return lowered


def takes_rules(job: CompileJob, name: str) -> bool:
    """Whether a kernel is scheduled by the rules, which counts as an application of them."""
    applications = job.limits.of(SCHEDULE_RULES)
    takes = job.does(SCHEDULE_RULES) and applications.are_left
    if takes:
        applications.add(name)
    return takes


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """A kernel as text: a file of its own, or for a device a part of the model's module."""

    text: str
    scratch_bytes: int = 0
    launches: tuple[Launch, ...] = ()


def print_kernel(number: int, lowered: Func, target: Target) -> PrintedKernel:
    """The source of a lowered kernel."""
    if target.device is not None:
        made = render_launches(lowered, number, target.vocabulary, target.facts)
        return PrintedKernel(made.text, launches=made.launches)
    kernel = render_kernel(lowered, number, target.vocabulary, target.facts)
    return PrintedKernel(f"{target.vocabulary.prelude}\n{kernel.text}", kernel.scratch_bytes)


@dataclass(frozen=True, slots=True)
class ReplayedKernel:
    """What a recorded trace makes of a recorded function: as in `Kernel`."""

    scheduled: Func
    lowered: Func
    text: str


def replay_kernel(number: int, func: Func, trace: Trace, target: Target) -> ReplayedKernel:
    """The kernel that a recorded trace gives; raises ScheduleError when the trace does not fit."""
    scheduled = replay(trace, func).func
    lowered = run_passes(lowering(target.facts, custom=target.plugins.passes), scheduled)
    return ReplayedKernel(scheduled, lowered, print_kernel(number, lowered, target).text)


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
        before = "; ".join(item.text for item in wanted) or "row-major"
        made = tuple(entry.index_map for entry in layouts_of(schedule.func, item.name))
        if item.scope != CONSTANT and made != wanted:
            raise BadInputError(
                f"the edited trace changes the layout of `{item.name}`",
                where=str(edit.path),
                why=f"other kernels keep this tensor as {before}",
                hint="leave the steps that transform parameters other than constants as they are",
            )
    _verify_edited(schedule.func, "scheduled", edit)
    return schedule


def _verify_edited(func: Func, stage: Stage, edit: Edit) -> None:
    try:
        verify_func(func, stage, edited=True)
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


def _dumper(job: CompileJob, number: int) -> Callable[[PassEvent[Func]], None]:
    places = {name: position for position, (name, _) in enumerate(PASSES, 1)}
    places |= {step.name: places[step.after] for step in job.target.plugins.passes}
    stages = {name: f"{LOWER}/{position:02}-{name}" for name, position in places.items()}

    def observe(event: PassEvent[Func]) -> None:
        if event.changed:
            job.dump.kernel(stages[event.name], number, print_func(event.after))

    return observe
