"""The original model as the first candidate: static shapes, constants in one file, every node with a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from compiler.core.diagnostics import BadInputError
from compiler.frontend.external import ExternalData
from compiler.frontend.functions import check_size, inlined
from compiler.frontend.open_dims import OpenDimensionsError, batch_name
from compiler.frontend.proto import read_model
from compiler.frontend.shapes import input_types
from compiler.frontend.tensors import element_type, tensor_array
from compiler.graph.dtypes import to_numpy
from compiler.graph.ir import TensorType
from compiler.reduce.candidate import Candidate, input_for, with_graph
from compiler.reduce.report import ReduceRequest
from compiler.reduce.store import CONSTANTS, ReductionStore
from compiler.runtime.specs import TensorSpec
from compiler.runtime.tensors import Array
from compiler.verify.inputs import read_feeds

_INLINE_BYTES = 1 << 10
_ALIGNMENT = 4096
_BITS_OF_A_BYTE = 8
_FREE_BATCH = "the batch, which is left open, is one sample here"


def first_candidate(request: ReduceRequest, store: ReductionStore) -> tuple[Candidate, tuple[str, ...]]:
    """The model with the inputs of one run, and notes; its constants are copied to the store, one at a time.

    Raises UsageError and BadInputError as a compile would for what cannot be read.
    """
    where = str(request.model)
    proto = read_model(request.model)
    check_size(proto, where)
    proto = inlined(proto, where)
    initial = {one.name for one in proto.graph.initializer}
    inputs = [one for one in proto.graph.input if one.name not in initial]
    types, bound, notes = _types(inputs, request)
    specs = [_spec(name, kind) for name, kind in types.items() if name not in bound]
    feeds = {
        name: store.put(array) for name, array in read_feeds(specs, request.inputs, request.seed).items()
    }
    graph = onnx.GraphProto(name="graph")
    graph.input.extend(input_for(one.name, store.get(feeds[one.name])) for one in specs)
    graph.output.extend(proto.graph.output)
    graph.sparse_initializer.extend(proto.graph.sparse_initializer)
    graph.node.extend(_named(node for node in proto.graph.node if _tensor_of(node) is None))
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in bound.items())
    external = ExternalData(request.model.parent)
    with store.writing_constants() as stream:
        for one in _constants(proto):
            graph.initializer.append(_placed(one, external, stream))
    return Candidate(with_graph(proto, graph), feeds), notes


def _types(
    inputs: list[onnx.ValueInfoProto], request: ReduceRequest
) -> tuple[dict[str, TensorType], dict[str, Array], tuple[str, ...]]:
    """Types of the inputs and what is bound; a batch that is left open is one sample."""
    binds: Mapping[str, Any] = request.binds

    def types(shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]) -> Any:
        return input_types(inputs, shapes, binds, dims, str(request.model))

    try:
        return (*types(request.shapes, request.dims), ())
    except OpenDimensionsError as error:
        if batch_name(error.inputs) is None:
            raise
        shapes, dims = dict(request.shapes), dict(request.dims)
        for one in error.inputs:
            first, *others = one.declared or ()
            if first:
                dims[str(first)] = 1
            else:
                shapes[one.name] = (1, *(int(extent) for extent in others))
    return (*types(shapes, dims), (_FREE_BATCH,))


def _spec(name: str, kind: TensorType) -> TensorSpec:
    return TensorSpec(name, to_numpy(kind.dtype).name, kind.shape, kind.bytes)


def _named(nodes: Iterator[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes with a name each of their own, and without comments."""
    seen: set[str] = set()
    for number, node in enumerate(nodes):
        made = onnx.NodeProto()
        made.CopyFrom(node)
        made.ClearField("doc_string")
        made.ClearField("metadata_props")
        if not made.name or made.name in seen:
            made.name = f"{made.name or made.op_type}#{number}"
        seen.add(made.name)
        yield made


def _tensor_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """The content of a node that is a constant tensor."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    return next((one.t for one in node.attribute if one.name == "value"), None)


def _constants(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from proto.graph.initializer
    for node in proto.graph.node:
        tensor = _tensor_of(node)
        if tensor is not None:
            made = onnx.TensorProto()
            made.CopyFrom(tensor)
            made.name = node.output[0]
            yield made


def _placed(tensor: onnx.TensorProto, external: ExternalData, stream: BinaryIO) -> onnx.TensorProto:
    """A constant whose content lies in the stream where it is large; a small one has it in itself."""
    try:
        array = tensor_array(tensor, external)
    except BadInputError:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise
        return tensor  # of a type that we do not have: the compile says it
    if array.nbytes <= _INLINE_BYTES or element_type(tensor.data_type).bits < _BITS_OF_A_BYTE:
        return numpy_helper.from_array(array, tensor.name) if _is_external(tensor) else tensor
    stream.write(b"\0" * (-stream.tell() % _ALIGNMENT))
    made = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    made.data_location = TensorProto.EXTERNAL
    facts = {"location": CONSTANTS, "offset": stream.tell(), "length": array.nbytes}
    for key, value in facts.items():
        made.external_data.add(key=key, value=str(value))
    stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return made


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == TensorProto.EXTERNAL)
