"""A model of few nodes made plainer: smaller shapes, constants of zeros and ones, attributes left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from compiler.frontend.proto import schema_of
from compiler.reduce.candidate import MOST_INLINE_BYTES, Candidate, constant_of, input_for, with_graph
from compiler.reduce.store import ReductionStore
from compiler.runtime.tensors import Array

Take = Callable[[Candidate], bool]
"""Whether a model shows the fault; if so it is what the next ones are made of."""

_MOST_ROUNDS = 40


def smaller_shapes(current: Callable[[], Candidate], take: Take, store: ReductionStore) -> None:
    """Halve extents as long as the fault is still there: one number wherever it occurs, else in one place."""
    for _ in range(_MOST_ROUNDS):
        if not any(take(one) for one in _smaller(current(), store)):
            return


def plainer_constants(
    current: Callable[[], Candidate], take: Take, store: ReductionStore, *, alike: bool
) -> None:
    """Constants and inputs of zeros, of ones, or of few digits, in this order.

    Without `alike` of few digits only: where all elements are alike, few steps of the compiler can make any
    difference to a result.
    """
    names = [one.name for one in (*current().model.graph.initializer, *current().model.graph.input)]
    for name in names:
        for plain in (np.zeros_like, np.ones_like, _rounded) if alike else (_rounded,):
            made = _with_content(current(), name, plain, store)
            if made is not None and take(made):
                break


def fewer_attributes(current: Callable[[], Candidate], take: Take) -> None:
    """Leave out attributes that have defaults."""
    for place in range(len(current().nodes)):
        for name in [one.name for one in current().nodes[place].attribute]:
            made = _without_attribute(current(), place, name)
            if made is not None:
                take(made)


# ---------------------------------------------------------------- shapes


def _smaller(candidate: Candidate, store: ReductionStore) -> Iterator[Candidate]:
    """Models with a number halved everywhere, largest first, or in one dimension of one tensor."""
    shapes = _shapes(candidate)
    extents = sorted({extent for shape in shapes.values() for extent in shape if extent > 1}, reverse=True)
    for old, new in ((extent, less) for extent in extents for less in dict.fromkeys((1, extent // 2))):
        wanted = {name: tuple(new if one == old else one for one in shape) for name, shape in shapes.items()}
        for number in ((old, new), None):
            yield from _resized(candidate, wanted, number, store)
    for name, shape in shapes.items():
        for axis, extent in enumerate(shape):
            if extent > 1:
                half = (*shape[:axis], extent // 2, *shape[axis + 1 :])
                yield from _resized(candidate, {**shapes, name: half}, None, store)


_Shapes = Mapping[str, tuple[int, ...]]


def _shapes(candidate: Candidate) -> dict[str, tuple[int, ...]]:
    graph = candidate.model.graph
    found = {one.name: tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim) for one in graph.input}
    return found | {one.name: tuple(one.dims) for one in graph.initializer}


def _resized(
    candidate: Candidate, wanted: _Shapes, number: tuple[int, int] | None, store: ReductionStore
) -> Iterator[Candidate]:
    """The model with the beginnings of tensors alone; `number` replaces one in attributes and shapes, too.

    None where a constant is too large to be copied.
    """
    shapes = _shapes(candidate)
    graph = _copy_of(candidate)
    feeds = dict(candidate.feeds)
    for one in graph.input:
        if wanted[one.name] != shapes[one.name]:
            cut = store.get(feeds[one.name])[tuple(slice(extent) for extent in wanted[one.name])]
            feeds[one.name] = store.put(cut)
            one.CopyFrom(input_for(one.name, cut))
    for tensor in graph.initializer:
        if not _resize_constant(tensor, wanted[tensor.name], number, store):
            return
    for node in graph.node if number is not None else ():
        for attribute in node.attribute:
            _replace_number(attribute, number)
    yield _candidate(candidate, graph, feeds)


def _resize_constant(
    tensor: onnx.TensorProto, shape: tuple[int, ...], number: tuple[int, int] | None, store: ReductionStore
) -> bool:
    """Cut a constant, and change a number in one that may be a shape; False where it is too large."""
    array = constant_of(tensor, store)
    if array is None or (tuple(tensor.dims) == shape and not _may_be_a_shape(array)):
        return True
    if prod(shape) * array.itemsize > MOST_INLINE_BYTES:
        return False
    cut = array[tuple(slice(extent) for extent in shape)]
    if number is not None and _may_be_a_shape(cut):
        cut = np.where(cut == number[0], np.array(number[1], cut.dtype), cut)
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(cut).reshape(cut.shape), tensor.name))
    return True


def _may_be_a_shape(array: Array) -> bool:
    return array.dtype == np.int64 and array.ndim <= 1


def _replace_number(attribute: onnx.AttributeProto, number: tuple[int, int] | None) -> None:
    """Groups, sizes and the like follow the shapes."""
    if number is None:
        return
    old, new = number
    if attribute.type == AttributeProto.INT and attribute.i == old:
        attribute.i = new
    elif attribute.type == AttributeProto.INTS:
        attribute.ints[:] = [new if one == old else one for one in attribute.ints]


# ---------------------------------------------------------------- content


def _with_content(
    candidate: Candidate, name: str, plain: Callable[[Array], Array], store: ReductionStore
) -> Candidate | None:
    """The model with other content of one constant or input; None where that is no change."""
    if name in candidate.feeds:
        array = store.get(candidate.feeds[name])
        made = store.put(np.asarray(plain(array)))
        return (
            None
            if made == candidate.feeds[name]
            else Candidate(candidate.model, {**candidate.feeds, name: made})
        )
    graph = _copy_of(candidate)
    for tensor in graph.initializer:
        if tensor.name == name:
            before = constant_of(tensor, store)
            if before is None or before.nbytes > MOST_INLINE_BYTES or _may_be_a_shape(before):
                return None
            after = np.asarray(plain(before), before.dtype)
            if np.array_equal(before, after):
                return None
            tensor.CopyFrom(numpy_helper.from_array(after, name))
            return _candidate(candidate, graph, candidate.feeds)
    return None


def _rounded(array: Array) -> Array:
    """To halves, which are easy to compute with by hand."""
    if array.dtype.kind != "f":
        return array
    rounded: Array = (np.round(np.asarray(array, np.float64) * 2) / 2).astype(array.dtype)
    return rounded


def _without_attribute(candidate: Candidate, place: int, name: str) -> Candidate | None:
    node = candidate.nodes[place]
    schema = schema_of(node.op_type, node.domain, _opset(candidate.model, node.domain))
    known = None if schema is None else schema.attributes.get(name)
    if known is None or known.required:
        return None
    graph = _copy_of(candidate)
    kept = [one for one in graph.node[place].attribute if one.name != name]
    del graph.node[place].attribute[:]
    graph.node[place].attribute.extend(kept)
    return _candidate(candidate, graph, candidate.feeds)


def _opset(model: onnx.ModelProto, domain: str) -> int:
    return next((one.version for one in model.opset_import if one.domain == domain), 1)


def _copy_of(candidate: Candidate) -> onnx.GraphProto:
    graph = onnx.GraphProto()
    graph.CopyFrom(candidate.model.graph)
    for one in graph.output:  # other extents, perhaps
        one.CopyFrom(onnx.ValueInfoProto(name=one.name))
    return graph


def _candidate(base: Candidate, graph: onnx.GraphProto, feeds: Mapping[str, str]) -> Candidate:
    return Candidate(with_graph(base.model, graph), feeds)
