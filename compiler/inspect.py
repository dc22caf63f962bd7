"""What is inside a model file, and what of it cannot be compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from compiler.frontend.onnx import import_model
from compiler.frontend.proto import read_model
from compiler.frontend.refusals import UnsupportedModelError
from compiler.frontend.shapes import Bind
from compiler.graph.convert import lay_out
from compiler.graph.fuse import fuse
from compiler.graph.ir import Graph, Value
from compiler.graph.rewrites import rewrite_graph
from compiler.reports import ModelReport, OpCount, TensorInfo, Unsupported
from compiler.stages.layout_costs import TargetLayoutCosts
from compiler.stages.storage import Use, plan_storage
from compiler.targets import get_target


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
        outputs=_tensors(graph.output_names, graph.results),
        ops=_op_counts(graph),
        parameters=sum(array.size for array in graph.constants.values()),
        parameter_bytes=sum(array.nbytes for array in graph.constants.values()),
        flops=graph.flops,
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
    laid_out = lay_out(fuse(rewrite_graph(graph)), TargetLayoutCosts(get_target().facts))
    constants = laid_out.fused.graph.constants
    uses = [Use(tuple(v for v in g.inputs if v not in constants), g.outputs) for g in laid_out.computed]
    return plan_storage(laid_out, uses).plan.bytes
