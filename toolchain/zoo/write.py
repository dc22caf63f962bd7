"""Write a draft as an ONNX file: constants inside, or beside it when protobuf's 2 GiB limit is near."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from compiler import Progress, Steps, silent, stream_atomic, write_atomic
from toolchain.zoo.builder import Draft, Initializer

# Protobuf refuses messages of 2^31 bytes; the margin is for everything that is not a constant.
EMBED_LIMIT_BYTES = (1 << 31) - (64 << 20)
_ALIGN_BYTES = 4096
# Shapes, axes and scales stay inside: shape inference reads them and does not open other files.
_SMALL_BYTES = 1024


def write_model(
    draft: Draft, path: Path, *, embed_limit: int = EMBED_LIMIT_BYTES, progress: Progress = silent
) -> None:
    """Write `draft` to `path`, and its constants to `path` + `.data` when they exceed `embed_limit` bytes.

    The bytes depend on the draft alone; `progress` is told of those of its constants. Raises HostError
    when the place cannot be written.
    """
    model = onnx.ModelProto()
    model.CopyFrom(draft.model)
    total = sum(one.size_bytes for one in draft.initializers)
    done = Steps(progress, "weights", total)
    if total > embed_limit:
        _attach_external(model, draft.initializers, path, done)
    else:
        for one in draft.initializers:
            model.graph.initializer.append(_embedded(one))
            done.advance(one.size_bytes)
    write_atomic(path, model.SerializeToString(deterministic=True))


def _embedded(one: Initializer) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=one.name, dims=one.shape, data_type=one.data_type)
    tensor.raw_data = _little_endian(one)
    return tensor


def _attach_external(
    model: onnx.ModelProto, initializers: Sequence[Initializer], path: Path, done: Steps
) -> None:
    """Stream the constants into one file beside the model, each at a page boundary, and refer to them."""
    data = path.with_name(f"{path.name}.data")
    with stream_atomic(data) as stream:
        for one in initializers:
            if one.size_bytes < _SMALL_BYTES:
                model.graph.initializer.append(_embedded(one))
                continue
            stream.write(b"\0" * (-stream.tell() % _ALIGN_BYTES))
            model.graph.initializer.append(_reference(one, data.name, stream.tell()))
            stream.write(_little_endian(one))
            done.advance(one.size_bytes)


def _reference(one: Initializer, location: str, offset: int) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=one.name, dims=one.shape, data_type=one.data_type)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", one.size_bytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _little_endian(one: Initializer) -> bytes:
    values = one.make()
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
