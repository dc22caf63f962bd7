"""READ FIRST: the ordered list of stages from model.onnx to model.so.

    import      ONNX file -> graph                                   frontend/
    rewrite     graph -> canonical graph, one pass after the other   graph/rewrites/
    fuse        graph -> groups, each one kernel                     graph/fuse.py
    layout      how each tensor lies in memory; joins without copies  graph/convert.py, layout.py, alias.py
    loops       group -> loop function, from the op records' forms   graph/to_loops.py
    schedule    rules and a chooser rearrange the loops, as a trace  schedule/
    lower       scheduled loops -> flat loops                        lower/
    render      flat loops -> C++ text; compiled in the background   render/, targets/build.py
    plan        one memory plan; constants in their layouts          stages/storage.py, stages/constants.py
    host        the table that the runtime executes                  render/host.py
    link        objects + runtime + constants + manifest -> model.so runtime/library.py

`compile_model` below runs them in this order. Every stage can be dumped (`--dump`), be the last one
(`--stop-after`), and the stages of kernels can be edited and fed back (`--from`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compiler.core.cache import ContentCache, cache_trouble
from compiler.core.diagnostics import BadInputError, BuildError, UsageError, did_you_mean
from compiler.core.files import sha256_file, write_atomic
from compiler.core.passes import PassEvent
from compiler.core.progress import Progress, Steps, silent
from compiler.core.settings import Settings, load_settings
from compiler.frontend.external import ExternalData
from compiler.frontend.onnx import import_model
from compiler.graph.alias import Alias, find_aliases, is_join
from compiler.graph.convert import lay_out
from compiler.graph.fuse import FusedGraph, fuse
from compiler.graph.ir import Graph, Value, verify
from compiler.graph.rewrites import rewrite_graph
from compiler.graph.to_loops import group_func
from compiler.loops.ir import Func
from compiler.loops.layout import Layout
from compiler.render.host import ArgKind, Plan, PlanArg, PlanDim, PlanStep, PlanTensor, render_plan
from compiler.reports import CompileOptions, CompileReport, StageTime
from compiler.runtime.library import Contents, Toolchain, link_library
from compiler.schedule.chooser import AnalyticChooser
from compiler.stages.constants import ConstantPool
from compiler.stages.device import device_module, device_plan
from compiler.stages.dump import (
    FUSE,
    HOST,
    IMPORT,
    KERNELS,
    LAYOUT,
    MANIFEST,
    MODULE,
    PLAN,
    RENDER,
    REWRITE,
    Dump,
    Edit,
    read_edit,
)
from compiler.stages.forms import form_chooser, param_layouts
from compiler.stages.kernels import Kernel, Step, make_kernel
from compiler.stages.layouts import TargetLayoutCosts
from compiler.stages.manifest import model_manifest
from compiler.stages.storage import Storage, Use, plan_storage
from compiler.stages.text import kernels_text, layouts_text, plan_text
from compiler.targets import Target, get_target
from compiler.targets.build import KernelBuild
from compiler.targets.device import Images, Module

STAGES = (
    "import",
    "rewrite",
    "fuse",
    "layout",
    "loops",
    "schedule",
    "lower",
    "render",
    "plan",
    "host",
    "link",
)
"""Names for `--stop-after`, in order."""

_KERNEL_WIDE = ("loops", "schedule", "lower", "render")
_TOLD_BY_KERNEL = (*_KERNEL_WIDE, "plan", "host", "compile")  # while kernels are made and compiled


class _StoppedError(Exception):
    """The last stage that was asked for is done."""


@dataclass(slots=True)
class _Clock:
    """Wall seconds of each stage; ends the compile after the stage `last`."""

    last: str
    progress: Progress = silent
    stages: list[StageTime] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, *names: str) -> Iterator[None]:
        """Time one stage, or several that are done kernel by kernel, which tell their own progress."""
        started = time.perf_counter()
        if names[0] not in _TOLD_BY_KERNEL:
            self.progress(names[0], 0, 0)
        yield
        name = names[0] if len(names) == 1 else "kernels"
        self.stages.append(StageTime(name, time.perf_counter() - started))
        if self.last in names and self.last != STAGES[-1]:
            raise _StoppedError


def compile_model(
    path: Path,
    options: CompileOptions,
    external: ExternalData | None = None,
    progress: Progress = silent,
) -> CompileReport:
    """Compile the ONNX model at `path` as `options` say, and report what it took.

    `external` opens the model's external data, by default below its directory. `progress` is told of stages,
    and of kernels done.

    Raises UsageError, BadInputError, HostError or BuildError; the old output stays in place then.
    """
    clock = _Clock(_last_stage(options), progress)
    target = get_target(options.target, options.arch, tf32=options.tf32)
    edit = read_edit(options.start_from) if options.start_from else None
    try:
        return _run_stages(path, options, target, external, edit, clock)
    except _StoppedError:
        return _report(options, target, clock)
    except BuildError as error:
        if edit is None or edit.stage != RENDER:
            raise  # else it is the user's source, and the user's to correct
        what = "no library can be built with the edited source"
        raise BadInputError(what, where=str(edit.path), why=error.why) from error


def _run_stages(
    path: Path,
    options: CompileOptions,
    target: Target,
    external: ExternalData | None,
    edit: Edit | None,
    clock: _Clock,
) -> CompileReport:
    settings, dump = load_settings(), Dump.open(options.dump)
    with clock.stage("import"):  # options' binds are objects, as `reports` is read without numpy
        graph = import_model(path, options.shapes, options.binds, external, options.dims)  # type: ignore[arg-type]
        dump.model(IMPORT, str(graph))
    with clock.stage("rewrite"):
        observers = _graph_observers(dump, check=settings.debug)
        graph = rewrite_graph(graph, observers, pads=not target.facts.binds_threads)
    with clock.stage("fuse"):
        fused = fuse(graph)
        dump.model(FUSE, str(fused))
    with clock.stage("layout"):
        fused, layouts = lay_out(fused, TargetLayoutCosts(target.facts))
        aliases = find_aliases(fused, layouts)
        dump.model(LAYOUT, layouts_text(layouts))

    with ExitStack() as stack:
        builds = clock.last == STAGES[-1] and options.emit != "source"
        # Texts need no compiler, so none is looked for.
        build = stack.enter_context(KernelBuild(target, settings)) if builds else None
        wanted = build if target.device is None else None
        with clock.stage(*_KERNEL_WIDE):
            kernels, steps, objects = _make_kernels(
                fused, layouts, aliases, target, wanted, dump, edit, clock, check=settings.debug
            )
            dump.model(KERNELS, kernels_text(steps))
        with clock.stage("plan"):
            derived = {value: made for step in steps for value, made in step.derived.items()}
            constants = ConstantPool(graph.constants, derived)
            storage, plan = _plan(fused, layouts, aliases, kernels, steps, constants, target, options)
            dump.model(PLAN, plan_text(fused, steps, storage, plan))
        module = _module(path, kernels, target, dump)
        images = _images(module, build, target, settings, clock)
        with clock.stage("host"):
            host = render_plan(plan)
            dump.model(HOST, host, ".cpp")
            manifest = model_manifest(path, fused, kernels, steps, plan, target, images, options.environment)
            dump.model(MANIFEST, manifest.decode(), ".json")
        if build is None:
            return _emit_sources(options, target, clock, kernels, module, host)
        with clock.stage("compile"):
            made = [item.result() for item in (*objects, build.submit("host", host))]
        hits = len(build.hits - {"host"})
    if options.emit == "object":
        return _emit_objects(options, target, clock, made, images)
    with clock.stage("link"):
        contents = _contents(manifest, graph, constants, target, images)
        size = link_library(made, contents, options.output, _toolchain(build, settings), _cache(settings))
    return CompileReport(
        path=options.output,
        target=target.facts.name,
        arch=target.facts.arch,
        seconds=time.perf_counter() - clock.started,
        stages=tuple(clock.stages),
        kernels=len(kernels),
        cache_hits=hits,
        library_bytes=size,
        constant_bytes=constants.bytes,
        peak_memory=plan.arena_bytes,
        warnings=(*images.notes, *cache_trouble()),
    )


def _module(path: Path, kernels: Sequence[Kernel], target: Target, dump: Dump) -> Module | None:
    """What a device gets of the model; None where the host runs the kernels."""
    if target.device is None:
        return None
    module = device_module(kernels, target.vocabulary, sha256_file(path))
    dump.model(MODULE, module.text, target.device.suffix)
    return module


def _images(
    module: Module | None, build: KernelBuild | None, target: Target, settings: Settings, clock: _Clock
) -> Images:
    """What the device's toolchain makes of the module; none where nothing is built, or for the host alone."""
    if module is None or build is None or target.device is None:
        return Images((), build.cxx.description if build is not None else "")
    with clock.stage("images"):
        return target.device.build(module, target, settings)


