"""Model files as protobuf reads them, and what ONNX itself says of operators."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from compiler.core.diagnostics import BadInputError
from compiler.frontend.foreign import refuse_foreign


def read_model(path: Path) -> onnx.ModelProto:
    """Parse a model file, without its external data; raises BadInputError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInputError(
            "the model cannot be read", where=str(path), why=error.strerror or str(error)
        ) from error
    refuse_foreign(data, path)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise broken(str(path), "it is no protobuf message, or cut off") from error
    if not model.HasField("graph") or not model.ir_version:
        raise broken(str(path), "it has no graph" if model.ir_version else "it has no ir_version")
    return model


def broken(where: str, why: str) -> BadInputError:
    """The error of a file that cannot be used as a model at all."""
    return BadInputError(
        "this is no valid ONNX model", where=where, why=why, hint="copy or export the file again"
    )


def first_line(error: BaseException) -> str:
    """What an error of somebody else says, as far as it fits a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


@cache
def schema_of(name: str, domain: str, opset: int) -> onnx.defs.OpSchema | None:
    """ONNX's own description of an operator, where this version of the package has one."""
    try:
        return onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None
