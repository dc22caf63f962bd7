"""`view_compile`: everything that can be shown of a compile, collected from its stages or from a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.core.cache_space import cache_in_use
from compiler.core.files import private_directory
from compiler.core.precision import precision_of
from compiler.core.progress import Progress, Steps, silent
from compiler.frontend.links import NodeLinks, node_links
from compiler.library_inspection import inspect_library
from compiler.replay import is_recorded, replayed
from compiler.reports import CompileOptions, CompileReport, LibraryReport
from compiler.runtime.manifest import manifest_of
from compiler.stages.compilation import Compilation
from compiler.stages.job import CompileJob
from compiler.stages.kernels import Kernel, ReplayedKernel
from compiler.targets import Target, get_target
from compiler.tune.use import run_tuned, tuning_of
from compiler.view.collect import CompiledParts
from compiler.view.kernels import read_assembly, viewed_kernel
from compiler.view.measure import measure_speed
from compiler.view.report import MemoryView, Unseen, ViewedStep, ViewReport, ViewRequest

_WITHOUT_MODEL = (
    Unseen("tensors and edges", "a library says which kernels run on which nodes, not on which tensors"),
    Unseen("layouts", "a library does not say how tensors between kernels lie in memory"),
    Unseen("memory over time", "a library says how much memory it takes, not what lies where and when"),
)


def view_compile(request: ViewRequest, *, progress: Progress = silent) -> ViewReport:
    """Compile a model, or read a library, and tell all that is known of it.

    `progress` is told of stages and kernels. Raises what `compile_model` raises for a model, BadInputError
    for a library that is none; what cannot be measured or read here is listed in the report.
    """
    if request.options is None:
        return _view_library(request, progress)
    return _view_model(request, request.options, progress)


def _view_model(request: ViewRequest, options: CompileOptions, progress: Progress) -> ViewReport:
    seen: list[Compilation] = []
    with private_directory("tk-view") as directory:
        library = directory / "model.so"
        job = CompileJob.of(request.path, replace(options, output=library), progress)
        with cache_in_use(job.settings.cache_dir):
            tuning = tuning_of(job)
            compiled = run_tuned(job, tuning, seen.append)
            compiled = replace(compiled, warnings=(*tuning.warnings, *compiled.warnings))
            made = seen[0]
            assembly, missing = read_assembly(job.target, library, list(dict.fromkeys(made.objects)))
        report = _report(request.path, library, made.kernels, assembly)
        report = _with_stages(report, CompiledParts(made), compiled, node_links(request.path))
        report = replace(report, unseen=missing)
        return _with_speed(report, library, job.target, request, progress)


def _view_library(request: ViewRequest, progress: Progress) -> ViewReport:
    manifest = manifest_of(request.path)
    target = get_target(manifest["target"], manifest["arch"], precision=precision_of(manifest))
    kernels, stale = _replay(manifest, target, progress)
    assembly, missing = read_assembly(target, request.path, [])
    report = _report(request.path, request.path, kernels, assembly)
    report = replace(report, unseen=(*_WITHOUT_MODEL, *stale, *missing))
    return _with_speed(report, request.path, target, request, progress)


def _replay(
    manifest: Mapping[str, Any], target: Target, progress: Progress
) -> tuple[list[ReplayedKernel | None], tuple[Unseen, ...]]:
    """The texts of a library's kernels, made again from their traces; None where they come out otherwise."""
    entries = manifest["kernels"]
    done, made = Steps(progress, "kernels", len(entries)), []
    for number, entry in enumerate(entries):
        kernel = replayed(number, entry, target)
        made.append(kernel if kernel is not None and is_recorded(kernel.text, entry) else None)
        done.advance()
    lost = sum(1 for one in made if one is None)
    if not lost:
        return made, ()
    why = "their traces make other source texts now: another version of tk built it, or edited stage files"
    return made, (Unseen(f"loops and source of {lost} of {len(entries)} kernels", why),)


def _report(
    path: Path,
    library: Path,
    made: Sequence[Kernel | ReplayedKernel | None],
    assembly: Mapping[int, str],
) -> ViewReport:
    """What the library says, with the texts of its kernels."""
    manifest, info = manifest_of(library), inspect_library(library, kernels=True)
    ops = [tuple(entry["ops"]) for entry in manifest["kernels"]]
    steps = tuple(
        ViewedStep(number, step["kernel"], ops[step["kernel"]], tuple(step["nodes"]))
        for number, step in enumerate(manifest["steps"])
    )
    calls: dict[int, list[int]] = {}
    for step in steps:
        calls.setdefault(step.kernel, []).append(step.number)
    return ViewReport(
        path=path,
        target=info.target,
        arch=info.arch,
        features=info.features,
        toolchain=info.toolchain,
        inputs=info.inputs,
        outputs=info.outputs,
        steps=steps,
        kernels=tuple(
            viewed_kernel(one, ops[n], calls.get(n, ()), made[n], assembly.get(n, ""))
            for n, one in enumerate(info.kernels)
        ),
        memory=_memory_sizes(info),
        flops=info.flops,
        library_bytes=info.library_bytes,
    )


def _memory_sizes(info: LibraryReport) -> MemoryView:
    return MemoryView(info.arena_bytes, info.sample_bytes, info.scratch_bytes, info.constant_bytes)


def _with_stages(
    report: ViewReport, parts: CompiledParts, compiled: CompileReport, nodes: Sequence[NodeLinks]
) -> ViewReport:
    """With what only the stages of a compile know."""
    return replace(
        report,
        input_tensors=parts.input_tensors,
        output_tensors=parts.output_tensors,
        tensors=parts.tensors,
        nodes=parts.nodes,
        steps=parts.steps,
        merged=parts.merged(nodes),
        memory=replace(report.memory, bars=parts.bars),
        seconds=compiled.seconds,
        warnings=compiled.warnings,
    )


def _with_speed(
    report: ViewReport, library: Path, target: Target, request: ViewRequest, progress: Progress
) -> ViewReport:
    profile, roofline, missing = measure_speed(library, target, request, progress)
    return replace(report, profile=profile, roofline=roofline, unseen=(*report.unseen, *missing))
