"""READ FIRST: the ordered list of stages from model.onnx to model.so.

    import      ONNX file -> graph                                   frontend/
    rewrite     graph -> canonical graph, one pass after the other   graph/rewrites/
    fuse        graph -> groups, each one kernel                     graph/fuse.py
    layout      each tensor in memory; in-place concatenation        graph/convert.py, choose_layouts.py
    loops       group -> loop function, from the op records' forms   graph/to_loops.py
    schedule    rules and a chooser rearrange the loops, as a trace  schedule/
    lower       scheduled loops -> flat loops                        lower/
    render      flat loops -> C++ text; compiled in the background   render/, targets/build.py
    plan        one memory plan; constants in their layouts          stages/storage.py, stages/constants.py
    host        the table that the runtime executes                  render/host.py
    link        objects + runtime + constants + manifest -> model.so runtime/library.py

`run_job` runs them in this order. What is specialised for some sizes is a graph of its own beside the
general one (`stages/specialised.py`); all of them share kernels and constants. Every stage can be dumped
(`--dump`), be the last one (`--stop-after`), and the stages of kernels can be edited and fed back (`--from`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, count
from pathlib import Path
from typing import TypeVar

from compiler.core.cache import cache_trouble
from compiler.core.diagnostics import BadInputError, BuildError
from compiler.core.files import write_atomic
from compiler.core.passes import PassEvent
from compiler.graph.convert import LaidOut
from compiler.graph.fuse import FusedGraph
from compiler.graph.ir import Graph, verify
from compiler.graph.rewrites import rewrite_graph
from compiler.loops.matrix_units import units_for
from compiler.render.host import render_plan
from compiler.reports import CompileReport, LimitedPass, StageTime
from compiler.runtime.library import Contents, link_library
from compiler.stages.compilation import Compilation
from compiler.stages.constants import ConstantPool
from compiler.stages.device import device_module
from compiler.stages.dump import (
    FUSE,
    HOST,
    IMPORT,
    KERNELS,
    LAYOUT,
    MANIFEST,
    RENDER,
    REWRITE,
    kernel_file,
)
from compiler.stages.free_sizes import import_for_job
from compiler.stages.graph_decisions import choose_graph
from compiler.stages.groups import fused_groups, laid_out_groups
from compiler.stages.job import KERNEL_STAGES, STAGES, CompileJob
from compiler.stages.kernels import Kernel, KernelTask, Step, library_steps
from compiler.stages.library_kernels import build_kernels, made_kernels
from compiler.stages.manifest import model_manifest
from compiler.stages.plan_tensors import input_names, plan_names, symbol_names
from compiler.stages.specialised import Imported, check_states
from compiler.stages.storage import plan_library
from compiler.stages.text import kernels_text, layouts_text
from compiler.targets.build import KernelBuild
from compiler.targets.device import Images, Module

T = TypeVar("T")
R = TypeVar("R")
_TOLD_BY_KERNEL = ("plan", "host", "compile")  # meanwhile kernels are compiled, and that is told


def run_job(job: CompileJob, observe: Callable[[Compilation], None] | None = None) -> CompileReport:
    """Compile a model, and report what it took.

    `observe` is given what the stages made, when all objects are there.

    Raises UsageError, BadInputError, HostError or BuildError; the old output stays in place then.
    """
    clock = _Clock(job)
    try:
        return _run_stages(job, clock, observe)
    except _StoppedError:
        return replace(clock.report(), stopped_after=job.last)
    except BuildError as error:
        if job.edit is None or job.edit.stage != RENDER:
            raise  # else it is the user's source, and the user's to correct
        what = "no library can be built with the edited source"
        raise BadInputError(what, where=str(job.edit.path), why=error.why) from error


def _run_stages(
    job: CompileJob, clock: _Clock, observe: Callable[[Compilation], None] | None
) -> CompileReport:
    imported, jobs, graphs, laid_out = _laid_out_graphs(job, clock)
    with ExitStack() as stack:
        with clock.stage(*KERNEL_STAGES):
            tasks, steps = library_steps(laid_out, job)
            with made_kernels(tasks, job, list(chain.from_iterable(steps))) as making:
                build = stack.enter_context(_build(job))  # has threads that start programs
                if build is not None and job.options.emit == "library":
                    build.start_runtime()
                kernels, objects = build_kernels(making, len(tasks), job, build)
            _each(_tell_steps, steps, jobs)
        with clock.stage("plan"):
            plan, constants, storage = plan_library(laid_out, kernels, steps, imported, jobs)
        module = device_module(kernels, job)
        images = _images(module, build, job, clock)
        with clock.stage("host"):
            host = render_plan(plan)
            job.dump.model(HOST, host, ".cpp")
            manifest = model_manifest(graphs[0], kernels, steps, plan, images, jobs[0])
            job.dump.model(MANIFEST, manifest.decode(), ".json")
        if build is None:
            _write_sources(kernels, module, host, job)
            return clock.report(kernels=len(kernels))
        with clock.stage("compile"):
            made = [item.result() for item in (*objects, build.submit("host", host))]
    if observe is not None:
        observe(Compilation(laid_out[0], kernels, steps[0], storage, made[:-1], jobs[0].graph))
    if job.options.emit == "object":
        _write_objects(made, images, job)
        return clock.report(kernels=len(kernels))
    with clock.stage("link"):
        size = _write_library(made, graphs, constants, manifest, images, build, job)
    return replace(
        clock.report(kernels=len(kernels)),
        cache_hits=sum(count for name, count in build.hits.items() if name != "host"),
        library_bytes=size,
        constant_bytes=constants.bytes,
        tuned=sum(bool(kernel.record) for kernel in kernels),
        peak_memory=max(one.arena_bytes + one.sample_bytes for one in plan.plans),
        warnings=(*images.notes, *cache_trouble()),
    )


def model_kernels(job: CompileJob) -> tuple[list[KernelTask], list[Step]]:
    """The kernels that a compile would make, none of which is scheduled, and all calls of them.

    Raises UsageError, BadInputError or HostError.
    """
    laid_out = _laid_out_graphs(job, _Clock(job))[-1]
    tasks, steps = library_steps(laid_out, job)
    return tasks, list(chain.from_iterable(steps))


# ---------------------------------------------------------------- the stages about a whole graph


def _laid_out_graphs(
    job: CompileJob, clock: _Clock
) -> tuple[Imported, list[CompileJob], list[Graph], list[LaidOut]]:
    """The model with the job, the rewritten graph and the layouts of each of its graphs."""
    with clock.stage("import"):
        imported = import_for_job(job)
        jobs = [job.for_graph(number) for number in range(len(imported.graphs))]
        graphs = _each(_read, imported.graphs, jobs)
    with clock.stage("rewrite"):
        graphs = _each(_rewritten, graphs, jobs)
        if len(graphs) == 1:  # several share weights and states, so their layouts are those by cost
            jobs = [replace(jobs[0], graph=choose_graph(graphs[0], job))]
    with clock.stage("fuse"):
        fused = _each(_fused, graphs, jobs)
    with clock.stage("layout"):
        laid_out = _each(_laid_out, fused, jobs)
        check_states(laid_out, on_device=job.target.device is not None)
    return imported, jobs, graphs, laid_out


def _each(stage: Callable[[T, CompileJob], R], items: Sequence[T], jobs: Sequence[CompileJob]) -> list[R]:
    """A stage for each graph of the library."""
    return [stage(item, job) for item, job in zip(items, jobs, strict=True)]


def _read(graph: Graph, job: CompileJob) -> Graph:
    job.dump.model(IMPORT, graph)
    return graph


def _rewritten(graph: Graph, job: CompileJob) -> Graph:
    facts = job.target.facts
    return rewrite_graph(
        graph,
        [_observer(job)],
        blocks=facts.binds_threads,
        without=job.options.without,
        limits=job.limits,
        factors=facts.factors,
        images=facts.factors is not None and bool(units_for(facts.factors, facts.matrix_rates)),
    )


def _fused(graph: Graph, job: CompileJob) -> FusedGraph:
    fused = fused_groups(graph, job)
    job.dump.model(FUSE, fused)
    return fused


def _laid_out(fused: FusedGraph, job: CompileJob) -> LaidOut:
    laid_out = laid_out_groups(fused, job)
    job.dump.model(LAYOUT, layouts_text(laid_out.layouts))
    return laid_out


def _tell_steps(steps: Sequence[Step], job: CompileJob) -> None:
    job.dump.model(KERNELS, kernels_text(steps))


def _build(job: CompileJob) -> AbstractContextManager[KernelBuild | None]:
    """Compiles in the background; texts need no compiler, so none is looked for."""
    texts = job.last != STAGES[-1] or job.options.emit == "source"
    return nullcontext() if texts else KernelBuild(job.target, job.settings)


def _images(module: Module | None, build: KernelBuild | None, job: CompileJob, clock: _Clock) -> Images:
    """What the device's toolchain makes of the module; none where nothing is built, or for the host alone."""
    if module is None or build is None or job.target.device is None:
        return Images((), build.cxx.description if build is not None else "")
    with clock.stage("images"):
        return job.target.device.build(module, job.target, job.settings)


