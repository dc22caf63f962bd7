"""What is inside a model file or a model library, and whether its kernels replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import TkError
from compiler.core.files import sha256_bytes
from compiler.frontend.onnx import import_model
from compiler.frontend.proto import read_model
from compiler.frontend.refusals import UnsupportedModelError
from compiler.frontend.shapes import Bind
from compiler.graph.alias import find_aliases, is_join
from compiler.graph.convert import lay_out
from compiler.graph.fuse import fuse
from compiler.graph.ir import Graph, Value
from compiler.graph.rewrites import rewrite_graph
from compiler.loops.text import parse_func
from compiler.reports import (
    ImageInfo,
    KernelInfo,
    LaunchInfo,
    LibraryReport,
    ModelReport,
    OpCount,
    ResourceInfo,
    TensorInfo,
    Unsupported,
)
from compiler.runtime.elf import read_images
from compiler.runtime.loader import manifest_of
from compiler.schedule.trace import Trace
from compiler.stages.kernels import replay_kernel
from compiler.stages.layouts import TargetLayoutCosts
from compiler.stages.storage import Use, plan_storage
from compiler.targets import Target, get_target
from compiler.targets.device import SOURCE


def inspect_model(
    path: Path,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    binds: Mapping[str, Bind] | None = None,
    dims: Mapping[str, int] | None = None,
) -> ModelReport:
    """What an ONNX file computes and needs; a model that cannot be compiled is reported with all its reasons.

    Raises UsageError (open dimensions) and BadInputError (no valid model).
    """
    proto = read_model(path)
    opset = max((item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")), default=0)
    try:
        graph = import_model(path, shapes, binds, dims=dims)
    except UnsupportedModelError as error:
        return _with_refusals(path, opset, error)
    return ModelReport(
        path=path,
        opset=opset,
        inputs=_tensors(graph.input_names, graph.inputs),
        outputs=_tensors(graph.output_names, graph.outputs),
        ops=_op_counts(graph),
        parameters=sum(array.size for array in graph.constants.values()),
        parameter_bytes=sum(array.nbytes for array in graph.constants.values()),
        flops=sum(node.op.flops(node.info) for node in graph.nodes),
        arena_bytes=_arena_bytes(graph),
    )


def _with_refusals(path: Path, opset: int, error: UnsupportedModelError) -> ModelReport:
    """What is known of a model that cannot be compiled."""
    known = error.known
    return ModelReport(
        path=path,
        opset=opset,
        inputs=tuple(TensorInfo(*one) for one in known.inputs),
        outputs=tuple(TensorInfo(*one) for one in known.outputs),
        ops=tuple(
            OpCount(name, count, known.flops.get(name, 0)) for name, count in sorted(known.ops.items())
        ),
        parameters=known.parameters,
        parameter_bytes=known.parameter_bytes,
        flops=sum(known.flops.values()),
        unknown_nodes=known.unknown_nodes,
        unsupported=tuple(Unsupported(one.op, one.node, one.reason) for one in error.refusals),
    )


def _tensors(names: tuple[str, ...], values: tuple[Value, ...]) -> tuple[TensorInfo, ...]:
    return tuple(
        TensorInfo(name, str(value.type.dtype), value.type.shape)
        for name, value in zip(names, values, strict=True)
    )


def _op_counts(graph: Graph) -> tuple[OpCount, ...]:
    count: Counter[str] = Counter()
    flops: Counter[str] = Counter()
    for node in graph.nodes:
        count[node.op.name] += 1
        flops[node.op.name] += node.op.flops(node.info)
    return tuple(OpCount(name, number, flops[name]) for name, number in sorted(count.items()))


def _arena_bytes(graph: Graph) -> int:
    """Planned memory for intermediates on this machine's CPU, workspace of kernels not counted."""
    fused = fuse(rewrite_graph(graph))
    constants = fused.graph.constants
    fused, layouts = lay_out(fused, TargetLayoutCosts(get_target().facts))
    aliases = find_aliases(fused, layouts)
    groups = [group for group in fused.groups if not is_join(group, aliases)]
    uses = [Use(tuple(v for v in g.inputs if v not in constants), g.outputs) for g in groups]
    return plan_storage(fused, layouts, aliases, uses).plan.bytes


