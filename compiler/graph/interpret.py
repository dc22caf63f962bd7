"""Evaluate a graph with the records' numpy references: the meaning that compiled code is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.core.diagnostics import InternalError, UsageError
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy, packed_array, stored_array, to_numpy, unpacked_array
from compiler.graph.extents import Ends, part_of, symbols_of, with_counts
from compiler.graph.ir import Graph, Shape, TensorType, Value
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
    beyond: float = 0.0,
) -> dict[str, Array]:
    """The graph's outputs, by name, for inputs of exactly the declared names, shapes and types.

    With symbols inputs may have the shapes of any run, and so have outputs; all that is computed is of the
    largest extents. beyond: floating-point numbers that lie outside of what a run has, of inputs and of what
    is undefined there; no result depends on them. `observe` sees every value as it is computed. Memory is
    freed after the last use. Raises UsageError for inputs that do not fit.
    """
    symbols = _symbols(graph, inputs)
    held = dict(graph.constants) | _held_inputs(graph, inputs, symbols, beyond)
    last = {value: item for item in graph.nodes for value in item.inputs}
    kept = set(graph.outputs) | set(graph.constants)
    for item in graph.nodes:
        arrays, types = [held[value] for value in item.inputs], [value.type for value in item.outputs]
        with np.errstate(all="ignore" if symbols else None):  # beyond a run's part may be anything
            results = apply(item.op, arrays, item.attrs, types)
        for value, array in zip(item.outputs, results, strict=True):
            if value in graph.undefined and beyond and symbols:
                array = _replaced_beyond(array, graph.undefined[value], symbols, beyond)
            held[value] = array
            if observe is not None:
                observe(value, array)
        for value in set(item.inputs):
            if last[value] is item and value not in kept:
                del held[value]
    if symbols:
        first = len(graph.results)
        counts = [int(held[value]) for value in graph.outputs[first : first + graph.counts]]
        symbols = with_counts(graph, symbols, counts)
    found = zip(graph.output_names, graph.outputs, graph.output_types, strict=True)
    return {
        name: _cut(graph, value, _from_memory(np.ascontiguousarray(held[value]), kind), symbols)
        for name, value, kind in found
    }


def _symbols(graph: Graph, inputs: Mapping[str, Array]) -> tuple[int, ...]:
    """What the inputs say of the symbols; nothing where one of them is missing, which is told of later."""
    names = graph.input_names[: len(graph.operands)]
    if not graph.symbols or not inputs.keys() >= set(names):
        return ()
    return symbols_of(graph, {name: np.shape(inputs[name]) for name in names})


def _held_inputs(
    graph: Graph, inputs: Mapping[str, Array], symbols: Sequence[int], beyond: float
) -> dict[Value, Array]:
    """All inputs as they lie in memory, with the sizes."""
    held = {}
    for value, kind, name in zip(graph.operands, graph.input_types, graph.input_names, strict=False):
        part = kind.with_shape(part_of(graph, value, symbols)) if value in graph.extents and symbols else kind
        held[value] = _in_memory(_spread(_checked_input(name, part, inputs), kind.shape, beyond), value.type)
    for value, number in zip(graph.inputs[len(graph.operands) :], symbols, strict=False):
        held[value] = np.full(value.type.shape, number, np.int64)
    return held


def _spread(array: Array, shape: Shape, beyond: float) -> Array:
    """An array of which a run has a part, as it lies in memory."""
    if array.shape == shape:
        return array
    whole = np.zeros(shape, array.dtype)
    if array.dtype.kind not in "biu":
        whole[...] = beyond
    whole[tuple(map(slice, array.shape))] = array
    return whole


def _replaced_beyond(array: Array, ends: Ends, symbols: Sequence[int], beyond: float) -> Array:
    """An array with a number in place of what is behind any of its ends."""
    if array.dtype.kind in "biu":
        return array
    pairs = zip(array.shape, ends, strict=True)
    inside = tuple(slice(size if end is None else end.of(symbols)) for size, end in pairs)
    whole = np.full_like(array, beyond)
    whole[inside] = array[inside]
    return whole


def _cut(graph: Graph, value: Value, array: Array, symbols: Sequence[int]) -> Array:
    if value not in graph.extents:
        return array
    return np.ascontiguousarray(array[tuple(map(slice, part_of(graph, value, symbols)))])


def _in_memory(array: Array, kind: TensorType) -> Array:
    """An input as it lies in memory: packed, where its elements have fewer than 8 bits."""
    if array.dtype == to_numpy(kind.dtype):
        return array
    if from_numpy(array.dtype).bits < _BYTE:
        return packed_array(array).reshape(kind.shape)
    return stored_array(array)


def _from_memory(array: Array, kind: TensorType) -> Array:
    if array.dtype == to_numpy(kind.dtype):
        return array.reshape(kind.shape)
    if kind.dtype.bits < _BYTE:
        return unpacked_array(array, kind.dtype, kind.shape)
    return array.view(to_numpy(kind.dtype)).reshape(kind.shape)


_BYTE = 8


def _checked_input(name: str, kind: TensorType, inputs: Mapping[str, Array]) -> Array:
    if name not in inputs:
        raise UsageError(f"input {name!r} is missing", why=f"the model reads {kind}")
    array = np.asarray(inputs[name])
    if array.shape != kind.shape or array.dtype != to_numpy(kind.dtype):
        raise UsageError(
            f"input {name!r} is {array.dtype}{list(array.shape)}", why=f"the model reads {kind}",
        )  # fmt: skip
    return array
