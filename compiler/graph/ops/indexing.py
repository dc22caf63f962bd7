"""Operators that cut, join, pad and keep triangles.

Canonical attributes: axes count from the front; `Slice` has one begin, step and size per axis; `Pad` has one
`before` and `after` per axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    PIECES,
    Emitter,
    Form,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Sign,
    Signature,
    Types,
    UnsupportedError,
    Values,
    everywhere,
    moved,
    no_change,
    no_flops,
    normal_axis,
    same_dtype,
    where_to_read,
)
from compiler.graph.ops import at_run
from compiler.loops.build import Builder
from compiler.loops.ir import Buffer, Expr, Select, all_of, maximum, minimum, wrap

# ---------------------------------------------------------------- slices


def _slice_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, shape = Attrs(attrs), inputs[0].type.shape
    starts, ends = given.integers("starts"), given.integers("ends")
    axes = given.integers("axes", tuple(range(len(starts))))
    steps = given.integers("steps", (1,) * len(starts))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise InvalidError("starts, ends, axes and steps of Slice differ in length")
    begin, step, size = [0] * len(shape), [1] * len(shape), list(shape)
    for axis, first, last, by in zip(axes, starts, ends, steps, strict=True):
        at = normal_axis(axis, len(shape))
        if by == 0:
            raise InvalidError("a step of Slice is 0")
        taken = range(*slice(first, last, by).indices(shape[at]))
        begin[at], step[at], size[at] = (taken.start if taken else 0), by, len(taken)
    return inputs, {"begin": tuple(begin), "step": tuple(step), "size": tuple(size)}


def _slice_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    begin, step, size = (attrs.integers(name) for name in ("begin", "step", "size"))
    if not len(begin) == len(step) == len(size) == types[0].rank:
        raise InvalidError(f"Slice of {types[0]} needs one begin, step and size per axis")
    for extent, first, by, count in zip(types[0].shape, begin, step, size, strict=True):
        last = first + by * (count - 1)
        if count and not (0 <= first < extent and 0 <= last < extent):
            raise InvalidError(f"Slice reads {first}..{last} of an axis of extent {extent}")
    return (types[0].with_shape(size),)


def _slice_index(attrs: Attrs) -> tuple[slice, ...]:
    """The numpy index of a Slice."""
    begin, step, size = (attrs.integers(name) for name in ("begin", "step", "size"))
    found = []
    for first, by, count in zip(begin, step, size, strict=True):
        last = first + by * count
        found.append(slice(first, None if last < 0 else last, by))
    return tuple(found)


def _sliced(info: NodeInfo, index: Sequence[Expr]) -> Iterator[Expr]:
    begin, step = info.attrs.integers("begin"), info.attrs.integers("step")
    return (i * by + first for i, by, first in zip(index, step, begin, strict=True))


def _slice_expand(e: Emitter, item: Node) -> Values | None:
    forward = all(
        by > 0 for by, n in zip(item.attrs.integers("step"), item.output.type.shape, strict=True) if n > 1
    )
    return no_change(e, item) if forward else None


_ENDS = {1: "starts", 2: "ends", 3: "axes", 4: "steps"}
SLICE = Op(
    "Slice", Kind.INJECTIVE, _slice_infer, lambda x, a: (x[0][_slice_index(a)],), (1, 1),
    (
        Signature(1, {"starts": None, "ends": None, "axes": None}, adapt=_slice_import),
        Signature(10, known=_ENDS, optional=frozenset({3, 4}), adapt=_slice_import, at_run=at_run.sliced),
    ),
    forms=moved("slice", _sliced), keeps_channels=everywhere, inline=where_to_read,
    expand=_slice_expand, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip


def _split_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, count = Attrs(attrs), len(node.used_outputs)
    axis = normal_axis(given.integer("axis"), inputs[0].type.rank)
    extent = inputs[0].type.shape[axis]
    parts = given.integer("num_outputs", count)
    if parts != count and not given.integers("split", ()):
        raise InvalidError(f"it is split into {parts} parts and has {count} outputs")
    even = -(-extent // parts)
    sizes = given.integers("split", tuple(max(min(even, extent - even * i), 0) for i in range(parts)))
    if sum(sizes) != extent or min(sizes, default=0) < 0 or len(sizes) != count:
        raise InvalidError(f"split {list(sizes)} into {count} outputs does not add up to extent {extent}")
    return inputs, {"axis": axis, "split": sizes}


def _split_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    axis, shape = attrs.integer("axis"), types[0].shape
    return tuple(
        types[0].with_shape((*shape[:axis], size, *shape[axis + 1 :])) for size in attrs.integers("split")
    )


def _split_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    cuts = np.cumsum(attrs.integers("split"))[:-1]
    return np.split(arrays[0], cuts, axis=attrs.integer("axis"))


def _split_expand(e: Emitter, item: Node) -> Values:
    axis, sizes = item.attrs.integer("axis"), item.attrs.integers("split")
    starts = accumulate(sizes[:-1], initial=0)
    return tuple(
        emit_slice(e, item.inputs[0], axis, first, size) for first, size in zip(starts, sizes, strict=True)
    )


def emit_slice(e: Emitter, value: Value, axis: int, first: int, size: int) -> Value:
    """Elements first..first+size of one axis."""
    shape = value.type.shape
    if first == 0 and size == shape[axis]:
        return value
    begin = tuple(first if at == axis else 0 for at in range(len(shape)))
    sizes = tuple(size if at == axis else extent for at, extent in enumerate(shape))
    return e.emit("Slice", value, begin=begin, step=(1,) * len(shape), size=sizes)


SPLIT = Op(
    "Split", Kind.INJECTIVE, _split_infer, _split_reference, (1, 1),
    (
        Signature(2, {"axis": 0, "split": None}, adapt=_split_import, outputs=1 << 30),
        Signature(13, {"axis": 0}, {1: "split"}, optional=frozenset({1}), adapt=_split_import,
                  outputs=1 << 30, at_run=at_run.split),
        Signature(18, {"axis": 0, "num_outputs": None}, {1: "split"}, optional=frozenset({1}),
                  adapt=_split_import, outputs=1 << 30, at_run=at_run.split),
    ),
    expand=_split_expand, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip

# ---------------------------------------------------------------- concatenations


def _concat_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    return inputs, {"axis": normal_axis(Attrs(attrs).integer("axis"), inputs[0].type.rank)}


def _concat_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    axis, kind = attrs.integer("axis"), same_dtype(types)
    first = types[0].shape
    for item in types[1:]:
        if item.rank != len(first) or any(
            a != b for at, (a, b) in enumerate(zip(item.shape, first, strict=True)) if at != axis
        ):
            raise InvalidError(f"{types[0]} and {item} cannot be joined along axis {axis}")
    total = sum(item.shape[axis] for item in types)
    return (TensorType(kind, (*first[:axis], total, *first[axis + 1 :])),)


def _concat_pieces(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """One block per input, each writing its part of the result."""
    axis, out = info.attrs.integer("axis"), info.out_types[0]
    target = b.local("concat", out.shape, out.dtype)
    first = 0
    for buffer, kind in zip(inputs, info.in_types, strict=True):

        def piece(*index: Expr, start: int = first, source: Buffer = buffer) -> tuple[tuple[Expr, ...], Expr]:
            return (*index[:axis], index[axis] + start, *index[axis + 1 :]), source[index]

        b.write("concat_part", target, kind.shape, piece)
        first += kind.shape[axis]
    return target


def _concat_select(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """One block that chooses the input by index; can be inlined into its reader."""
    axis, out = info.attrs.integer("axis"), info.out_types[0]
    ends = np.cumsum([kind.shape[axis] for kind in info.in_types]).tolist()

    def at(*index: Expr) -> Expr:
        def part(number: int) -> Expr:
            start = ends[number - 1] if number else 0
            return inputs[number][(*index[:axis], index[axis] - start, *index[axis + 1 :])]

        result = part(len(inputs) - 1)
        for number in reversed(range(len(inputs) - 1)):
            result = Select(index[axis].lt(ends[number]), part(number), result)
        return result

    return b.compute("concat", out.shape, at, out.dtype)


def _concat_expand(e: Emitter, item: Node) -> Values | None:
    """Parts of extent 0 vanish."""
    axis = item.attrs.integer("axis")
    kept = tuple(value for value in item.inputs if value.type.shape[axis])
    if len(kept) == 1:
        return kept
    return None if len(kept) == len(item.inputs) or not kept else (e.emit("Concat", *kept, axis=axis),)


CONCAT = Op(
    "Concat", Kind.INJECTIVE, _concat_infer, lambda x, a: (np.concatenate(x, a.integer("axis")),), (1, None),
    (Signature(4, {"axis": None}, adapt=_concat_import),),
    forms={PIECES: Form(_concat_pieces), "select": Form(_concat_select)}, keeps_channels=everywhere,
    reads_once=everywhere, concatenates=True,
    expand=_concat_expand, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip

# ---------------------------------------------------------------- padding

_PAD_MODES = ("constant", "edge", "reflect", "wrap")


def _pad_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given, rank = Attrs(attrs), inputs[0].type.rank
    pads, mode = given.integers("pads"), given.text("mode")
    axes = tuple(normal_axis(axis, rank) for axis in given.integers("axes", tuple(range(rank))))
    if len(pads) != 2 * len(axes):
        raise InvalidError(f"Pad has {len(pads)} pads for {len(axes)} axes")
    before, after = [0] * rank, [0] * rank
    for axis, low, high in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        before[axis], after[axis] = low, high
    value = given["value"]
    value = value[0] if isinstance(value, tuple) and value else value
    if mode not in _PAD_MODES:
        raise InvalidError(f"Pad has no mode {mode!r}")
    assert isinstance(value, (bool, int, float))
    return inputs, {"before": tuple(before), "after": tuple(after), "mode": mode, "value": value}


def _pad_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    before, after = attrs.integers("before"), attrs.integers("after")
    if not len(before) == len(after) == types[0].rank:
        raise InvalidError(f"Pad of {types[0]} needs one `before` and `after` per axis")
    shape = tuple(low + n + high for low, n, high in zip(before, types[0].shape, after, strict=True))
    if min(shape, default=0) < 0:
        raise InvalidError(f"Pad cuts more than there is from {types[0]}")
    mode = attrs.text("mode")
    if mode != "constant" and min((*before, *after), default=0) < 0:
        raise UnsupportedError(f"Pad with negative pads in mode {mode} is not supported")
    if mode == "reflect":
        for low, n, high in zip(before, types[0].shape, after, strict=True):
            if max(low, high) >= n and max(low, high) > 0:
                raise UnsupportedError(f"Pad reflects {max(low, high)} elements of an axis of extent {n}")
    return (types[0].with_shape(shape),)


def _pad_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    pairs = list(zip(attrs.integers("before"), attrs.integers("after"), strict=True))
    x, mode = arrays[0], attrs.text("mode")
    cut = tuple(slice(max(-low, 0), n - max(-high, 0)) for (low, high), n in zip(pairs, x.shape, strict=True))
    grown = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if mode == "constant":
        return (np.pad(x[cut], grown, constant_values=x.dtype.type(attrs.number("value"))),)
    return (np.pad(x, grown, mode=mode),)  # type: ignore[call-overload]  # mode is one of _PAD_MODES


def _pad_at(mode: str, position: Expr, extent: int) -> Expr:
    """The source position of a padded position that may lie outside 0..extent."""
    if mode == "edge":
        return minimum(maximum(position, 0), extent - 1)
    if mode == "wrap":
        return position % extent
    folded = maximum(position, -position)
    return minimum(folded, folded * -1 + 2 * (extent - 1))


def _pad_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out, shape, mode = info.out_types[0], info.in_types[0].shape, info.attrs.text("mode")
    before, after = info.attrs.integers("before"), info.attrs.integers("after")
    if mode == "constant":
        value = wrap(info.attrs.number("value"), out.dtype)
        return pad_with(b, inputs[0], shape, before, after, value)

    def at(*index: Expr) -> Expr:
        rows = zip(index, before, after, shape, strict=True)
        places = (_pad_at(mode, i - low, extent) if low or high else i for i, low, high, extent in rows)
        return inputs[0][tuple(places)]

    return b.compute("pad", out.shape, at, out.dtype)


def pad_with(
    b: Builder, source: Buffer, shape: Sequence[int], before: Sequence[int], after: Sequence[int], value: Expr
) -> Buffer:
    """A buffer with the elements of `source`, which has this shape, and `value` around them; pads may cut."""

    def at(*index: Expr) -> Expr:
        places = tuple(i - low for i, low in zip(index, before, strict=True))
        inside = []
        for place, low, high, extent in zip(places, before, after, shape, strict=True):
            inside.append(place.ge(0) if low > 0 else None)
            inside.append(place.lt(extent) if high > 0 else None)
        guard = all_of(*inside)
        return source[places] if guard is None else Select(guard, source[places], value)

    full = [low + n + high for low, n, high in zip(before, shape, after, strict=True)]
    return b.compute("pad", full, at, value.dtype)


def _pad_pieces(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """Interior and border as disjoint blocks: nothing is decided per element (constant mode, no cuts)."""
    if not adds_constants(info):
        return _pad_form(b, inputs, info)
    before, after = info.attrs.integers("before"), info.attrs.integers("after")
    out, shape = info.out_types[0], info.in_types[0].shape
    target, value = b.local("pad", out.shape, out.dtype), info.attrs.number("value")
    for origin, extents in _border_boxes(shape, before, after):
        b.write("pad_border", target, extents, lambda *i, origin=origin: (_shifted(i, origin), value))
    b.write("pad_inside", target, shape, lambda *i: (_shifted(i, before), inputs[0][i]))
    return target


def _shifted(index: Sequence[Expr], by: Sequence[int]) -> tuple[Expr, ...]:
    return tuple(i + offset for i, offset in zip(index, by, strict=True))


def _border_boxes(
    shape: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Disjoint boxes (origin, extents) that cover a padded tensor except its interior."""
    full = [low + n + high for low, n, high in zip(before, shape, after, strict=True)]
    found = []
    for axis, (low, n, high) in enumerate(zip(before, shape, after, strict=True)):
        for first, extent in ((0, low), (low + n, high)):
            if extent:
                origin = (*before[:axis], first, *([0] * (len(full) - axis - 1)))
                found.append((origin, (*shape[:axis], extent, *full[axis + 1 :])))
    return found


