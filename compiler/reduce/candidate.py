"""Models that are tried: parts of the original one, with what lies between the parts as inputs.

A model is never changed once it is part of a `Candidate`. Its large constants lie in a file that all share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend.external import ExternalData
from compiler.frontend.subgraphs import reads
from compiler.frontend.tensors import tensor_array
from compiler.reduce.report import ModelSize
from compiler.reduce.store import ReductionStore
from compiler.runtime.tensors import Array

MOST_INLINE_BYTES = 16 << 20
"""Of a constant that becomes part of a model's file; larger ones stay in the file of constants."""
_SHAPE_ELEMENTS = 64
"""Whole numbers up to here may be a shape or a list of axes, which have to be constants."""


@dataclass(frozen=True, slots=True)
class KnownValues:
    """What the reference made of the original model's values: stored arrays by name.

    fixed: those that depend on constants alone.
    """

    arrays: Mapping[str, str]
    fixed: AbstractSet[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A model, and for each of its inputs the stored array that it is fed with."""

    model: onnx.ModelProto
    feeds: Mapping[str, str]

    @property
    def key(self) -> str:
        """A digest of all of it, but of the content of the file of constants."""
        digest = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        digest.update(repr(sorted(self.feeds.items())).encode())
        return digest.hexdigest()

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        nodes: Sequence[onnx.NodeProto] = self.model.graph.node
        return nodes

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of what the model makes."""
        return tuple(one.name for one in self.model.graph.output)

    @property
    def size(self) -> ModelSize:
        graph = self.model.graph
        inputs = sum(prod(dim.dim_value for dim in one.type.tensor_type.shape.dim) for one in graph.input)
        return ModelSize(len(graph.node), inputs, sum(prod(one.dims) for one in graph.initializer))

    def arrays(self, store: ReductionStore) -> dict[str, Array]:
        """What the inputs are fed with."""
        return {name: store.get(kept) for name, kept in self.feeds.items()}


def part(base: Candidate, kept: Iterable[int], known: KnownValues, store: ReductionStore) -> Candidate | None:
    """The model with the nodes of these places alone; what they read of the others is fed, or a constant.

    None where such a value is not known. What others read of the nodes is an output.
    """
    places = set(kept)
    nodes = [node for place, node in enumerate(base.nodes) if place in places]
    others = {name for place, node in enumerate(base.nodes) if place not in places for name in reads(node)}
    made = {name for node in nodes for name in node.output if name}
    inside = {name for node in nodes for name in reads(node)}
    outputs = [
        name
        for node in nodes
        for name in node.output
        if name and (name in others or name in base.outputs or name not in inside)
    ]
    seen = {name for name in outputs if name in others or name in base.outputs}
    # Results that nobody asked for (masks, indices) are left unnamed where there are others.
    wanted = [name for name in outputs if name in seen] or outputs
    cut = _cut(base, inside - made, known, store)
    return None if cut is None else _assembled(base, nodes, cut, wanted)


def with_outputs(base: Candidate, outputs: Sequence[str]) -> Candidate:
    """The model with these outputs alone, and without the nodes that none of them needs."""
    needed, kept = set(outputs), []
    for node in reversed(base.nodes):
        if needed & set(node.output):
            kept.append(node)
            needed |= reads(node)
    return _assembled(base, kept[::-1], ([], [], {}), outputs)


def bypassed(base: Candidate, place: int, name: str) -> Candidate | None:
    """The model without a node, whose readers read its input `name` in place of its first result.

    None where subgraphs read it, or where there would be nothing left to make an output.
    """
    node = base.nodes[place]
    result, nodes = node.output[0], []
    for number, one in enumerate(base.nodes):
        if number == place:
            continue
        made = onnx.NodeProto()
        made.CopyFrom(one)
        made.input[:] = [name if item == result else item for item in one.input]
        if result in reads(made):
            return None
        nodes.append(made)
    outputs = list(dict.fromkeys(name if one == result else one for one in base.outputs))
    computed = {made for one in nodes for made in one.output}
    if not computed.issuperset(outputs):
        return None
    return with_outputs(_assembled(base, nodes, ([], [], {}), outputs), outputs)


def exposed(base: Candidate, names: Iterable[str]) -> Candidate:
    """The model with more outputs."""
    more = [name for name in names if name not in base.outputs]
    return _assembled(base, base.nodes, ([], [], {}), (*base.outputs, *more))


_Cut = tuple[list[onnx.ValueInfoProto], list[onnx.TensorProto], dict[str, str]]


def _cut(base: Candidate, names: set[str], known: KnownValues, store: ReductionStore) -> _Cut | None:
    """New inputs, new constants, and what the inputs are fed with."""
    there = {one.name for one in (*base.model.graph.input, *base.model.graph.initializer)}
    there |= {one.values.name for one in base.model.graph.sparse_initializer}
    values = known.arrays
    inputs, constants, feeds = [], [], {}
    for name in sorted(names - there):
        if name not in values:
            return None
        array = store.get(values[name])
        shape_like = array.dtype.kind in "iub" and array.size <= _SHAPE_ELEMENTS and array.ndim <= 1
        if shape_like or (name in known.fixed and array.nbytes <= MOST_INLINE_BYTES):
            constants.append(numpy_helper.from_array(np.array(array), name))
        else:
            inputs.append(input_for(name, array))
            feeds[name] = values[name]
    return inputs, constants, feeds


def input_for(name: str, array: Array) -> onnx.ValueInfoProto:
    """An input of an array's type and shape."""
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def _assembled(
    base: Candidate, nodes: Sequence[onnx.NodeProto], cut: _Cut, outputs: Sequence[str]
) -> Candidate:
    """A model of these nodes with what of the base they need, and with what is cut."""
    inputs, constants, feeds = cut
    graph = base.model.graph
    needed = {name for node in nodes for name in reads(node)} | set(outputs)
    kept_inputs = [one for one in graph.input if one.name in needed]
    types = {one.name: one for one in graph.output}
    made = onnx.GraphProto(name=graph.name)
    made.node.extend(nodes)
    made.input.extend((*kept_inputs, *inputs))
    made.output.extend(types.get(name, onnx.ValueInfoProto(name=name)) for name in outputs)
    made.initializer.extend((*(one for one in graph.initializer if one.name in needed), *constants))
    made.sparse_initializer.extend(one for one in graph.sparse_initializer if one.values.name in needed)
    kept_feeds = {one.name: base.feeds[one.name] for one in kept_inputs}
    return Candidate(with_graph(base.model, made), {**kept_feeds, **feeds})


def with_graph(model: onnx.ModelProto, graph: onnx.GraphProto) -> onnx.ModelProto:
    """The model with another graph."""
    made = onnx.ModelProto(ir_version=model.ir_version, producer_name="tk reduce")
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    made.graph.CopyFrom(graph)
    return made


def fixed_values(candidate: Candidate) -> set[str]:
    """Values that depend on none of the inputs."""
    varied = {one.name for one in candidate.model.graph.input}
    fixed: set[str] = set()
    for node in candidate.nodes:
        (fixed if varied.isdisjoint(reads(node)) and reads(node) else varied).update(node.output)
    return fixed


def constant_of(tensor: onnx.TensorProto, store: ReductionStore) -> Array | None:
    """The content of a constant of a candidate, mapped where it lies in the file; None for texts."""
    if tensor.data_type == TensorProto.STRING:
        return None
    return tensor_array(tensor, ExternalData(store.root))
