"""Evaluate a graph with the records' numpy references: the meaning that compiled code is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.core.diagnostics import InternalError, UsageError
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import Graph, TensorType, Value
from compiler.graph.op import Op


def apply(
    op: Op, arrays: Sequence[Array], attrs: Attrs, out_types: Sequence[TensorType]
) -> tuple[Array, ...]:
    """The results of one operator; raises InternalError when the reference contradicts the inferred types."""
    results = tuple(np.asarray(item) for item in op.reference(arrays, attrs))
    for found, kind in zip(results, out_types, strict=True):
        if found.shape != kind.shape or found.dtype != to_numpy(kind.dtype):
            raise InternalError(
                f"reference of {op.name} made {found.dtype}{list(found.shape)}, expected {kind}"
            )
    return results


def evaluate(
    graph: Graph,
    inputs: Mapping[str, Array],
    observe: Callable[[Value, Array], None] | None = None,
) -> dict[str, Array]:
    """The graph's outputs, by name, for inputs of exactly the declared names, shapes and types.

    `observe` sees every value as it is computed. Memory is freed after the last use. Raises UsageError for
    inputs that do not fit.
    """
    held = dict(graph.constants)
    for value, name in zip(graph.inputs, graph.input_names, strict=True):
        held[value] = _checked_input(name, value.type, inputs)
    last = {value: item for item in graph.nodes for value in item.inputs}
    kept = set(graph.outputs) | set(graph.constants)
    for item in graph.nodes:
        arrays, types = [held[value] for value in item.inputs], [value.type for value in item.outputs]
        results = apply(item.op, arrays, item.attrs, types)
        for value, array in zip(item.outputs, results, strict=True):
            held[value] = array
            if observe is not None:
                observe(value, array)
        for value in set(item.inputs):
            if last[value] is item and value not in kept:
                del held[value]
    pairs = zip(graph.output_names, graph.outputs, strict=True)
    return {name: np.ascontiguousarray(held[value]).reshape(value.type.shape) for name, value in pairs}


def _checked_input(name: str, kind: TensorType, inputs: Mapping[str, Array]) -> Array:
    if name not in inputs:
        raise UsageError(f"input {name!r} is missing", why=f"the model reads {kind}")
    array = np.asarray(inputs[name])
    if array.shape != kind.shape or array.dtype != to_numpy(kind.dtype):
        raise UsageError(
            f"input {name!r} is {array.dtype}{list(array.shape)}", why=f"the model reads {kind}",
        )  # fmt: skip
    return array