# ---------------------------------------------------------------- what is written


def _write_sources(kernels: Sequence[Kernel], module: Module | None, host: str, job: CompileJob) -> None:
    """The kernels, for a device all in one file, and the plan around them."""
    output, device = job.options.output, job.target.device
    if module is not None and device is not None:
        write_atomic(output / f"kernels{device.suffix}", module.text)
    for kernel in kernels if module is None else ():
        write_atomic(output / f"{kernel_file(kernel.number)}.cpp", kernel.text)
    write_atomic(output / "host.cpp", host)


def _write_objects(objects: Sequence[Path], images: Images, job: CompileJob) -> None:
    """A device's images, and the objects of kernels and plan; the plan is last."""
    output = job.options.output
    for image in images.images:
        write_atomic(output / f"{image.kind}-{image.arch or 'any'}.bin", image.data)
    names = [f"{kernel_file(number)}.o" for number in range(len(objects) - 1)] + ["host.o"]
    for name, item in zip(names, objects, strict=True):
        write_atomic(output / name, item.read_bytes())


def _write_library(
    objects: Sequence[Path],
    graphs: Sequence[Graph],
    constants: ConstantPool,
    manifest: bytes,
    images: Images,
    build: KernelBuild,
    job: CompileJob,
) -> int:
    """Link everything into one file; returns its bytes."""
    graph, *specialised = graphs
    made = tuple((item.kind, item.arch, item.data) for item in images.images)
    contents = Contents(
        manifest=manifest,
        inputs=input_names(graph),
        outputs=graph.output_names,
        constants=constants.write,
        images=made,
        devices=build.runtime,
        symbols=symbol_names(graph),
        specialised=tuple(chain.from_iterable(map(plan_names, specialised))),
    )
    return link_library(objects, contents, job.options.output, build.toolchain, build.cache)


