"""Operators whose shapes depend on operands that only a run knows, where the model declares the results.

Each is computed from other operators, with indices made of its operands. What it gives back says, too,
whether the operands lead to the declared types: a library is for these alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from compiler.core.types import BOOL, I32, I64, DType
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import TensorType, Value
from compiler.graph.op import (
    AtRun,
    Checked,
    Emitter,
    InvalidError,
    OnnxNode,
    UnsupportedError,
    normal_axis,
)

# ---------------------------------------------------------------- small tensors of integers


def declared_type(node: OnnxNode, number: int = 0) -> TensorType:
    """What the model says of the type of an output; raises UnsupportedError where it does not."""
    found = node.declared[number] if number < len(node.declared) else None
    if found is None:
        raise UnsupportedError(
            "its shape depends on the content of inputs, and the model does not declare it; "
            "if a model input carries the content, give --bind"
        )
    return found


def operand(node: OnnxNode, number: int) -> Value | None:
    """An operand; None where it is left out."""
    return node.inputs[number] if number < len(node.inputs) else None


def _given(node: OnnxNode, number: int) -> Value:
    found = operand(node, number)
    if found is None:
        raise InvalidError(f"its input {number} is missing")
    return found


def _integers(e: Emitter, values: Any, kind: DType = I64) -> Value:
    return e.constant(np.asarray(values, to_numpy(kind)))


def _vector(e: Emitter, value: Value) -> Value:
    """A scalar or vector as a vector of i64."""
    if value.type.rank > 1 or not value.type.dtype.is_int:
        raise InvalidError(f"an input that says a shape is {value.type}, expected integers of rank 0 or 1")
    wide = value if value.type.dtype == I64 else e.emit("Cast", value, to=I64)
    return wide if value.type.rank else e.emit("Reshape", wide, shape=(1,))


def all_hold(e: Emitter, flags: Value) -> Value:
    """1 where all flags hold, else 0, as a scalar."""
    numbers = e.emit("Cast", flags, to=I32)
    axes = tuple(range(flags.type.rank))
    return e.emit("ReduceMin", numbers, axes=axes, keepdims=False) if axes else numbers


def _any_along(e: Emitter, flags: Value, axis: int) -> Value:
    """Along an axis: 1 where any flag holds, else 0."""
    numbers = e.emit("Cast", flags, to=I32)
    return e.emit("ReduceMax", numbers, axes=(axis,), keepdims=False)


def _is_one_of(e: Emitter, vector: Value, allowed: Sequence[Iterable[int]]) -> Value:
    """Whether each element of a vector is one of those allowed for it."""
    rows = [tuple(dict.fromkeys(item)) for item in allowed]
    if vector.type.size != len(rows):
        raise InvalidError(
            f"an input that says a shape has {vector.type.size} elements, expected {len(rows)}"
        )
    if not rows:
        return _integers(e, 1, I32)
    most = max(map(len, rows))
    table = np.array([row + row[-1:] * (most - len(row)) for row in rows], np.int64).T
    column = e.emit("Reshape", vector, shape=(1, len(rows)))
    found = _any_along(e, e.emit("Equal", column, _integers(e, table)), 0)
    return e.emit("ReduceMin", found, axes=(0,), keepdims=False)


def is_number(e: Emitter, value: Value, number: int) -> Value:
    """1 where an operand of one element is this number, else 0."""
    whole = value if value.type.dtype.is_int else e.emit("Cast", value, to=I64)
    return _is_one_of(e, _vector(e, whole), [(number,)])


def _one_hot(e: Emitter, axes: Value, rank: int) -> Value:
    """For each of the axes, which may count from the end, a row with a 1 at its place."""
    count = axes.type.size
    wrapped = e.emit("Add", axes, _integers(e, rank))
    front = e.emit("Where", e.emit("Less", axes, _integers(e, 0)), wrapped, axes)
    column = e.emit("Reshape", front, shape=(count, 1))
    return e.emit("Cast", e.emit("Equal", column, _integers(e, [list(range(rank))])), to=I64)


def _placed(e: Emitter, one_hot: Value, values: Value) -> Value:
    """Values for some axes as a vector over all of them, 0 elsewhere."""
    column = e.emit("Reshape", values, shape=(values.type.size, 1))
    return e.emit("ReduceSum", e.emit("Mul", one_hot, column), axes=(0,), keepdims=False)


def _either(e: Emitter, condition: Value, yes: Value, no: Value) -> Value:
    return e.emit("Where", condition, yes, no)


def element(e: Emitter, vector: Value, at: int) -> Value:
    """One element of a vector, as a vector."""
    return e.emit("Slice", vector, begin=(at,), step=(1,), size=(1,))


def _take(e: Emitter, data: Value, places: Value, axis: int) -> Value:
    return e.emit("Gather", data, places, axis=axis)


# ---------------------------------------------------------------- shapes that the model declares


def reshaped(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Reshape to the declared shape, which an element asks for by itself, -1, or 0 for the operand's own."""
    data, shape = _given(node, 0), declared_type(node).shape
    own = () if attrs.flag("allowzero", default=False) else data.type.shape
    allowed = [
        (extent, -1, *((0,) if own[at : at + 1] == (extent,) else ())) for at, extent in enumerate(shape)
    ]
    agrees = _is_one_of(e, _vector(e, _given(node, 1)), allowed)
    return Checked((_reshape(e, data, shape),), agrees)