def _contents(
    manifest: bytes, graph: Graph, constants: ConstantPool, target: Target, images: Images
) -> Contents:
    """What the library holds beside the host's code."""
    made = tuple((item.kind, item.arch, item.data) for item in images.images)
    devices = target.device.runtime if target.device is not None else ("none",)
    return Contents(manifest, graph.input_names, graph.output_names, constants.write, made, devices)


# ---------------------------------------------------------------- kernels


def _make_kernels(
    fused: FusedGraph,
    layouts: Mapping[Value, Layout],
    aliases: Mapping[Value, Alias],
    target: Target,
    build: KernelBuild | None,
    dump: Dump,
    edit: Edit | None,
    clock: _Clock,
    *,
    check: bool,
) -> tuple[list[Kernel], list[Step], list[Future[Path]]]:
    """Each unique piece of work once; its compilation by `build` starts as soon as its text is there.

    `clock` knows the stage that the compile stops after and whom to tell of each kernel: making its text and
    compiling it are a half each. `check` verifies the program after every pass.
    """
    known: dict[tuple[Func, tuple[tuple[str, Layout], ...]], int] = {}
    choose = form_chooser(layouts, target.facts, AnalyticChooser())
    clock.progress("loops", 0, 0)
    steps: list[Step] = []
    for group in fused.groups:
        if is_join(group, aliases):
            continue
        made = group_func(group, fused.graph.constants, choose, pieces=not target.facts.binds_threads)
        key = (made.func, tuple(param_layouts(made, layouts).items()))
        steps.append(Step(known.setdefault(key, len(known)), group, made.values, made.derived))
    kernels: list[Kernel] = []
    objects: list[Future[Path]] = []
    done = Steps(clock.progress, "kernels", len(known))
    for (func, own), number in known.items():
        kernel = make_kernel(number, func, dict(own), target, dump, edit, last=clock.last, check=check)
        if kernel is not None:
            kernels.append(kernel)
        if kernel is not None and build is not None:
            objects.append(build.submit(f"kernel {kernel.number}", kernel.text))
            objects[-1].add_done_callback(lambda _: done.advance(0.5))
            done.advance(0.5)
        else:
            done.advance()
    if edit is not None:
        edit.check_applied(len(known))
    return kernels, steps, objects


