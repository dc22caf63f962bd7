"""Shapes of the model's inputs: fixed dimensions, symbols, `--shape` and `--bind`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from compiler.core.diagnostics import BadInputError, UsageError, did_you_mean
from compiler.core.types import DType
from compiler.core.visible import some
from compiler.frontend.open_dims import Declared, OpenDimensionsError, declared_text, open_dimensions
from compiler.frontend.tensors import element_type, why_too_large
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import TensorType

_UNKNOWN = -1
"""Written by some exporters for an extent that is open."""

Bind = float | int | bool | Sequence[float] | Sequence[int] | Array


def input_types(
    inputs: Sequence[onnx.ValueInfoProto],
    shapes: Mapping[str, Sequence[int]],
    binds: Mapping[str, Bind],
    dims: Mapping[str, int],
    where: str = "",
) -> tuple[dict[str, TensorType], dict[str, Array]]:
    """Types of the inputs, and the content of those that are bound.

    `dims` gives symbols their values; one that an input fixes is fixed for all, too. Raises UsageError for an
    unknown name, a shape that does not fit or dimensions left open; BadInputError for inputs that are no
    tensors.
    """
    names = [item.name for item in inputs]
    _check_names("--shape", shapes, names)
    _check_names("--bind", binds, names)
    declared = {item.name: _declared(item) for item in inputs}
    given = {name: tuple(int(extent) for extent in shape) for name, shape in shapes.items()}
    kinds = {item.name: _element(item) for item in inputs}
    bound = {name: _bound(name, value, to_numpy(kinds[name])) for name, value in binds.items()}
    for name, array in bound.items():
        given.setdefault(name, _bound_shape(array, declared[name]))
    symbols = _given_symbols(dims, declared)
    for name, shape in given.items():
        option = "--shape" if name in shapes else "--bind"
        _fit(f"{option} {name}", shape, declared[name], symbols)
    left = {name: declared[name] for name in names if name not in given}
    found = open_dimensions(left, symbols)
    if found:
        raise OpenDimensionsError(found, where)
    types = {}
    for name in names:
        shape = given[name] if name in given else _resolved(declared[name], symbols)
        types[name] = TensorType(kinds[name], shape)
        if why := why_too_large(types[name]):
            raise BadInputError(f"input {name!r} is too large", where=where, why=why)
    return types, {name: _shaped(name, array, types[name]) for name, array in bound.items()}


def _shaped(name: str, array: Array, kind: TensorType) -> Array:
    """A bound value in the shape of its input."""
    if array.size != kind.size:
        raise UsageError(f"--bind {name}: {array.size} numbers for an input of {kind.size}", why=str(kind))
    return np.ascontiguousarray(array).reshape(kind.shape)


def _check_names(option: str, given: Mapping[str, object], names: Sequence[str]) -> None:
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names) or f"the model's inputs are: {some(names)}"
            raise UsageError(f"{option} {name!r}: the model has no such input", hint=hint)


def _element(item: onnx.ValueInfoProto) -> DType:
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        raise BadInputError(
            f"input {item.name!r} cannot be used", why=f"it is a {kind or 'thing without type'}, not a tensor"
        )
    try:
        return element_type(item.type.tensor_type.elem_type)
    except ValueError as error:
        raise BadInputError(f"input {item.name!r} cannot be used", why=str(error)) from error


def _declared(item: onnx.ValueInfoProto) -> Declared | None:
    """Extents and symbols; an empty symbol stands for a dimension without name; None: not even the rank.

    0 is an extent, that of a tensor without elements.
    """
    tensor = item.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    found: list[int | str] = []
    for dim in tensor.shape.dim:
        if dim.dim_value < _UNKNOWN:
            raise BadInputError(f"input {item.name!r} cannot be used", why=f"an extent is {dim.dim_value}")
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value > _UNKNOWN:
            found.append(dim.dim_value)
        else:
            found.append(dim.dim_param)
    return tuple(found)


def _fit(what: str, shape: Sequence[int], declared: Declared | None, symbols: dict[str, int]) -> None:
    if any(extent < 1 and (extent,) != (declared or ())[at : at + 1] for at, extent in enumerate(shape)):
        raise UsageError(f"{what}: extents must be positive", why=f"got {list(shape)}")
    if declared is None:
        return
    if len(shape) != len(declared):
        raise UsageError(
            f"{what}: wrong number of dimensions",
            why=f"got {list(shape)}, the model says {declared_text(declared)}",
        )
    for extent, wanted in zip(shape, declared, strict=True):
        if isinstance(wanted, int):
            if extent != wanted != 0:  # some exporters write 0 for a dimension that is free
                raise UsageError(
                    f"{what}: a fixed dimension differs",
                    why=f"got {list(shape)}, the model says {declared_text(declared)}",
                )
        elif wanted and symbols.setdefault(wanted, extent) != extent:
            raise UsageError(f"{what}: dimension {wanted!r} is {extent} here and {symbols[wanted]} elsewhere")


def _given_symbols(dims: Mapping[str, int], declared: Mapping[str, Declared | None]) -> dict[str, int]:
    """The values of symbols that the caller gives; raises UsageError for those that no input has."""
    known = {item for shape in declared.values() for item in shape or () if item and isinstance(item, str)}
    for name, extent in dims.items():
        if name not in known:
            listed = f"its symbols are: {some(sorted(known))}" if known else "it has no symbols: see --shape"
            hint = did_you_mean(name, known) or listed
            raise UsageError(f"--dim {name!r}: no input has such a dimension", hint=hint)
        if extent < 1:
            raise UsageError(f"--dim {name!r}: extents must be positive", why=f"got {extent}")
    return dict(dims)


def _resolved(declared: Declared | None, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input whose dimensions are all known by now."""
    return tuple(symbols[item] if isinstance(item, str) else item for item in declared or ())


def _bound(name: str, value: Bind, kind: np.dtype[Any]) -> Array:
    try:
        array = np.asarray(value)
        found = array.astype(kind)
    except (ValueError, TypeError, OverflowError) as error:
        raise UsageError(f"--bind {name}: {value!r} is no value of {kind}", why=str(error)) from error
    if array.size and not np.array_equal(found.astype(np.float64), array.astype(np.float64)):
        raise UsageError(f"--bind {name}: {value!r} does not fit into {kind}")
    return found


def _bound_shape(array: Array, declared: Declared | None) -> tuple[int, ...]:
    """A bound value takes the declared shape where it has as many elements (one number for `[1]`)."""
    if declared is not None and all(isinstance(item, int) for item in declared):
        shape = tuple(item for item in declared if isinstance(item, int))
        return shape if math.prod(shape) == array.size else array.shape
    return array.shape