def inspect_library(path: Path, *, kernels: bool = False, check: bool = False) -> LibraryReport:
    """What the manifest of a library says; runs none of its code.

    `kernels` adds the text of every kernel's loops and trace, `check` replays every trace and tells whether
    the source text is the same to the byte. Raises BadInputError when the file is no model library.
    """
    manifest = manifest_of(path)
    target = get_target(manifest["target"], manifest["arch"]) if check else None
    texts = [_replayed(n, one, target) if target else None for n, one in enumerate(manifest["kernels"])]
    found = [
        _kernel(number, entry, manifest["resources"], texts=kernels)
        for number, entry in enumerate(manifest["kernels"])
    ]
    if target is not None:
        same = [_same(text, entry) for text, entry in zip(texts, manifest["kernels"], strict=True)]
        found = [replace(one, replays=replays) for one, replays in zip(found, same, strict=True)]
    return LibraryReport(
        path=path,
        target=manifest["target"],
        arch=manifest["arch"],
        features=tuple(manifest["features"]),
        inputs=_manifest_tensors(manifest["inputs"]),
        outputs=_manifest_tensors(manifest["outputs"]),
        kernels=tuple(found),
        flops=manifest["flops"],
        library_bytes=path.stat().st_size,
        constant_bytes=manifest["constant_bytes"],
        arena_bytes=manifest["arena_bytes"],
        scratch_bytes=manifest["scratch_bytes"],
        toolchain=manifest["toolchain"],
        images=tuple(ImageInfo(**item) for item in manifest["images"]),
        tf32=manifest.get("tf32", False),
        module_replays=_module_replays(path, texts, target),
    )


def _module_replays(path: Path, texts: Sequence[str | None], target: Target | None) -> bool | None:
    """Whether the source that a device gets is the replayed text of all kernels behind its prelude."""
    if target is None or target.device is None:
        return None
    module = target.vocabulary.module([text or "" for text in texts]).encode()
    return all(data.endswith(module) for kind, _, data in read_images(path) if kind == SOURCE)


def _manifest_tensors(entries: list[dict[str, Any]]) -> tuple[TensorInfo, ...]:
    return tuple(TensorInfo(item["name"], item["dtype"], tuple(item["shape"])) for item in entries)


def _kernel(
    number: int, entry: dict[str, Any], resources: list[dict[str, Any]], *, texts: bool
) -> KernelInfo:
    return KernelInfo(
        index=number,
        kind=entry["kind"],
        steps=entry["steps"],
        flops=entry["flops"],
        bytes=entry["bytes"],
        nodes=tuple(entry["nodes"]),
        func=entry["func"] if texts else "",
        trace=entry["trace"] if texts else "",
        launches=tuple(_launch(item, resources) for item in entry["launches"]),
    )


def _shared(resource: dict[str, Any], launch: dict[str, Any]) -> int | None:
    """Bytes of a kernel's own arrays, or where it has none, what its launch asks for."""
    own: int | None = resource["shared_bytes"]
    return launch["shared_bytes"] if own == 0 else own


def _launch(entry: dict[str, Any], resources: list[dict[str, Any]]) -> LaunchInfo:
    found = tuple(
        ResourceInfo(one["arch"], one["registers"], one["spills"], _shared(one, entry), one["private_bytes"])
        for one in resources
        if one["kernel"] == entry["name"]
    )
    return LaunchInfo(
        entry["name"], tuple(entry["grid"]), tuple(entry["block"]), entry["shared_bytes"], found
    )


def _replayed(number: int, entry: dict[str, Any], target: Target) -> str | None:
    """The source text that the recorded trace makes of the recorded function; None if it does not fit."""
    try:
        return replay_kernel(number, parse_func(entry["func"]), Trace.from_json(entry["trace"]), target)
    except TkError:
        return None


def _same(text: str | None, entry: dict[str, Any]) -> bool:
    """Whether that is the recorded source text."""
    return text is not None and sha256_bytes(text.encode()) == entry["source_sha256"]
