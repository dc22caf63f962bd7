"""The JSON manifest inside a model library: what it is, where it came from, and every kernel's origin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

from compiler.core.files import sha256_bytes, sha256_file
from compiler.graph.branches import Branches, longest_chain
from compiler.graph.extents import dims_text
from compiler.graph.ir import Graph, TensorType, Value
from compiler.loops.text import print_func
from compiler.render.host import HostPlan, PlanSpecialisation
from compiler.render.launch import Launch
from compiler.stages.job import CompileJob
from compiler.stages.kernels import Kernel, Step
from compiler.stages.tuned import GraphChoices
from compiler.targets.device import Images

VERSION = 1
"""Raised whenever a field changes its meaning."""


def model_manifest(
    graph: Graph,
    kernels: Sequence[Kernel],
    steps: Sequence[Sequence[Step]],
    plan: HostPlan,
    images: Images,
    job: CompileJob,
) -> bytes:
    """The manifest as UTF-8 JSON; the same compile gives the same bytes.

    steps: of each plan, the general one first, to which the graph belongs.
    """
    target = job.target
    name, _, arch = target.text.partition(":")
    content: dict[str, Any] = {
        "version": VERSION,
        "target": name,
        "arch": arch,
        "features": list(target.features),
        "precision": target.facts.precision,
        "model_sha256": sha256_file(job.model),
        "toolchain": images.toolchain,
        "environment": dict(sorted(job.options.environment.items())),
        "inputs": _tensors(graph, graph.operands, graph.input_names, graph.input_types),
        "outputs": _tensors(graph, graph.results, graph.output_names, graph.output_types),
        "checks": graph.output_names[len(graph.results) + graph.counts :],
        "batch": {**asdict(graph.batch), "largest": plan.symbols[0].maximum} if graph.batch else None,
        "symbols": [asdict(symbol) for symbol in graph.symbols],
        "states": [
            {"input": graph.input_names[s.input], "output": graph.output_names[s.output], "axis": s.axis}
            for s in plan.states
        ],
        "arena_bytes": plan.arena_bytes,
        "sample_bytes": plan.sample_bytes,
        "scratch_bytes": plan.scratch_bytes,
        "constant_bytes": plan.constants_bytes,
        "flops": _flops(steps[0]),
        "default_streams": target.device.default_streams if target.device is not None else (),
        "images": [{"kind": one.kind, "arch": one.arch, "bytes": len(one.data)} for one in images.images],
        "resources": [asdict(item) for item in images.resources],
        "kernels": _kernels(kernels, steps),
        "steps": _steps(steps[0], plan),
        "specialisations": [
            _specialisation(one, calls) for one, calls in zip(plan.specialisations, steps[1:], strict=True)
        ],
    }
    left_out = {"without": job.options.without, "conservative": job.options.conservative}
    content |= {name: list(values) for name, values in left_out.items() if values}
    content |= {"graph": _graph(job.graph)} if job.graph.record else {}
    content |= {"limits": dict(sorted(job.options.limits.items()))} if job.options.limits else {}
    content |= _recording(kernels, steps[0], plan)
    plugins = [{"name": name, "sha256": digest} for name, digest in target.plugins.identity]
    content |= {"plugins": plugins} if plugins else {}
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _specialisation(one: PlanSpecialisation, steps: Sequence[Step]) -> dict[str, Any]:
    """What is not as in the general plan; ranges are of all symbols, a free batch first."""
    return {
        "ranges": [[item.minimum, item.maximum] for item in one.ranges],
        "arena_bytes": one.plan.arena_bytes,
        "sample_bytes": one.plan.sample_bytes,
        "flops": _flops(steps),
        "steps": _steps(steps, one.plan),
    }


def _flops(steps: Sequence[Step]) -> int:
    return sum(step.group.flops for step in steps)


def _steps(steps: Sequence[Step], plan: HostPlan) -> list[dict[str, Any]]:
    """The calls in order; where a recorded run has some side by side, each with its branch and its waits."""
    found: list[dict[str, Any]] = [
        {"kernel": step.kernel, "nodes": list(step.group.origin)} for step in steps
    ]
    for one, turn in zip(found, plan.device.turns if plan.device is not None else (), strict=False):
        one |= {"branch": turn.branch, "waits": list(turn.waits)}
    return found


def _recording(kernels: Sequence[Kernel], steps: Sequence[Step], plan: HostPlan) -> dict[str, Any]:
    """How many branches a recorded run has, and how many of its launches follow each other at most."""
    turns = plan.device.turns if plan.device is not None else ()
    if not turns:
        return {}
    branches = Branches(tuple(turn.branch for turn in turns), tuple(turn.waits for turn in turns))
    launches = [len(kernels[step.kernel].launches) for step in steps]
    chain = longest_chain(branches, launches)
    return {"recording": {"branches": branches.count, "launches": sum(launches), "chain": chain}}


def _tensors(
    graph: Graph, values: Sequence[Value], names: Sequence[str], kinds: Sequence[TensorType]
) -> list[dict[str, Any]]:
    """With the names of free dimensions, and what follows from them."""
    return [
        {
            "name": name,
            "dtype": str(kind.dtype),
            "shape": list(dims_text(graph, value, kind)),
            **({"extents": _extents(graph, value)} if value in graph.extents else {}),
            **({"labels": graph.labels[name]} if name in graph.labels else {}),
        }
        for value, name, kind in zip(values, names, kinds, strict=False)
    ]


def _extents(graph: Graph, value: Value) -> list[dict[str, Any] | None]:
    """How each axis follows from the symbols; null where a run has all of it."""
    return [None if extent is None else asdict(extent) for extent in graph.extents[value]]


def _graph(made: GraphChoices) -> dict[str, Any]:
    """What a tuning record decided about the graph."""
    return {
        "record": made.record,
        "workload": made.workload.key if made.workload is not None else "",
        "decisions": {name: list(value) for name, value in made.decisions.items()},
    }


def _kernels(kernels: Sequence[Kernel], steps: Sequence[Sequence[Step]]) -> list[dict[str, Any]]:
    calls: list[list[Step]] = [[] for _ in kernels]
    for step in chain.from_iterable(steps):
        calls[step.kernel].append(step)
    return [_kernel(kernel, own) for kernel, own in zip(kernels, calls, strict=True)]


def _kernel(kernel: Kernel, steps: Sequence[Step]) -> dict[str, Any]:
    first = steps[0]
    return {
        "kind": str(first.group.kind),
        "ops": [node.op.name for node in first.group.nodes],
        "steps": len(steps),
        "flops": first.group.flops,
        "bytes": sum(value.type.bytes for value in first.values),
        "nodes": [name for step in steps for name in step.group.origin],
        **described_kernel(kernel),
    }


def described_kernel(kernel: Kernel) -> dict[str, Any]:
    """What a manifest says of a kernel by itself: its loops, what was done to them, what came of it."""
    return {
        "func": print_func(kernel.func),
        "trace": kernel.trace.to_json(),
        "workload": kernel.workload.key,
        "decisions": {name: list(value) for name, value in kernel.decisions.items()},
        "record": kernel.record,
        "source_sha256": sha256_bytes(kernel.text.encode()),
        "launches": [_launch(launch) for launch in kernel.launches],
    }


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "name": launch.name,
        "grid": list(launch.grid),
        "block": list(launch.block),
        "shared_bytes": launch.shared_bytes,
        "block_bytes": launch.block_bytes,
    }
