"""Where every tensor of a model lies: input, output, constants or arena; the table that the runtime executes.

Views share the memory of what they view, parts of a concatenation lie inside its result. A view of a model
output's memory is that output, so the kernel that makes it writes to the caller's buffer directly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from compiler.core.diagnostics import InternalError
from compiler.graph.branches import Branches, Touch, dependencies, one_branch
from compiler.graph.convert import LaidOut
from compiler.graph.ir import Graph, Value
from compiler.graph.memory import NO_MEMORY, Lifetime, MemoryPlan, align, alive_together, plan_memory
from compiler.render.host import (
    ArgKind,
    HostPlan,
    PlanArg,
    PlanGuard,
    PlanSpecialisation,
    PlanStep,
    PlanSymbol,
)
from compiler.stages.branches import Work, possible_branches
from compiler.stages.constants import ConstantPool, GraphConstants
from compiler.stages.device import device_plan, most_samples
from compiler.stages.dump import PLAN
from compiler.stages.guards import Guard, guards_of
from compiler.stages.job import CompileJob
from compiler.stages.kernels import Kernel, Step
from compiler.stages.optional import PARALLEL_BRANCHES, SHARE_MEMORY
from compiler.stages.plan_tensors import plan_inputs, plan_outputs, plan_states, plan_symbols
from compiler.stages.specialised import Imported
from compiler.stages.states import states_of
from compiler.stages.text import plan_text
from compiler.stages.tuned import BranchChoice


@dataclass(frozen=True, slots=True)
class Use:
    """One step of the program: the tensors it reads and writes, and bytes of workspace that it needs.

    counters: of each workspace behind the others that is zero between runs.
    """

    reads: tuple[Value, ...]
    writes: tuple[Value, ...]
    workspace: tuple[int, ...] = ()
    counters: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Storage:
    """Where each tensor lies, and each step's workspaces, and the memory plan that this comes from.

    samples: the plan of what there is once for each sample of a free batch, which lies behind `plan`. As all
    tensors in it grow alike, so do the places: they are multiples of the batch. lifetimes: of all keys of
    both plans, tensors and (step, number of its workspace). counter_bytes: of all steps, for each sample.
    """

    slots: Mapping[Value, PlanArg]
    workspace: tuple[tuple[PlanArg, ...], ...]
    plan: MemoryPlan
    samples: MemoryPlan = NO_MEMORY
    lifetimes: tuple[Lifetime, ...] = ()
    counter_bytes: int = 0


def plan_storage(
    laid_out: LaidOut,
    steps: Sequence[Use],
    *,
    shared: bool = True,
    together: bool = False,
    branches: Branches | None = None,
) -> Storage:
    """Give every tensor that a step touches its slot; `shared`: those not alive at once share memory.

    together: a step works on all samples of a free batch at the same time, each of which needs workspaces.
    branches: of the steps, where they need not follow each other; then no batch is free.
    """
    graph, roots = laid_out.fused.graph, laid_out.roots
    fixed = {value: PlanArg(ArgKind.INPUT, number) for number, value in enumerate(graph.inputs)}
    for number, value in enumerate(graph.outputs):
        fixed.setdefault(roots[value].parent if value in roots else value, PlanArg(ArgKind.OUTPUT, number))
    spans: dict[Value, list[int]] = {}
    for number, step in enumerate(steps):
        for value in (*step.reads, *step.writes):
            root = roots[value].parent if value in roots else value
            if root not in fixed and root not in graph.constants:
                spans.setdefault(root, []).append(number)
    tensors = [
        Lifetime(root, _bytes(laid_out, root), min(numbers), max(numbers)) for root, numbers in spans.items()
    ]
    work = [
        Lifetime((number, n), size, number, number)
        for number, step in enumerate(steps)
        for n, size in enumerate(step.workspace)
    ]
    if not shared:
        tensors, work = (
            [replace(item, first=0, last=len(steps)) for item in part] for part in (tensors, work)
        )
    slots = dict(fixed)
    if branches is not None and branches.count > 1 and shared:
        uses = [sum(1 << number for number in {*numbers}) for numbers in spans.values()]
        uses += [1 << item.first for item in work]
        plan, samples = plan_memory([*tensors, *work], alive_together(uses, branches)), NO_MEMORY
        slots.update({root: PlanArg(ArgKind.ARENA, 0, plan.offsets[root]) for root in spans})
    elif graph.batch is None:
        plan, samples = plan_memory([*tensors, *work]), NO_MEMORY
        slots.update({root: PlanArg(ArgKind.ARENA, 0, plan.offsets[root]) for root in spans})
    else:
        plan = NO_MEMORY if together else plan_memory(work)
        samples = plan_memory([*tensors, *work] if together else tensors)
        slots.update({root: PlanArg(ArgKind.ARENA, 0, plan.bytes, samples.offsets[root]) for root in spans})
    for value, inside in roots.items():
        if inside.parent in slots:
            base = slots[inside.parent]
            slots[value] = replace(base, offset=base.offset + inside.offset)
    places, counter_bytes = _counters(steps, has_samples=graph.batch is not None)
    workspace = tuple(
        (*(_workspace((number, n), plan, samples) for n in range(len(step.workspace))), *counters)
        for number, (step, counters) in enumerate(zip(steps, places, strict=True))
    )
    return Storage(slots, workspace, plan, samples, (*tensors, *work), counter_bytes)


def _counters(steps: Sequence[Use], *, has_samples: bool) -> tuple[list[list[PlanArg]], int]:
    """Where each step's counters lie, by themselves: launches that overlap share none. And bytes of all."""
    places, end = [], 0
    for step in steps:
        firsts = list(accumulate(map(align, step.counters), initial=end))
        end = firsts.pop()
        places.append(
            [
                PlanArg(ArgKind.COUNTERS, 0, 0, first) if has_samples else PlanArg(ArgKind.COUNTERS, 0, first)
                for first in firsts
            ]
        )
    return places, end