# ---------------------------------------------------------------- plan


def _plan(
    fused: FusedGraph,
    layouts: Mapping[Value, Layout],
    aliases: Mapping[Value, Alias],
    kernels: Sequence[Kernel],
    steps: Sequence[Step],
    constants: ConstantPool,
    target: Target,
    options: CompileOptions,
) -> tuple[Storage, Plan]:
    """Offsets for everything, and the table that the runtime executes."""
    graph = fused.graph
    uses = [_use(step, kernels[step.kernel], graph) for step in steps]
    storage = plan_storage(fused, layouts, aliases, uses)
    plan_steps = []
    for number, step in enumerate(steps):
        kernel = kernels[step.kernel]
        args = [_arg(n, value, kernel, storage, constants) for n, value in enumerate(step.values)]
        extra = [PlanArg(ArgKind(slot.place), slot.index, slot.offset) for slot in storage.workspace[number]]
        first_output = len(args) - kernel.func.outputs
        plan_steps.append(
            PlanStep(kernel.number, (*args[:first_output], *extra, *args[first_output:]), kernel.number)
        )
    plan = Plan(
        inputs=tuple(_tensor(value) for value in graph.inputs),
        outputs=tuple(_tensor(value) for value in graph.outputs),
        steps=tuple(plan_steps),
        arena_bytes=storage.plan.bytes,
        scratch_bytes=max((kernel.scratch_bytes for kernel in kernels), default=0),
        constants_bytes=constants.bytes,
        features=target.features,
        threads=options.threads or 0,
        device=device_plan(target.text, kernels, plan_steps) if target.device is not None else None,
    )
    return storage, plan


