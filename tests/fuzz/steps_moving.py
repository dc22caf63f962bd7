"""Steps: shapes, slices, joins, indices: what moves elements."""

from __future__ import annotations

import math

import numpy as np

from tests.fuzz.grow import BOOL, F32, FLOATS, I32, I64, MOST_ELEMENTS, Pool, Shape, Step, Tensor, is_number


def _at(shape: Shape, axis: int, extent: int) -> Shape:
    """A shape with another extent along one axis."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _factors(g: Pool, count: int, rank: int) -> list[int]:
    """Extents whose product is `count`."""
    left, made = count, []
    for _ in range(rank - 1):
        made.append(int(g.pick(*(n for n in range(1, min(left, 64) + 1) if left % n == 0))) if left else 1)
        left //= made[-1]
    return [*made, left]


def reshape(g: Pool) -> None:
    x = g.found("Reshape", lambda one: one.size > 0)
    if x is None:
        return
    sizes = _factors(g, x.size, g.integer(1, 4))
    if g.profile.free:
        shown = [0 if x.rank > 0 and g.chance(0.5) else -1, *sizes]
        g.add("Reshape", [x, g.numbers(*shown)], (1, *sizes), x)
        return
    shown = [-1 if at == 0 and g.chance(0.3) else n for at, n in enumerate(sizes)]
    g.add("Reshape", [x, g.decides(*shown)], sizes, x)


def flatten(g: Pool) -> None:
    x = g.found("Flatten", lambda one: one.rank >= 1)
    if x is not None:
        axis = 1 if g.profile.free else g.integer(0, x.rank)
        g.add("Flatten", [x], (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])), x, axis=axis)


def unsqueeze(g: Pool) -> None:
    x = g.found("Unsqueeze", lambda one: one.rank < 5)
    if x is None:
        return
    axis = g.integer(g.first, x.rank)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    if g.since(13):
        g.add("Unsqueeze", [x, g.numbers(g.signed(axis, x.rank + 1))], shape, x)
    else:
        g.add("Unsqueeze", [x], shape, x, axes=[axis])


def squeeze(g: Pool) -> None:
    x = g.found("Squeeze", lambda one: 1 in one.shape[g.first :])
    if x is None:
        return
    axis = g.pick(*(at for at in range(g.first, x.rank) if x.shape[at] == 1))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    if g.since(13):
        g.add("Squeeze", [x, g.numbers(g.signed(axis, x.rank))], shape, x)
    else:
        g.add("Squeeze", [x], shape, x, axes=[axis])


def transpose(g: Pool) -> None:
    x = g.found("Transpose", lambda one: one.rank > 1)
    if x is None:
        return
    perm = [*range(g.first), *(int(axis) + g.first for axis in g.rng.permutation(x.rank - g.first))]
    moved = g.add("Transpose", [x], [x.shape[axis] for axis in perm], x, perm=perm)
    if g.chance(0.3) and is_number(x) and g.takes("Neg", x.dtype):
        y = g.add("Neg", [moved], moved.shape, x)
        g.add("Transpose", [y], x.shape, x, perm=[int(axis) for axis in np.argsort(perm)])


def turned(g: Pool) -> None:
    """A transposition, and behind it an operator along an axis."""
    x = g.found(
        "Transpose", lambda one: one.rank > g.first + 1 and one.dtype in FLOATS and 0 not in one.shape
    )
    if x is None:
        return
    order = np.roll(np.arange(g.first, x.rank), g.integer(1, x.rank - g.first - 1))
    perm = [*range(g.first), *(int(axis) for axis in order)]
    moved = g.add(
        "Transpose", [g.within(x, 30.0)], [x.shape[axis] for axis in perm], x, perm=perm, limit=30.0
    )
    axis, op = g.axis(moved), g.pick("Softmax", "Concat", "ReduceMax", "Pad")
    if op == "Softmax" and g.since(13):
        g.add(op, [moved], moved.shape, x, axis=axis, limit=1.0)
    elif op == "Concat":
        g.add(op, [moved, moved], _at(moved.shape, axis, 2 * moved.shape[axis]), x, axis=axis, limit=30.0)
    elif op == "ReduceMax" and not g.since(18):
        g.add(op, [moved], _at(moved.shape, axis, 1), x, axes=[axis], keepdims=1, limit=30.0)
    elif op == "Pad" and g.since(11):
        ends = [1 if at == axis else 0 for at in range(moved.rank)]
        shape = _at(moved.shape, axis, moved.shape[axis] + 1)
        g.add(op, [moved, g.numbers(*ends, *(0 for _ in ends))], shape, x, limit=30.0)


def joined(g: Pool) -> None:
    """Parts that are computed for a concatenation alone, along any axis."""
    x = g.found(
        "Concat", lambda one: one.rank > g.first and one.dtype in FLOATS and 0 < one.size <= MOST_ELEMENTS / 3
    )
    if x is None:
        return
    x, axis = g.within(x, 100.0), g.axis(x)
    parts = [g.add(op, [x], x.shape, x) for op in ("Neg", "Abs", "Tanh")[: g.integer(2, 3)]]
    g.add("Concat", list(parts), _at(x.shape, axis, len(parts) * x.shape[axis]), x, axis=axis)


def slices(g: Pool) -> None:
    x = g.found("Slice", lambda one: any(n > 1 for n in one.shape[g.first :]))
    if x is None:
        return
    axes = [at for at in range(g.first, x.rank) if x.shape[at] > 1]
    axes = [int(axis) for axis in g.rng.choice(axes, min(len(axes), g.integer(1, 2)), replace=False)]
    shape, rows = x.shape, []
    for axis in axes:
        n = x.shape[axis]
        begin, step = g.integer(0, n - 1), g.pick(1, 1, 2, 3, -1, -2)
        end = (n + 3 if g.chance(0.5) else g.integer(begin + 1, n)) if step > 0 else -n - 1
        shape = _at(shape, axis, len(range(begin, min(end, n) if step > 0 else -1, step)))
        rows.append((begin - n if g.chance(0.3) else begin, end, g.signed(axis, x.rank), step))
    operands = [g.decides(*column) for column in zip(*rows, strict=True)]
    g.add("Slice", [x, *operands], shape, x)


def concat(g: Pool) -> None:
    x = g.found("Concat", lambda one: one.rank > g.first)
    if x is None:
        return
    axis = g.axis(x)
    parts = [x]
    for _ in range(g.integer(1, 3)):
        other = g.find(
            lambda one: (
                (one.dtype, one.rank) == (x.dtype, x.rank)
                and _at(one.shape, axis, 0) == _at(x.shape, axis, 0)
            )
        )
        parts.append(other or x)
    names: list[str | Tensor] = [*parts]
    extent = sum(one.shape[axis] for one in parts)
    if not g.profile.free and g.chance(0.3):
        names.insert(g.integer(0, len(names)), g.weights(x.dtype, *x.shape))
        extent += x.shape[axis]
    limit = max(16.0, *(one.limit for one in parts))
    g.add("Concat", names, _at(x.shape, axis, extent), x, limit=limit, axis=g.signed(axis, x.rank))


def split(g: Pool) -> None:
    x = g.found("Split", lambda one: any(n > 1 for n in one.shape[g.first :]))
    if x is None:
        return
    axis = g.pick(*(at for at in range(g.first, x.rank) if x.shape[at] > 1))
    first = g.integer(1, x.shape[axis] - 1)
    sizes = [first, x.shape[axis] - first]
    results = [(x.dtype, _at(x.shape, axis, n), x.limit) for n in sizes]
    if g.since(13):
        g.add_all("Split", [x, g.decides(*sizes)], results, axis=axis)
    else:
        g.add_all("Split", [x], results, axis=axis, split=sizes)


def pad(g: Pool) -> None:
    x = g.found("Pad", lambda one: one.rank > g.first and min(one.shape[g.first :]) > 2)
    if x is None or not g.since(11):
        return
    mode = g.pick("constant", "constant", "edge", "reflect", *(["wrap"] if g.since(19) else []))
    low = -1 if mode == "constant" and g.chance(0.2) else 0
    free = [0] * g.first
    begin, end = ([*free, *(g.integer(low, 2) for _ in x.shape[g.first :])] for _ in range(2))
    shape = [n + a + b for n, a, b in zip(x.shape, begin, end, strict=True)]
    operands = [g.decides(*begin, *end)]
    if mode == "constant" and g.chance(0.5):
        operands.append(g.constant(g.random(x.dtype, ())))
    if math.prod(shape) <= 4 * MOST_ELEMENTS:
        g.add("Pad", [x, *operands], shape, x, mode=mode, limit=max(16.0, x.limit))


def expand(g: Pool) -> None:
    x = g.found("Expand", lambda one: 1 in one.shape[g.first :])
    if x is None:
        return
    shape = [n if at < g.first or n > 1 else g.integer(1, 5) for at, n in enumerate(x.shape)]
    if math.prod(shape) <= MOST_ELEMENTS:
        g.add("Expand", [x, g.numbers(*shape) if g.profile.free else g.decides(*shape)], shape, x)


def tile(g: Pool) -> None:
    x = g.found("Tile", lambda one: one.rank > 0 and one.size <= MOST_ELEMENTS / 9)
    if x is not None:
        times = [1 if at < g.first else g.integer(1, 3) for at in range(x.rank)]
        times = [n if math.prod(times) <= 9 else 1 for n in times]
        g.add("Tile", [x, g.decides(*times)], [n * k for n, k in zip(x.shape, times, strict=True)], x)


def _indices(g: Pool, extent: int, shape: Shape) -> str:
    """Indices along an axis, of either type and sign."""
    values = g.rng.integers(-extent, extent, shape)
    return g.constant(np.asarray(values).astype(g.pick(I64, I64, I32)))


def gather(g: Pool) -> None:
    x = g.found("Gather", lambda one: one.rank > g.first and 0 not in one.shape)
    if x is None:
        return
    axis = g.axis(x)
    shape = tuple(g.integer(1, 5) for _ in range(g.integer(0, 2)))
    whole = (*x.shape[:axis], *shape, *x.shape[axis + 1 :])
    g.add("Gather", [x, _indices(g, x.shape[axis], shape)], whole, x, axis=g.signed(axis, x.rank))


def looked_up(g: Pool) -> None:
    """Rows of a table by indices that only a run knows."""
    x = g.find(lambda one: one.dtype in (I64, I32) and one.size <= 300)
    if x is None or not g.since(13):
        return
    count, width = g.integer(2, 9), g.integer(1, 17)
    index = g.add("Mod", [x, g.constant(np.asarray(count, x.dtype))], x.shape, x, limit=count)
    table = g.weights(F32, count, width)
    like = Tensor("", F32, (), 16.0)
    g.add("Gather", [table, index], (*x.shape, width), like, axis=0)


def gather_elements(g: Pool) -> None:
    x = g.found("GatherElements", lambda one: one.rank > 0 and 0 not in one.shape)
    if x is None or g.profile.free:
        return
    axis = g.axis(x)
    smaller = g.chance(0.3)  # which onnx's own evaluator does not do
    shape = tuple(
        g.integer(1, n + 2) if at == axis else g.integer(1, n) if smaller else n
        for at, n in enumerate(x.shape)
    )
    g.add("GatherElements", [x, _indices(g, x.shape[axis], shape)], shape, x, axis=axis)


def gather_nd(g: Pool) -> None:
    x = g.found("GatherND", lambda one: one.rank > 0 and 0 not in one.shape)
    if x is None or g.profile.free:
        return
    depth, count = g.integer(1, x.rank), g.integer(1, 6)
    rows = np.stack([g.rng.integers(-n, n, count) for n in x.shape[:depth]], axis=-1)
    g.add("GatherND", [x, g.constant(rows)], (count, *x.shape[depth:]), x)


def scatter(g: Pool) -> None:
    """Every place is written to once, so that all orders agree; sums may meet."""
    x = g.found("ScatterElements", lambda one: one.rank > 0 and 0 not in one.shape and is_number(one))
    if x is None or g.profile.free:
        return
    axis = g.axis(x)
    count = g.integer(1, x.shape[axis])
    shape = _at(x.shape, axis, count)
    order = np.argsort(g.rng.random(x.shape), axis=axis)
    index = np.take(order, range(count), axis=axis)
    kinds = ["none"] + (["add"] if g.since(16) else []) + (["max", "min"] if g.since(18) else [])
    kind = g.pick(*kinds)
    attrs = {} if kind == "none" else {"reduction": kind}
    limit = x.limit + 16
    g.add(
        "ScatterElements",
        [x, g.constant(index), g.weights(x.dtype, *shape)],
        x.shape,
        x,
        limit=limit,
        axis=axis,
        **attrs,
    )


def scatter_nd(g: Pool) -> None:
    x = g.found("ScatterND", lambda one: one.rank > 0 and 0 not in one.shape)
    if x is None or g.profile.free:
        return
    rows = g.rng.permutation(x.shape[0])[: g.integer(1, x.shape[0])].reshape(-1, 1)
    update = g.weights(x.dtype, len(rows), *x.shape[1:])
    g.add("ScatterND", [x, g.constant(rows.astype(np.int64)), update], x.shape, x, limit=max(x.limit, 16))


def trilu(g: Pool) -> None:
    x = g.found("Trilu", lambda one: one.rank >= g.first + 2)
    if x is not None:
        k = g.constant(np.asarray(g.integer(-2, 2), np.int64))
        g.add("Trilu", [x, k], x.shape, x, upper=g.integer(0, 1))


def reverse(g: Pool) -> None:
    x = g.found("ReverseSequence", lambda one: one.rank >= 2 and 0 not in one.shape)
    if x is not None and not g.profile.free:
        lengths = g.numbers(*(g.integer(1, x.shape[0]) for _ in range(x.shape[1])))
        g.add("ReverseSequence", [x, lengths], x.shape, x, time_axis=0, batch_axis=1)


def depth(g: Pool) -> None:
    x = g.found("DepthToSpace", lambda one: one.rank == 4 and one.size > 0)
    if x is None:
        return
    n, c, h, w = x.shape
    if c % 4 == 0:
        mode = {"mode": g.pick("DCR", "CRD")}
        g.add("DepthToSpace", [x], (n, c // 4, 2 * h, 2 * w), x, blocksize=2, **mode)
    elif h % 2 == 0 and w % 2 == 0 and g.takes("SpaceToDepth", x.dtype):
        g.add("SpaceToDepth", [x], (n, c * 4, h // 2, w // 2), x, blocksize=2)


def one_hot(g: Pool) -> None:
    x = g.find(lambda one: one.dtype in (I64, I32) and one.size <= 400 and 0 < one.rank < 4)
    if x is None or not g.since(11):
        return
    count, dtype = g.integer(2, 9), g.pick(F32, I64)
    ends = g.constant(np.asarray([0, 1], dtype))
    like = Tensor("", dtype, (), 1.0)
    g.add("OneHot", [x, g.constant(np.asarray(count, np.int64)), ends], (*x.shape, count), like, axis=-1)


def nonzero(g: Pool) -> None:
    """Its input has as many places in each run as the model declares."""
    if not g.whole:
        return
    shape = (g.integer(1, 7), g.integer(2, 9))
    count = g.integer(0, math.prod(shape))
    name = f"{g.prefix}x{len(g.inputs)}"
    cells = [g.rng.permutation(math.prod(shape)) < count for _ in range(2)]
    g.inputs[name] = [one.reshape(shape) for one in cells]
    given = Tensor(name, BOOL, shape, 1)
    g.values.append(given)
    g.add("NonZero", [given], (2, count), given, dtype=I64, limit=9)


def compress(g: Pool) -> None:
    x = g.find(lambda one: one.rank > 0 and 0 not in one.shape) if g.whole else None
    if x is None or not g.takes("Compress", x.dtype):
        return
    axis = g.axis(x)
    name, n = f"{g.prefix}x{len(g.inputs)}", x.shape[axis]
    count = g.integer(1, n)
    g.inputs[name] = [g.rng.permutation(n) < count for _ in range(2)]
    g.add("Compress", [x, name], _at(x.shape, axis, count), x, axis=axis)


STEPS: tuple[Step, ...] = (
    reshape, reshape, flatten, unsqueeze, squeeze, transpose, transpose, turned, joined, slices, slices,
    concat, concat, split, pad, pad, expand, tile, gather, looked_up, gather_elements, gather_nd,
    scatter, scatter_nd, trilu, reverse, depth, one_hot, nonzero, compress,
)  # fmt: skip
