"""Which files a model consists of, for those who copy it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from compiler.frontend.external import ExternalData
from compiler.frontend.proto import read_model


def external_files(path: Path) -> tuple[str, ...]:
    """Files of tensor data that the model in `path` names, relative to its directory, sorted.

    Each was opened as `ExternalData` does, so none lies outside that directory. Raises BadInputError.
    """
    external = ExternalData(path.parent)
    for tensor in _tensors(read_model(path).graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            for entry in tensor.external_data:
                if entry.key == "location":
                    external.content(entry.value, tensor.name)
    return tuple(sorted(external.names))


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                yield from _tensors(inner)
