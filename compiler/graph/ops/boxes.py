"""NonMaxSuppression: of boxes that overlap, those with the highest scores."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.core.types import F32, I64, INDEX
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array
from compiler.graph.ir import Node, NodeInfo, TensorType
from compiler.graph.op import (
    Emitter,
    Form,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Sign,
    Signature,
    Types,
    Values,
)
from compiler.graph.ops.counted import COUNT, declared_part, emit_count, emit_number
from compiler.loops.build import Builder, region_at
from compiler.loops.ir import (
    Binary,
    Buffer,
    Expr,
    If,
    Region,
    Select,
    Stmt,
    Store,
    Var,
    const,
    maximum,
    minimum,
    seq,
)

# ---------------------------------------------------------------- what two boxes share


def _edges(box: Sequence[Expr], *, centred: bool) -> tuple[Expr, Expr, Expr, Expr]:
    """Least and greatest place of a box along both axes, of corners in any order, or of centre and size."""
    if centred:
        x, y, width, height = box
        return x - width / 2.0, x + width / 2.0, y - height / 2.0, y + height / 2.0
    y, x, other_y, other_x = box
    return minimum(x, other_x), maximum(x, other_x), minimum(y, other_y), maximum(y, other_y)


def _overlap(one: Sequence[Expr], other: Sequence[Expr], threshold: Expr, *, centred: bool) -> Expr:
    """Whether the part of their union that two boxes share is greater than a threshold."""
    a, b = _edges(one, centred=centred), _edges(other, centred=centred)
    width = minimum(a[1], b[1]) - maximum(a[0], b[0])
    height = minimum(a[3], b[3]) - maximum(a[2], b[2])
    shared = maximum(width, 0.0) * maximum(height, 0.0)
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (a, b)]
    union = areas[0] + areas[1] - shared
    real = Binary("and", Binary("and", areas[0].gt(0.0), areas[1].gt(0.0)), union.gt(0.0))
    return Binary("and", real, (shared / Select(real, union, const(1.0, F32))).gt(threshold))


def _overlap_numbers(one: Array, other: Array, threshold: float, *, centred: bool) -> bool:
    spans = []
    for box in (one, other):
        if centred:
            low, high = box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
        else:
            low, high = np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])
        spans.append((low, high))
    (a, b), (c, d) = spans
    shared = np.prod(np.maximum(np.minimum(b, d) - np.maximum(a, c), 0))
    union = np.prod(b - a) + np.prod(d - c) - shared
    return bool(min(np.prod(b - a), np.prod(d - c), union) > 0 and shared / union > np.float32(threshold))


# ---------------------------------------------------------------- which boxes are kept


def _kept_infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    batch, classes, _ = types[1].shape
    return (TensorType(I64, (batch, classes, attrs.integer("most"))),)


def _kept_reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    boxes, scores, order, limit, shared, least = arrays
    made = np.full((*scores.shape[:2], attrs.integer("most")), -1, np.int64)
    most = min(int(limit[0]), attrs.integer("most"))
    for batch, label in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for number in order[batch, label].tolist():
            place = min(max(number, 0), boxes.shape[1] - 1)
            if len(kept) >= most or not scores[batch, label, place] > least[0]:
                continue
            box, rivals = boxes[batch, place], (boxes[batch, one] for one in kept)
            if not any(
                _overlap_numbers(box, one, float(shared[0]), centred=attrs.flag("centred")) for one in rivals
            ):
                kept.append(place)
        made[batch, label, : len(kept)] = kept
    return (made,)


def _kept_form(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """For each class of each sample its boxes in order; one stays that no box before it overlaps."""
    boxes, scores, order, limit, shared, least = inputs
    count, most, zero = info.in_types[0].shape[1], info.attrs.integer("most"), (const(0),)
    target = b.local("kept", info.out_types[0].shape, I64)

    def body(batch: Var, label: Var) -> Stmt:
        def box(place: Expr) -> list[Expr]:
            return [boxes[batch, place, const(at)] for at in range(4)]

        def consider(found: Buffer, free: Buffer, number: Var) -> Stmt:
            place = minimum(maximum(order[batch, label, number], 0), count - 1)

            def rival(at: Var) -> Stmt:
                one, other = box(place), box(maximum(target[batch, label, at], 0))
                hit = _overlap(one, other, shared[zero], centred=info.attrs.flag("centred"))
                return If(at.lt(found[zero]), If(hit, Store(free, zero, const(0))))

            keep = seq(
                Store(target, (batch, label, found[zero]), place),
                Store(found, zero, found[zero] + 1),
            )
            look = seq(
                Store(free, zero, const(1)), b.repeat("rival", most, rival), If(free[zero].eq(1), keep)
            )
            enough = minimum(limit[zero], most)
            return If(found[zero].lt(enough), If(scores[batch, label, place].gt(least[zero]), look))

        def select(found: Buffer) -> Sequence[Stmt]:
            def inner(free: Buffer) -> Sequence[Stmt]:
                return (b.repeat("candidate", count, lambda number: consider(found, free, number)),)

            return Store(found, zero, const(0)), b.with_cell("free", INDEX, inner)

        clear = b.repeat("place", most, lambda at: Store(target, (batch, label, at), const(-1)))
        return seq(clear, b.with_cell("found", INDEX, select))

    def touches(batch: Var, label: Var) -> tuple[list[Region], list[Region]]:
        rows = [region_at(item, batch, label) for item in (scores, order)]
        single = [region_at(item) for item in (limit, shared, least)]
        return [region_at(boxes, batch), *rows, *single], [region_at(target, batch, label)]

    b.perform("keep", info.out_types[0].shape[:2], body, touches)
    return target


KEPT_BOXES = Op(
    "KeptBoxes", Kind.REDUCTION, _kept_infer, _kept_reference, (6, 6),
    forms={"direct": Form(_kept_form, lambda info: min(info.in_types[1].shape) > 0)}, alone=True,
    flops=lambda info: 16 * info.in_types[1].size * info.attrs.integer("most"),
)  # fmt: skip
"""Ours: the boxes that stay of each class of each sample, -1 behind.

