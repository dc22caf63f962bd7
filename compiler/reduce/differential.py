"""The first step of the compiler after which the meaning is another one.

Every stage has an interpreter: graphs are evaluated with the records' numpy references, loops by the
interpreter of the loop IR, which defines what they mean. A model is taken through the stages, and what each
step makes is run before and after it on the same inputs; the first step whose result differs is to blame.
Where all agree it is what has no interpreter: the text, the C++ compiler, the plan, the runtime.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compiler.core.files import private_directory
from compiler.core.forked import Tell
from compiler.core.passes import Limits, PassEvent, run_passes
from compiler.frontend.onnx import import_model
from compiler.graph.fuse import FusionOptions, fuse
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Value
from compiler.graph.rewrites import rewrite_graph
from compiler.graph.to_loops import FORM
from compiler.loops.evaluate import evaluate_func
from compiler.loops.interp import interpret
from compiler.loops.ir import Func
from compiler.lower import lowering
from compiler.reduce.applications import Counts, first_wrong_application
from compiler.reduce.ddmin import smallest_prefix
from compiler.reduce.report import Culprit
from compiler.reduce.rules import WatchedSteps
from compiler.reduce.runs import Runs, differs
from compiler.reduce.trial import Setup
from compiler.runtime.tensors import Array
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import replay
from compiler.schedule.trace import Instruction, Trace
from compiler.stages.groups import fused_groups, laid_out_groups
from compiler.stages.job import CompileJob
from compiler.stages.kernels import KernelTask, Step, model_steps
from compiler.stages.optional import (
    FUSION,
    GRAPH_REWRITE,
    LAYOUT_CHOICE,
    LOWERING_PASS,
    SCHEDULE_RULES,
    SCHEDULING,
)
from compiler.targets import Target
from compiler.verify.interpreted import pack_inputs, run_flat, run_scheduled, unpack_outputs
from compiler.verify.single_kernel import SingleKernel

OPERATOR, RENDER, CXX = "operator", "render", "C++ compiler"
"""Kinds of parts that are no passes."""
ALONE = "a kernel by itself"
"""What is told before machine code is called."""
SMALLEST = "the smallest model"
"""As it is called where the applications of a pass are counted."""


def first_difference(
    model: Path,
    feeds: Mapping[str, Array],
    values: Mapping[str, Array],
    setup: Setup,
    tell: Tell,
    seconds: float | None = None,
) -> Culprit | None:
    """What is to blame for a wrong result of `model`; None where every step keeps the meaning.

    `values` are what the reference makes, by their names in the model, its outputs among them. With `seconds`
    a run that takes longer counts as one that never ends.
    """
    job = CompileJob.of(model, setup.options(model.with_suffix(".so")))
    tell("import")
    graph = import_model(model)
    walk = _Walk(job, feeds, tell, Runs(seconds))
    return walk.imported(graph, values) or walk.rewritten(graph) or walk.compiled()


@dataclass(slots=True)
class _Walk:
    """The stages of one model; `graph` is the canonical one, once it is known."""

    job: CompileJob
    feeds: Mapping[str, Array]
    tell: Tell
    runs: Runs
    graph: Graph | None = None

    def imported(self, graph: Graph, values: Mapping[str, Array]) -> Culprit | None:
        """Whether an operator's own reference is another one than the reference's."""
        wrong: list[Value] = []

        def observe(value: Value, array: Array) -> None:
            if value.name in values and differs(array, values[value.name]):
                wrong.append(value)

        evaluate(graph, self.feeds, observe)
        if not wrong:
            return None
        node = graph.producers[wrong[0]]
        evidence = "the operator's own reference in numpy differs from the reference's result"
        return Culprit(OPERATOR, node.op.name, evidence)

    def rewritten(self, graph: Graph) -> Culprit | None:
        """The first rewrite after which the graph has another meaning."""
        self.tell("graph rewrites")
        changed: list[tuple[str, Graph]] = []

        def keep(event: PassEvent[Graph]) -> None:
            if event.changed:
                changed.append((event.name, event.after))

        facts, without = self.job.target.facts, self.job.options.without
        self.graph = rewrite_graph(graph, [keep], blocks=facts.binds_threads, without=without)
        wanted = evaluate(graph, self.feeds)
        name = self.runs.first_bad(changed, lambda after: evaluate(after, self.feeds), wanted)
        if name is None:
            return None
        evidence = "the graph evaluates to something else after it than before it"
        return Culprit(GRAPH_REWRITE, name, evidence, applications=self._application(graph, name, wanted))

    def _application(self, graph: Graph, name: str, wanted: Mapping[str, Array]) -> tuple[str, ...]:
        """The first application of a rewrite after which the graph means something else."""
        facts, without = self.job.target.facts, self.job.options.without

        def rewritten(most: int | None) -> tuple[Graph, Limits]:
            kept: list[Graph] = []
            limits = Limits({} if most is None else {name: most})
            observe = [lambda event: kept.append(event.after) if event.name == name else None]
            rewrite_graph(graph, observe, blocks=facts.binds_threads, without=without, limits=limits)
            return kept[0], limits

        def shows(most: int) -> bool:
            return self.runs.differ(lambda: evaluate(rewritten(most)[0], self.feeds), wanted)

        def count(most: int | None) -> Counts:
            return {name: (made.count, made.last) for name, made in rewritten(most)[1].made.items()}

        found = first_wrong_application(name, shows, count)
        return () if found is None else (found.text(SMALLEST),)

    def compiled(self) -> Culprit | None:
        """The first step of a kernel after which it computes something else than its operators."""
        assert self.graph is not None
        self.tell("fusion")
        fused = fused_groups(self.graph, self.job)
        laid_out = laid_out_groups(fused, self.job)
        known: dict[Value, Array] = {}
        wanted = evaluate(self.graph, self.feeds)
        moved = laid_out.fused.graph
        if self.runs.differ(lambda: evaluate(moved, self.feeds, known.__setitem__), wanted):
            return Culprit(LAYOUT_CHOICE, "insert_copies", "the graph means something else with copies in it")
        known.update(zip(moved.inputs, (self.feeds[name] for name in moved.input_names), strict=True))
        known.update(moved.constants)
        tasks, steps = model_steps(laid_out, self.job)
        for number, step in enumerate(steps):
            self.tell(f"kernel {number}")
            found = _Kernel(tasks[step.kernel], step, known, self).culprit()
            if found is not None:
                return found
        return None


@dataclass(slots=True)
class _Kernel:
    """One kernel of a model; `known` are the values of all tensors by the graph's meaning."""

    task: KernelTask
    step: Step
    known: Mapping[Value, Array]
    walk: _Walk

    def culprit(self) -> Culprit | None:
        """What makes this kernel wrong, if anything does."""
        func, layouts = self.task.work
        inputs, wanted = self._arrays(func)
        runs = self.walk.runs
        if runs.differ(lambda: interpret(func, inputs), wanted):
            return self._form_or_fusion(func)
        job = self.walk.job
        rules, watched = job.does(SCHEDULE_RULES), WatchedSteps()
        chooser = job.chooser_of(self.task.tuned)
        facts, custom = job.target.facts, job.target.plugins.rules
        schedule = schedule_func(
            func, dict(layouts), facts, chooser, rules=rules, observe=watched, custom=custom
        )
        scheduled = schedule.func
        if runs.differ(lambda: run_scheduled(scheduled, inputs, races=True), wanted):
            found = _of_schedule(func, schedule.trace, runs, inputs, wanted)
            step = schedule.trace.instructions[found.number - 1]
            return Culprit(SCHEDULING, step.name, found.evidence, rule=watched.rule(step))
        changed: list[tuple[str, Func]] = []

        def keep(event: PassEvent[Func]) -> None:
            if event.changed:
                changed.append((event.name, event.after))

        passes = lowering(job.target.facts, job.options.without, job.target.plugins.passes)
        lowered = run_passes(passes, scheduled, [keep])
        name = runs.first_bad(changed, lambda after: run_flat(scheduled, after, inputs), wanted)
        if name is not None:
            return Culprit(LOWERING_PASS, name, f"after it the kernel {runs.fault}, before it not")
        return self._of_text(scheduled, lowered, inputs, wanted)

    def _arrays(self, func: Func) -> tuple[dict[str, Array], dict[str, Array]]:
        """What the kernel reads, and what it is to write, by its parameters' names."""
        step, constants = self.step, self.known
        derived = {
            value: evaluate_func(made.func, [constants[item] for item in made.inputs])[0]
            for value, made in step.derived.items()
        }
        arrays = [derived[value] if value in derived else self.known[value] for value in step.values]
        named = {item.name: array for item, array in zip(func.params, arrays, strict=True)}
        outputs = {item.name for item in func.results}
        return (
            {name: array for name, array in named.items() if name not in outputs},
            {name: array for name, array in named.items() if name in outputs},
        )

    def _form_or_fusion(self, func: Func) -> Culprit:
        """One of the operators by itself, else their being joined."""
        nodes = self.step.group.nodes
        form = dict(func.attrs).get(FORM)
        anchor = self.step.group.anchor
        if len(nodes) == 1:
            return _of_form(nodes[0].op.name, form)
        graph, job = self.walk.graph, self.walk.job
        assert graph is not None
        alone = laid_out_groups(fuse(graph, FusionOptions(most_nodes=1)), job)
        known: dict[Value, Array] = {}
        evaluate(alone.fused.graph, self.walk.feeds, known.__setitem__)
        known.update(self.known)
        tasks, steps = model_steps(alone, job)
        for step in steps:
            single = _Kernel(tasks[step.kernel], step, known, self.walk)
            one = single.task.work[0]
            inputs, wanted = single._arrays(one)
            if self.walk.runs.differ(partial(interpret, one, inputs), wanted):
                return _of_form(step.group.nodes[-1].op.name, dict(one.attrs).get(FORM))
        if form is not None and anchor is not None:
            return _of_form(anchor.op.name, form)
        joined = " + ".join(node.op.name for node in nodes)
        return Culprit(
            FUSION, f"fuse ({joined})", "each operator's loops are right by themselves, not joined"
        )

    def _of_text(
        self, scheduled: Func, lowered: Func, inputs: Mapping[str, Array], wanted: Mapping[str, Array]
    ) -> Culprit | None:
        """Whether the kernel's machine code computes something else than its loops."""
        target = self.walk.job.target
        if not is_callable(target):
            return None
        self.walk.tell(ALONE)
        packed = pack_inputs(scheduled, inputs)

        def run(*flags: str) -> Mapping[str, Array]:
            # A place of its own: a library that was loaded from a path before would be taken for the new one.
            with private_directory("tk-kernel") as directory:
                return unpack_outputs(scheduled, SingleKernel(lowered, target, directory, flags)(packed))

        if not self.walk.runs.differ(run, wanted):
            return None
        if self.walk.runs.differ(lambda: run("-O0"), wanted):
            return Culprit(RENDER, "the text of a kernel", "it computes something else than its loops")
        evidence = "the text is right with -O0 and wrong with optimisation: its meaning may be undefined"
        return Culprit(CXX, "optimisation of a kernel", evidence)