def _pad_sign(attrs: Attrs) -> Sign:
    return Sign.KEEPS if attrs.text("mode") != "constant" or attrs.number("value") >= 0 else Sign.UNKNOWN


def adds_constants(info: NodeInfo) -> bool:
    """Whether a Pad has a constant around its input, and cuts nothing."""
    pads = (0, *info.attrs.integers("before"), *info.attrs.integers("after"))
    return info.attrs.text("mode") == "constant" and min(pads) >= 0


def _pad_expand(e: Emitter, item: Node) -> Values | None:
    unpadded = not any((*item.attrs.integers("before"), *item.attrs.integers("after")))
    return item.inputs if unpadded else None


PAD = Op(
    "Pad", Kind.INJECTIVE, _pad_infer, _pad_reference, (1, 1),
    (
        Signature(2, {"pads": None, "mode": "constant", "value": 0.0}, adapt=_pad_import),
        Signature(11, {"mode": "constant", "value": 0.0}, known={1: "pads", 2: "value", 3: "axes"},
                  optional=frozenset({2, 3}), adapt=_pad_import, at_run=at_run.padded),
    ),
    forms={"select": Form(_pad_form), PIECES: Form(_pad_pieces)}, keeps_channels=everywhere,
    epilogue=adds_constants,
    expand=_pad_expand, flops=no_flops, sign=_pad_sign,
)  # fmt: skip