def _workspace(key: tuple[int, int], plan: MemoryPlan, samples: MemoryPlan) -> PlanArg:
    if key in plan.offsets:
        return PlanArg(ArgKind.ARENA, 0, plan.offsets[key])
    return PlanArg(ArgKind.ARENA, 0, plan.bytes, samples.offsets[key])


def _bytes(laid_out: LaidOut, value: Value) -> int:
    return (laid_out.elements(value) * value.type.dtype.bits + 7) // 8


# ---------------------------------------------------------------- what the runtime executes


def plan_library(
    laid_out: Sequence[LaidOut],
    kernels: Sequence[Kernel],
    steps: Sequence[Sequence[Step]],
    imported: Imported,
    jobs: Sequence[CompileJob],
) -> tuple[HostPlan, ConstantPool, Storage]:
    """The plan of a library, the constants of all its graphs, and where tensors of the general one lie."""
    pool, plans, storages = ConstantPool(), [], []
    for one, calls, job in zip(laid_out, steps, jobs, strict=True):
        plan, storage = _plan_graph(one, kernels, calls, job, pool)
        plans.append(plan)
        storages.append(storage)
    specialisations = tuple(
        PlanSpecialisation(
            replace(plan, features=()),
            tuple(PlanSymbol(item.minimum, item.maximum, item.step) for item in one.ranges),
        )
        for plan, one in zip(plans[1:], imported.specialised, strict=True)
    )
    plan = replace(plans[0], constants_bytes=pool.bytes, specialisations=specialisations)
    return plan, pool, storages[0]


def _plan_graph(
    laid_out: LaidOut,
    kernels: Sequence[Kernel],
    steps: Sequence[Step],
    job: CompileJob,
    pool: ConstantPool,
) -> tuple[HostPlan, Storage]:
    """The calls with their arguments, and where tensors lie; constants that they read go into the pool."""
    graph, target = laid_out.fused.graph, job.target
    derived = {value: made for step in steps for value, made in step.derived.items()}
    several = bool(job.options.specialisations)
    constants = GraphConstants(pool, graph.constants, derived, by_content=several)
    written = [step.values[len(step.values) - kernels[step.kernel].func.outputs :] for step in steps]
    guards: Sequence[Guard | None] = [None] * len(steps)
    if target.device is None:
        guards = guards_of(laid_out, written)
    uses = [_use(step, kernels[step.kernel], graph, guard) for step, guard in zip(steps, guards, strict=True)]
    storage, branches = _stored(laid_out, uses, [kernels[step.kernel] for step in steps], steps, job)
    plan_steps = []
    for number, step in enumerate(steps):
        kernel = kernels[step.kernel]
        args = [_arg(n, value, kernel, storage, constants) for n, value in enumerate(step.values)]
        first_output = len(args) - kernel.func.outputs
        args[first_output:first_output] = storage.workspace[number]
        guard = _plan_guard(guards[number], laid_out, storage)
        plan_steps.append(PlanStep(kernel.number, tuple(args), kernel.number, guard))
    device = None
    if target.device is not None:
        has_samples = graph.batch is not None
        device = device_plan(
            target.text,
            kernels,
            plan_steps,
            storage.counter_bytes,
            has_samples=has_samples,
            branches=branches,
        )
    plan = HostPlan(
        inputs=plan_inputs(graph),
        outputs=plan_outputs(graph),
        steps=tuple(plan_steps),
        arena_bytes=storage.plan.bytes,
        sample_bytes=storage.samples.bytes,
        scratch_bytes=max((kernel.scratch_bytes for kernel in kernels), default=0),
        constants_bytes=pool.bytes,
        features=target.features,
        checks=graph.checks,
        sizes=graph.sizes,
        first_size=0 if graph.batch is None else 1,
        counts=graph.counts,
        symbols=plan_symbols(graph, most_samples(kernels, target.facts)),
        states=plan_states(graph, states_of(laid_out)),
        threads=job.options.threads or 0,
        device=device,
    )
    job.dump.model(PLAN, plan_text(laid_out.fused, steps, storage.slots, plan))
    return plan, storage