def is_callable(target: Target) -> bool:
    """Whether kernels are code of this machine's processor, that can be called by itself."""
    return target.device is None and target.machine in ("", platform.machine())


def _of_form(op: str, form: object) -> Culprit:
    name = f"{op} ({form})" if form else op
    return Culprit(OPERATOR, name, "the loops of the operator's form differ from its reference in numpy")


@dataclass(frozen=True, slots=True)
class _WrongStep:
    """A step of a trace by its number from one, and what was seen of it."""

    number: int
    evidence: str


def _of_schedule(
    func: Func, trace: Trace, runs: Runs, inputs: Mapping[str, Array], wanted: Mapping[str, Array]
) -> _WrongStep:
    """The step of the trace after which the kernel computes something else."""
    steps = trace.instructions

    def is_bad(count: int) -> bool:
        part = Trace(steps[:count])
        return runs.differ(lambda: run_scheduled(replay(part, func).func, inputs, races=True), wanted)

    number = smallest_prefix(len(steps), is_bad)
    evidence = f"step {number} of {len(steps)} of the kernel's trace: {_step_text(steps[number - 1])}"
    return _WrongStep(number, evidence)


def _step_text(item: Instruction) -> str:
    return f"{item.name}({', '.join(f'{key}={value}' for key, value in item.arguments)})"[:200]