def _reshape(e: Emitter, data: Value, shape: Sequence[int]) -> Value:
    if data.type.size != data.type.with_shape(shape).size:
        raise InvalidError(f"the model declares {list(shape)} for a view of {data.type}")
    return e.emit("Reshape", data, shape=tuple(shape))


def axes_of_ones(*, added: bool) -> AtRun:
    """Squeeze, or Unsqueeze (`added`): whichever axes of extent 1 these are, the elements stay."""

    def compute(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
        data, shape = _given(node, 0), declared_type(node).shape
        axes, larger = _vector(e, _given(node, 1)), shape if added else data.type.shape
        ones = [at - side for at, extent in enumerate(larger) if extent == 1 for side in (0, len(larger))]
        if abs(len(shape) - data.type.rank) != axes.type.size or not ones:
            raise InvalidError(f"{axes.type.size} axes do not make {list(shape)} of {data.type}")
        return Checked((_reshape(e, data, shape),), _is_one_of(e, axes, [ones] * axes.type.size))

    return compute


def expanded(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Expand to the declared shape."""
    data, shape, asked = _given(node, 0), declared_type(node).shape, _vector(e, _given(node, 1))
    own = (1,) * (len(shape) - data.type.rank) + data.type.shape
    last = len(shape) - asked.type.size
    allowed = [(extent, 1) if extent == had else (extent,) for extent, had in zip(shape, own, strict=True)]
    agrees = _is_one_of(e, asked, allowed[max(last, 0) :])
    return Checked((e.emit("Expand", data, shape=shape),), agrees)


def tiled(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Tile as often as the declared shape needs."""
    data, shape = _given(node, 0), declared_type(node).shape
    pairs = list(zip(shape, data.type.shape, strict=True))
    if any(had == 0 or extent % had for extent, had in pairs):
        raise UnsupportedError(f"the model declares {list(shape)} for {data.type}, repeated")
    repeats = tuple(extent // had for extent, had in pairs)
    agrees = _is_one_of(e, _vector(e, _given(node, 1)), [(times,) for times in repeats])
    return Checked((e.emit("Tile", data, repeats=repeats),), agrees)


def filled(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """ConstantOfShape of the declared shape."""
    kind = declared_type(node)
    given = node.attrs.get("value")
    fill = given.reshape(-1)[0] if isinstance(given, np.ndarray) else np.float32(0)
    agrees = _is_one_of(e, _vector(e, _given(node, 0)), [(extent,) for extent in kind.shape])
    return Checked((e.constant(np.broadcast_to(np.asarray(fill), kind.shape)),), agrees)


def split(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Split into parts of the declared extents."""
    data = _given(node, 0)
    axis = normal_axis(attrs.integer("axis"), data.type.rank)
    sizes = [declared_type(node, number).shape[axis] for number in range(len(node.used_outputs))]
    if sum(sizes) != data.type.shape[axis]:
        raise InvalidError(f"the declared extents {sizes} do not add up to {data.type.shape[axis]}")
    agrees = _is_one_of(e, _vector(e, _given(node, 1)), [(size,) for size in sizes])
    parts, begin = [], 0
    for size in sizes:
        place = tuple(begin if at == axis else 0 for at in range(data.type.rank))
        shape = tuple(size if at == axis else extent for at, extent in enumerate(data.type.shape))
        parts.append(e.emit("Slice", data, begin=place, step=(1,) * data.type.rank, size=shape))
        begin += size
    return Checked(tuple(parts), agrees)


# ---------------------------------------------------------------- axes


def over_axes(name: str) -> AtRun:
    """A reduction by the operator `name`: one for each set of axes that leads to the declared shape."""

    def compute(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
        data, kind, axes = _given(node, 0), declared_type(node), _vector(e, _given(node, 1))
        keep, rank = attrs.flag("keepdims"), data.type.rank
        hot = _any_along(e, e.emit("Cast", _one_hot(e, axes, rank), to=BOOL), 0)
        options = []
        for chosen in combinations(range(rank), axes.type.size):
            made = tuple(
                1 if at in chosen else n for at, n in enumerate(data.type.shape) if keep or at not in chosen
            )
            if made == kind.shape:
                flags = _integers(e, [at in chosen for at in range(rank)], I32)
                options.append((all_hold(e, e.emit("Equal", hot, flags)), chosen))
        return _chosen(e, kind, options, lambda axes: e.emit(name, data, axes=axes, keepdims=keep))

    return compute


def _chosen(
    e: Emitter,
    kind: TensorType,
    options: Sequence[tuple[Value, tuple[int, ...]]],
    make: Callable[[tuple[int, ...]], Value],
) -> Checked:
    """What `make` makes of the option that holds at run time."""
    if not options:
        raise InvalidError(f"no axes lead to {kind}, which the model declares")
    (agrees, first), *others = options
    result = make(first)
    for holds, axes in others:
        result = _either(e, e.emit("Cast", holds, to=BOOL), make(axes), result)
        agrees = e.emit("Max", agrees, holds)
    return Checked((result,), agrees)


# ---------------------------------------------------------------- indices


def sliced(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Slice by indices made of its operands, which are clamped as the standard says."""
    data, shape = _given(node, 0), declared_type(node).shape
    rank, extents = data.type.rank, _integers(e, data.type.shape)
    starts, ends = _vector(e, _given(node, 1)), _vector(e, _given(node, 2))
    one_hot, touched = _axes(e, node, 3, starts.type.size, rank)
    steps = operand(node, 4)
    chosen = e.emit("ReduceSum", one_hot, axes=(0,), keepdims=False)
    others = e.emit("Sub", _integers(e, 1), chosen)
    step = others if steps is not None else _integers(e, [1] * rank)
    if steps is not None:
        step = e.emit("Add", _placed(e, one_hot, _vector(e, steps)), others)
    forward = e.emit("Greater", step, _integers(e, 0))
    low = _either(e, forward, _integers(e, 0), _integers(e, -1))
    high = e.emit("Add", extents, low)  # backwards from the last element to before the first

    def clamped(value: Value) -> Value:
        wrapped = _either(e, e.emit("Less", value, _integers(e, 0)), e.emit("Add", value, extents), value)
        return e.emit("Min", e.emit("Max", wrapped, low), high)

    first = clamped(_placed(e, one_hot, starts))
    last = clamped(e.emit("Add", _placed(e, one_hot, ends), e.emit("Mul", others, extents)))
    count = _steps_between(e, first, last, step, forward)
    agrees = all_hold(e, e.emit("Equal", count, _integers(e, shape)))
    for axis in touched:
        begin, by = element(e, first, axis), element(e, step, axis)
        along = _integers(e, np.arange(shape[axis]))
        data = _take(e, data, e.emit("Add", begin, e.emit("Mul", along, by)), axis)
    return Checked((data,), agrees)


def _steps_between(e: Emitter, first: Value, last: Value, step: Value, forward: Value) -> Value:
    """How many steps lead from `first` to before `last`: the distance by the step, rounded up, or -1."""
    kind = step.type.dtype
    zero, one, minus = (_integers(e, value, kind) for value in (0, 1, -1))
    distance = e.emit("Sub", e.emit("Add", e.emit("Sub", last, first), step), _either(e, forward, one, minus))
    stays = e.emit("Equal", step, zero)
    count = e.emit("Div", distance, _either(e, stays, one, step))
    return _either(e, stays, minus, e.emit("Max", count, zero))


def _axes(e: Emitter, node: OnnxNode, number: int, count: int, rank: int) -> tuple[Value, tuple[int, ...]]:
    """For each of `count` axes a row with a 1 at its place, and which axes may be meant."""
    given = operand(node, number)
    if given is None:
        return _one_hot(e, _integers(e, list(range(count))), rank), tuple(range(count))
    known = e.known(given)
    places = range(rank) if known is None else (normal_axis(int(at), rank) for at in known.reshape(-1))
    return _one_hot(e, _vector(e, given), rank), tuple(places)


def padded(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Pad by indices made of its operands."""
    data, kind, pads = _given(node, 0), declared_type(node), _vector(e, _given(node, 1))
    rank, count, mode = data.type.rank, pads.type.size // 2, attrs.text("mode")
    extents = _integers(e, data.type.shape)
    one_hot, touched = _axes(e, node, 3, count, rank)
    before, after = (
        _placed(e, one_hot, e.emit("Slice", pads, begin=(at,), step=(1,), size=(count,))) for at in (0, count)
    )
    agrees = all_hold(
        e,
        e.emit("Equal", e.emit("Add", extents, e.emit("Add", before, after)), _integers(e, kind.shape)),
    )
    inside = None
    for axis in touched:
        extent, along = data.type.shape[axis], _integers(e, np.arange(kind.shape[axis]))
        place = e.emit("Sub", along, element(e, before, axis))
        if mode == "constant":
            holds = e.emit(
                "And",
                e.emit("Not", e.emit("Less", place, _integers(e, 0))),
                e.emit("Less", place, _integers(e, extent)),
            )
            row = _along(e, holds, axis, rank)
            inside = row if inside is None else e.emit("And", inside, row)
        data = _take(e, data, _source(e, mode, place, extent), axis)
    if inside is not None:
        data = _either(e, inside, data, _padding(e, node, data.type.dtype))
    return Checked((data,), agrees)


def _along(e: Emitter, vector: Value, axis: int, rank: int) -> Value:
    """A vector along an axis of a tensor."""
    shape = tuple(vector.type.size if at == axis else 1 for at in range(rank))
    return e.emit("Reshape", vector, shape=shape)


def _padding(e: Emitter, node: OnnxNode, kind: DType) -> Value:
    given = operand(node, 2)
    if given is None:
        return _integers(e, 0, kind)
    return given if given.type.rank == 0 else e.emit("Reshape", given, shape=())


def _source(e: Emitter, mode: str, place: Value, extent: int) -> Value:
    """Where an element comes from whose place, seen from the operand, may be outside of it."""
    if mode == "wrap":
        return e.emit("Mod", place, _integers(e, extent), fmod=False)
    if mode == "reflect":
        folded = e.emit("Abs", place)
        return e.emit("Min", folded, e.emit("Sub", _integers(e, 2 * (extent - 1)), folded))
    if mode not in ("constant", "edge"):
        raise InvalidError(f"Pad has no mode {mode!r}")
    return e.emit("Min", e.emit("Max", place, _integers(e, 0)), _integers(e, extent - 1))


def stepped(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Range with as many numbers as declared."""
    kind = declared_type(node)
    start, limit, delta = (_given(node, number) for number in range(3))
    zero, number = _integers(e, 0, kind.dtype), np.arange(kind.size)
    forward = e.emit("Greater", delta, zero)
    if kind.dtype.is_int:
        count = e.emit("Cast", _steps_between(e, start, limit, delta, forward), to=I64)
    else:
        count = e.emit("Cast", e.emit("Ceil", e.emit("Div", e.emit("Sub", limit, start), delta)), to=I64)
        count = e.emit("Max", count, _integers(e, 0))
    along = e.constant(number.astype(to_numpy(kind.dtype)))
    values = e.emit("Add", start, e.emit("Mul", along, delta))
    return Checked((values,), all_hold(e, e.emit("Equal", count, _integers(e, kind.size))))


def triangle(e: Emitter, node: OnnxNode, attrs: Attrs) -> Checked:
    """Trilu: the elements whose distance from the diagonal is on the right side of `k`."""
    data, k = _given(node, 0), _vector(e, _given(node, 1))
    rows, columns = data.type.shape[-2:]
    distance: Array = np.arange(columns) - np.arange(rows)[:, None]
    order = "Less" if attrs.flag("upper") else "Greater"
    cut = e.emit(order, _integers(e, distance), k)
    zero = e.constant(np.zeros((), to_numpy(data.type.dtype)))
    return Checked((_either(e, cut, zero, data),))