# ---------------------------------------------------------------- triangles


def _triangle_import(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
    given = Attrs(attrs)
    diagonal = given["k"]
    diagonal = diagonal[0] if isinstance(diagonal, tuple) and diagonal else diagonal
    assert isinstance(diagonal, int)
    return inputs, {"upper": given.integer("upper"), "k": diagonal}


def _triangle_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    if types[0].rank < 2:
        raise InvalidError(f"Trilu of {types[0]}, which is no matrix")
    return (types[0],)


def _triangle_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    rows, columns = arrays[0].shape[-2:]
    apart, diagonal = np.arange(columns) - np.arange(rows)[:, None], attrs.integer("k")
    kept = apart >= diagonal if attrs.integer("upper") else apart <= diagonal
    return (np.where(kept, arrays[0], np.zeros((), arrays[0].dtype)),)


def _triangle_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    out, diagonal = info.out_types[0], info.attrs.integer("k")

    def at(*index: Expr) -> Expr:
        apart = index[-1] - index[-2]
        kept = apart.ge(diagonal) if info.attrs.integer("upper") else apart.le(diagonal)
        return Select(kept, inputs[0][index], wrap(0, out.dtype))

    return b.compute("triangle", out.shape, at, out.dtype)


TRIANGLE = Op(
    "Trilu", Kind.INJECTIVE, _triangle_infer, _triangle_reference, (1, 1),
    (Signature(14, {"upper": 1, "k": 0}, known={1: "k"}, optional=frozenset({1}), adapt=_triangle_import,
               at_run=at_run.triangle),),
    forms={"direct": Form(_triangle_form)}, flops=no_flops, sign=Sign.KEEPS,
)  # fmt: skip

OPS = (SLICE, SPLIT, CONCAT, PAD, TRIANGLE)
