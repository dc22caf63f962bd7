"""ONNX element types and tensors -> ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from compiler.core.diagnostics import BadInputError
from compiler.core.types import DType, dtype
from compiler.frontend.external import ExternalData
from compiler.graph.dtypes import Array, from_numpy, to_numpy, unpacked_array
from compiler.graph.ir import TensorType
from compiler.graph.op import MOST_AXES, InvalidError

_TYPES: dict[int, str] = {
    TensorProto.FLOAT: "f32", TensorProto.DOUBLE: "f64", TensorProto.FLOAT16: "f16",
    TensorProto.BFLOAT16: "bf16", TensorProto.FLOAT8E4M3FN: "f8e4m3", TensorProto.FLOAT8E5M2: "f8e5m2",
    TensorProto.FLOAT8E4M3FNUZ: "f8e4m3fnuz", TensorProto.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
    TensorProto.FLOAT8E8M0: "f8e8m0", TensorProto.FLOAT4E2M1: "f4e2m1",
    TensorProto.INT64: "i64", TensorProto.INT32: "i32", TensorProto.INT16: "i16", TensorProto.INT8: "i8",
    TensorProto.UINT64: "u64", TensorProto.UINT32: "u32", TensorProto.UINT16: "u16", TensorProto.UINT8: "u8",
    TensorProto.INT4: "i4", TensorProto.UINT4: "u4", TensorProto.INT2: "i2", TensorProto.UINT2: "u2",
    TensorProto.BOOL: "bool",
}  # fmt: skip
_CODES = {name: code for code, name in _TYPES.items()}

LIMIT_BYTES = 64 << 30
"""No single tensor may be larger: an absurd shape is refused before anything is allocated."""


def why_too_large(kind: TensorType) -> str:
    """Why no tensor can be of such a type; empty where one can."""
    if kind.rank > MOST_AXES:
        return f"it has {kind.rank:,} dimensions; {MOST_AXES} are possible"
    return f"{kind} is larger than {LIMIT_BYTES >> 30} GiB" if kind.bytes > LIMIT_BYTES else ""


def element_type(code: int) -> DType:
    """Our type for ONNX's; raises ValueError naming those that we do not have."""
    if code not in _TYPES:
        known = code in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(code) if known else f"number {code}"
        raise ValueError(f"element type {name} is not supported")
    return dtype(_TYPES[code])


def element_code(kind: DType) -> int:
    """ONNX's number for an element type of ours."""
    return _CODES[kind.name]


def check_stored_types(schema: onnx.defs.OpSchema | None, kinds: Sequence[DType | None]) -> None:
    """Raise InvalidError for an operand of a type that is stored only, where ONNX does not allow it."""
    for number, kind in enumerate(kinds):
        if schema is None or kind is None or not kind.is_stored:
            continue
        allowed = schema.inputs[min(number, len(schema.inputs) - 1)].types
        name = TensorProto.DataType.Name(_CODES[kind.name]).lower()
        if f"tensor({name})" not in allowed:
            raise InvalidError(
                f"input {number} is {name}, which {schema.name} of opset {schema.since_version} does not take"
            )


def tensor_array(tensor: onnx.TensorProto, external: ExternalData) -> Array:
    """The content of a tensor, inline or external; raises BadInputError when it is not what it says."""
    name = tensor.name or "(unnamed)"
    shape = tuple(tensor.dims)
    try:
        kind = element_type(tensor.data_type)
    except ValueError as error:
        raise BadInputError(f"tensor {name!r} cannot be used", why=str(error)) from error
    if min(shape, default=0) < 0 or math.prod(shape) * kind.bits // 8 > LIMIT_BYTES:
        raise BadInputError(f"tensor {name!r} has an impossible shape", why=f"{list(shape)} of {kind}")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, name, shape, kind, external)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError) as error:
        raise BadInputError(f"tensor {name!r} is broken", why=str(error).split("\n")[0]) from error
    if array.shape != shape or from_numpy(array.dtype) != kind:
        raise BadInputError(f"tensor {name!r} is broken", why=f"it holds {array.shape} instead of {shape}")
    return array


def _external(
    tensor: onnx.TensorProto, name: str, shape: tuple[int, ...], kind: DType, external: ExternalData
) -> Array:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    size = (math.prod(shape) * kind.bits + 7) // 8
    offset, length = _number(facts, "offset", 0, name), _number(facts, "length", size, name)
    if length != size:
        raise BadInputError(
            f"external data of {name!r} has the wrong length",
            why=f"{length} bytes for {kind}{list(shape)} = {size}",
        )
    data = external.read(facts.get("location", ""), offset, size, name)
    if kind.bits < 8:
        return unpacked_array(np.frombuffer(data, np.uint8), kind, shape)
    stored: np.dtype[Any] = to_numpy(kind)
    return np.frombuffer(data, stored).reshape(shape) if size else np.zeros(shape, stored)


def _number(facts: dict[str, str], key: str, default: int, name: str) -> int:
    text = facts.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise BadInputError(f"external data of {name!r} is broken", why=f"its {key} is {text[:40]!r}")
    return int(text)