Operands: boxes (samples, n, 4), scores and the boxes' order (samples, classes, n), at most how many stay, the
greatest part that two may share, and the score that is not enough.
"""

# ---------------------------------------------------------------- NonMaxSuppression


def _prepare(node: OnnxNode, attrs: Attrs) -> tuple[Values, dict[str, AttrValue]]:
    """Boxes, scores and the limits that are given; attribute `given` says which."""
    operands = tuple(value for value in node.inputs if value is not None)
    given = tuple(number for number in (2, 3, 4) if node.has(number))
    known = node.known_at(2)
    boxes = operands[0].type.shape[1] if operands[0].type.rank == 3 else 0
    most = boxes if known is None else min(max(int(known.reshape(-1)[0]), 0), boxes)
    most = most if node.has(2) else 0
    return operands, {"given": given, "most": most, "centred": attrs.flag("center_point_box")}


def _infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
    boxes, scores, *limits = types
    fits = boxes.rank == scores.rank == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise InvalidError(f"NonMaxSuppression has boxes {boxes} and scores {scores}")
    if boxes.dtype != F32 or scores.dtype != F32 or any(item.size != 1 for item in limits):
        raise InvalidError("NonMaxSuppression takes boxes and scores of f32, and one number for each limit")
    return TensorType(I64, (math.prod(scores.shape[:2]) * attrs.integer("most"), 3)), COUNT


def _limits(arrays: Sequence[Array], attrs: Attrs) -> list[Array]:
    found = dict(zip(attrs.integers("given"), arrays, strict=True))
    defaults = {2: np.zeros(1, np.int64), 3: np.zeros(1, np.float32), 4: np.full(1, -np.inf, np.float32)}
    return [np.asarray(found.get(number, default)).reshape(1) for number, default in defaults.items()]


def _reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    boxes, scores, *limits = arrays
    order = np.argsort(-scores, axis=2, kind="stable")
    (kept,) = _kept_reference([boxes, scores, order, *_limits(limits, attrs)], attrs)
    rows = [(*at[:2], int(kept[at])) for at in np.ndindex(*kept.shape) if kept[at] >= 0]
    made = np.zeros((kept.size, 3), np.int64)
    if kept.size:
        made[:] = (0, 0, kept.reshape(-1)[0])
    if rows:
        made[: len(rows)] = rows
    return made, np.asarray(len(rows))


def _expand(e: Emitter, item: Node) -> Values:
    boxes, scores, *limits = item.inputs
    (count, _), most = item.output.type.shape, item.attrs.integer("most")
    if not count:
        return e.constant(np.zeros((0, 3), np.int64)), emit_number(e, 0)
    found = dict(zip(item.attrs.integers("given"), limits, strict=True))
    defaults = _limits((), item.attrs.with_(given=()))
    given = [
        e.emit("Reshape", found[number], shape=(1,)) if number in found else e.constant(default)
        for number, default in zip((2, 3, 4), defaults, strict=True)
    ]
    order = e.emit("TopPositions", scores, axis=2, k=scores.type.shape[2], largest=True)
    kept = e.emit("KeptBoxes", boxes, scores, order, *given, most=most, centred=item.attrs.flag("centred"))
    flat = e.emit("Reshape", kept, shape=(count,))
    flags = e.emit("Not", e.emit("Less", flat, emit_number(e, 0)))
    places = e.emit("TruePositions", flags)
    group = e.emit("Div", places, emit_number(e, most))
    classes = emit_number(e, scores.type.shape[1])
    columns = (
        e.emit("Div", group, classes),
        e.emit("Mod", group, classes, fmod=False),
        e.emit("Gather", flat, places, axis=0),
    )
    rows = (e.emit("Reshape", column, shape=(count, 1)) for column in columns)
    return e.emit("Concat", *rows, axis=1), emit_count(e, flags)


_RUN = declared_part(lambda: NON_MAX_SUPPRESSION, _prepare, lambda _attrs: (0,))
NON_MAX_SUPPRESSION: Op = Op(
    "NonMaxSuppression", Kind.REDUCTION, _infer, _reference, (2, 5),
    (
        Signature(10, {"center_point_box": 0}, optional=frozenset({2, 3, 4}), at_run=_RUN, by_data=True),
    ),
    expand=_expand, sign=Sign.NONNEGATIVE,
)  # fmt: skip

OPS = (KEPT_BOXES, NON_MAX_SUPPRESSION)