_MOST_GROWTH = 1.5
"""Of the arena, for steps that are side by side: what one of them holds cannot be the other's."""


def _stored(
    laid_out: LaidOut, uses: Sequence[Use], kernels: Sequence[Kernel], steps: Sequence[Step], job: CompileJob
) -> tuple[Storage, Branches]:
    """Where tensors lie, and the steps that may be side by side: the best branches with memory enough.

    kernels: of each step.
    """
    shared, on_device = job.does_whole(SHARE_MEMORY), job.target.device is not None
    storage = plan_storage(laid_out, uses, shared=shared, together=on_device)
    if not _may_fork(laid_out.fused.graph, kernels, job):
        return storage, one_branch(len(steps))
    works = [
        Work.of(kernel.launches, step.group.flops, sum(v.type.bytes for v in step.values), job.target.facts)
        for kernel, step in zip(kernels, steps, strict=True)
    ]
    needs = dependencies([_accesses(laid_out, use) for use in uses])
    free = job.graph.branches is BranchChoice.FREE
    for planned in possible_branches(works, needs, job.target.facts, free=free):
        branches = planned.branches
        found = plan_storage(laid_out, uses, shared=shared, together=on_device, branches=branches)
        if found.plan.bytes <= _MOST_GROWTH * storage.plan.bytes:
            _check_order(laid_out, uses, found, branches)
            return found, branches
    return storage, one_branch(len(steps))


def _may_fork(graph: Graph, kernels: Sequence[Kernel], job: CompileJob) -> bool:
    """Whether steps may be side by side: where all sizes are known, and no memory of blocks is in common."""
    free = graph.symbols or graph.batch is not None
    common = any(launch.block_bytes for kernel in kernels for launch in kernel.launches)
    several = (job.target.facts.limit("branches") or 1) > 1 and job.graph.branches is not BranchChoice.NONE
    return bool(several and kernels and not free and not common) and job.does_whole(PARALLEL_BRANCHES)


def _accesses(laid_out: LaidOut, use: Use) -> list[Touch]:
    """What a step touches, each tensor that has memory of its own being one memory."""
    found = []
    for values, writes in ((use.reads, False), (use.writes, True)):
        for value in values:
            inside = laid_out.roots.get(value)
            memory, begin = (value, 0) if inside is None else (inside.parent, inside.offset)
            found.append(Touch(memory, begin, begin + _bytes(laid_out, value), writes))
    return found


def _check_order(laid_out: LaidOut, uses: Sequence[Use], storage: Storage, branches: Branches) -> None:
    """Raise InternalError where two steps that touch the same bytes could come in another order."""
    accesses = []
    for use, own in zip(uses, storage.workspace, strict=True):
        slots = [(storage.slots[v], _bytes(laid_out, v), False) for v in use.reads]
        slots += [(storage.slots[v], _bytes(laid_out, v), True) for v in use.writes]
        slots += [(slot, size, True) for slot, size in zip(own, (*use.workspace, *use.counters), strict=True)]
        accesses.append(
            [Touch((s.kind, s.index), s.offset, s.offset + size, writes) for s, size, writes in slots]
        )
    if not branches.keep(dependencies(accesses)):
        raise InternalError("steps on several branches touch the same memory in any order")


def _use(step: Step, kernel: Kernel, graph: Graph, guard: Guard | None) -> Use:
    tensors = [v for v in step.values if v not in graph.constants and v not in step.derived]
    tensors += [guard.condition] if guard is not None else []
    written = step.values[len(step.values) - kernel.func.outputs :]
    reads = tuple(value for value in tensors if value not in written)
    return Use(reads, written, kernel.workspace, kernel.counters)


def _plan_guard(guard: Guard | None, laid_out: LaidOut, storage: Storage) -> PlanGuard | None:
    if guard is None:
        return None
    value, roots = guard.condition, laid_out.roots
    memory = roots[value].parent if value in roots else value
    stride = laid_out.elements(memory) if laid_out.fused.graph.batch is not None else 0
    return PlanGuard(storage.slots[value], value.type.size, guard.expected, stride)


def _arg(number: int, value: Value, kernel: Kernel, storage: Storage, constants: GraphConstants) -> PlanArg:
    found = storage.slots.get(value)
    return found or PlanArg(ArgKind.CONST, 0, constants.offset(value, kernel.maps(number)))