def _use(step: Step, kernel: Kernel, graph: Graph) -> Use:
    tensors = [v for v in step.values if v not in graph.constants and v not in step.derived]
    written = step.values[len(step.values) - kernel.func.outputs :]
    return Use(tuple(value for value in tensors if value not in written), written, kernel.workspace)


def _arg(number: int, value: Value, kernel: Kernel, storage: Storage, constants: ConstantPool) -> PlanArg:
    slot = storage.slots.get(value)
    if slot is None:
        return PlanArg(ArgKind.CONST, 0, constants.offset(value, kernel.maps(number)))
    return PlanArg(ArgKind(slot.place), slot.index, slot.offset)


def _tensor(value: Value) -> PlanTensor:
    return PlanTensor(value.type.dtype, tuple(PlanDim(extent) for extent in value.type.shape))


# ---------------------------------------------------------------- options, dumps, reports


def _last_stage(options: CompileOptions) -> str:
    if options.stop_after is None:
        return STAGES[-1]
    if options.stop_after not in STAGES:
        raise UsageError(
            f"unknown stage `{options.stop_after}`",
            where="--stop-after",
            why=f"the stages are {', '.join(STAGES)}",
            hint=did_you_mean(options.stop_after, STAGES),
        )
    return options.stop_after


def _graph_observers(dump: Dump, *, check: bool) -> list[Callable[[PassEvent[Graph]], None]]:
    return [*([_pass_dumper(dump)] if dump else []), *([_verify_pass] if check else [])]


def _verify_pass(event: PassEvent[Graph]) -> None:
    if event.changed:
        verify(event.after)


def _pass_dumper(dump: Dump) -> Callable[[PassEvent[Graph]], None]:
    count = 0

    def observe(event: PassEvent[Graph]) -> None:
        nonlocal count
        count += 1
        if event.changed:
            dump.model(f"{REWRITE}/{count:02}-{event.name}", str(event.after))

    return observe


def _report(options: CompileOptions, target: Target, clock: _Clock, kernels: int = 0) -> CompileReport:
    """The report of a compile that made no library."""
    return CompileReport(
        path=options.output,
        target=target.facts.name,
        arch=target.facts.arch,
        seconds=time.perf_counter() - clock.started,
        stages=tuple(clock.stages),
        kernels=kernels,
        cache_hits=0,
        library_bytes=0,
        constant_bytes=0,
        peak_memory=0,
        stopped_after=options.stop_after,
    )


def _emit_sources(
    options: CompileOptions,
    target: Target,
    clock: _Clock,
    kernels: Sequence[Kernel],
    module: Module | None,
    host: str,
) -> CompileReport:
    if module is not None and target.device is not None:
        write_atomic(options.output / f"kernels{target.device.suffix}", module.text)
    for kernel in kernels if module is None else ():
        write_atomic(options.output / f"k{kernel.number:03}.cpp", kernel.text)
    write_atomic(options.output / "host.cpp", host)
    return _report(options, target, clock, len(kernels))


def _emit_objects(
    options: CompileOptions, target: Target, clock: _Clock, made: Sequence[Path], images: Images
) -> CompileReport:
    for image in images.images:
        write_atomic(options.output / f"{image.kind}-{image.arch or 'any'}.bin", image.data)
    names = [f"k{number:03}.o" for number in range(len(made) - 1)] + ["host.o"]
    for name, item in zip(names, made, strict=True):
        write_atomic(options.output / name, item.read_bytes())
    return _report(options, target, clock, len(made) - 1)


def _toolchain(build: KernelBuild, settings: Settings) -> Toolchain:
    return Toolchain(build.cxx.path, build.cxx.identity, jobs=settings.jobs)


def _cache(settings: Settings) -> ContentCache:
    return ContentCache(settings.cache_dir / "objects")