# ---------------------------------------------------------------- what is watched


class _StoppedError(Exception):
    """The last stage that was asked for is done."""


@dataclass(slots=True)
class _Clock:
    """Wall seconds of each stage; ends the compile after the last one that its job asks for."""

    job: CompileJob
    stages: list[StageTime] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, *names: str) -> Iterator[None]:
        """Time one stage, or several that are done kernel by kernel."""
        started = time.perf_counter()
        if names[0] not in _TOLD_BY_KERNEL:
            self.job.progress(names[0], 0, 0)
        yield
        name = names[0] if len(names) == 1 else "kernels"
        self.stages.append(StageTime(name, time.perf_counter() - started))
        if self.job.last in names and self.job.last != STAGES[-1]:
            raise _StoppedError

    def report(self, kernels: int = 0) -> CompileReport:
        """The report of a compile that made no library."""
        job, facts = self.job, self.job.target.facts
        return CompileReport(
            path=job.options.output,
            target=facts.name,
            arch=facts.arch,
            seconds=time.perf_counter() - self.started,
            stages=tuple(self.stages),
            kernels=kernels,
            limited=tuple(_limited(job)),
        )


def _limited(job: CompileJob) -> Iterator[LimitedPass]:
    """What became of the limits that were asked for."""
    for name in job.options.limits:
        made = job.limits.of(name)
        yield LimitedPass(name, made.count, made.last)


def _observer(job: CompileJob) -> Callable[[PassEvent[Graph]], None]:
    """Dumps and verifies the graph after each rewrite, as the job asks for."""
    numbers = count(1)

    def observe(event: PassEvent[Graph]) -> None:
        number = next(numbers)
        if event.changed and job.dump:
            job.dump.model(f"{REWRITE}/{number:02}-{event.name}", event.after)
        if event.changed and job.settings.debug:
            verify(event.after)

    return observe
