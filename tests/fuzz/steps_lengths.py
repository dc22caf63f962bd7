"""Steps: what models do along an axis whose extent is free: attention, masks, positions, windows."""

from __future__ import annotations

import numpy as np

from tests.fuzz.grow import BOOL, F32, FLOATS, I64, LONGEST, MOST_ELEMENTS, Pool, Step, Tensor


def _long(g: Pool, rank: int) -> Tensor | None:
    """Floats of a rank whose second last axis is free."""
    return g.find(
        lambda one: one.dtype in FLOATS and one.rank == rank and one.shape[-2] == LONGEST and one.size > 0
    )


def heads(g: Pool) -> None:
    """Attention of (batch, tokens, width), by heads, of the sequence to itself."""
    x = _long(g, 3)
    if x is None or not g.takes("MatMul", x.dtype) or not g.since(13):
        return
    x = g.within(x, 4.0)
    batch, tokens, width = x.shape
    count = g.pick(*(n for n in (1, 2, 4) if width % n == 0))
    apart = (batch, tokens, count, width // count)
    split = g.numbers(0, 0, count, width // count)
    q, k, v = (
        g.add("Reshape", [g.add(op, [x], x.shape, x), split], apart, x) for op in ("Tanh", "Neg", "Abs")
    )
    perms = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (
        g.add("Transpose", [one], [apart[at] for at in perm], x, perm=perm)
        for one, perm in zip((q, k, v), perms, strict=True)
    )
    scores = g.add("MatMul", [q, k], (batch, count, tokens, tokens), x, limit=4.0 * width)
    if g.chance(0.5) and x.dtype == F32:
        scores = _causal(g, scores)
    found = g.add("MatMul", [g.add("Softmax", [scores], scores.shape, x, axis=-1), v], q.shape, x, limit=4.0)
    back = g.add("Transpose", [found], apart, x, perm=[0, 2, 1, 3], limit=4.0)
    g.add("Reshape", [back, g.numbers(0, 0, width)], x.shape, x, limit=4.0)


def _count(g: Pool, x: Tensor, axis: int) -> Tensor:
    """The extent of an axis, as a number."""
    like = Tensor("", I64, (), 64.0)
    shape = g.add("Shape", [x], (x.rank,), like)
    return g.add("Gather", [shape, g.constant(np.asarray(axis))], (), like)


def _positions(g: Pool, x: Tensor, axis: int) -> Tensor:
    count = _count(g, x, axis)
    zero, one = (g.constant(np.asarray(number)) for number in (0, 1))
    return g.add("Range", [zero, count, one], (LONGEST,), count)


def _causal(g: Pool, scores: Tensor) -> Tensor:
    """What is behind a token does not count."""
    at = _positions(g, scores, scores.rank - 1)
    row = g.add("Unsqueeze", [at, g.numbers(1)], (LONGEST, 1), at)
    later = g.add("Greater", [at, row], (LONGEST, LONGEST), at, dtype=BOOL, limit=1)
    least = g.constant(np.asarray(-1e4, np.float32))
    return g.add("Where", [later, least, scores], scores.shape, scores, limit=1e4)


def embedded(g: Pool) -> None:
    """Rows of a table by their positions, added to the sequence."""
    x = _long(g, g.pick(2, 3))
    if x is None or not g.since(13) or x.shape[0] != (1 if g.profile.free else x.shape[0]):
        return
    table = g.weights(x.dtype, 40, x.shape[-1])
    at = _positions(g, x, x.rank - 2)
    rows = g.add("Gather", [table, at], (LONGEST, x.shape[-1]), x, limit=1.0)
    g.add("Add", [x, rows], x.shape, x, limit=x.limit + 1)


def _axes(g: Pool, x: Tensor) -> list[int]:
    return [at for at in range(g.first, x.rank) if x.shape[at] == LONGEST]


def _along(g: Pool, op: str) -> Tensor | None:
    return g.found(op, lambda one: one.size > 0 and LONGEST in one.shape[g.first :])


def ends(g: Pool) -> None:
    """The first or the last element of a sequence."""
    x = _along(g, "Gather")
    if x is None or not g.since(13):
        return
    axis = g.pick(*_axes(g, x))
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    if g.chance(0.5):
        g.add("Gather", [x, g.constant(np.asarray(g.pick(0, -1)))], shape, x, axis=axis)
        return
    first = g.chance(0.3)
    begin, end = (0, 1) if first else (-1, 2**31)
    part = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    made = g.add("Slice", [x, g.numbers(begin), g.numbers(end), g.numbers(axis)], part, x)
    g.add("Squeeze", [made, g.numbers(axis)], shape, x)


def shifted(g: Pool) -> None:
    """The sequence one step later: padded in front, cut at the end."""
    x = _along(g, "Pad")
    if x is None or not g.since(13) or not g.takes("Slice", x.dtype):
        return
    axis = g.pick(*_axes(g, x))
    before = [1 if at == axis else 0 for at in range(x.rank)]
    longer = (*x.shape[:axis], LONGEST + 1, *x.shape[axis + 1 :])
    padded = g.add("Pad", [x, g.numbers(*before, *(0 for _ in before))], longer, x)
    g.add("Slice", [padded, g.numbers(0), g.numbers(-1), g.numbers(axis)], x.shape, x)


def lengthened(g: Pool) -> None:
    """Something known before the sequence, as a token of a class is."""
    x = _along(g, "Concat")
    if x is None or x.size > MOST_ELEMENTS // 2 or g.profile.free:
        return
    axis = g.pick(*_axes(g, x))
    one = tuple(g.integer(1, 3) if at == axis else n for at, n in enumerate(x.shape))
    if LONGEST not in (n for at, n in enumerate(x.shape) if at != axis):
        parts: list[str | Tensor] = [g.weights(x.dtype, *one), x]
        shape = tuple(n + one[axis] if at == axis else n for at, n in enumerate(x.shape))
        g.add("Concat", parts if g.chance(0.7) else parts[::-1], shape, x, axis=axis, limit=max(x.limit, 16))


def flattened(g: Pool) -> None:
    """Axes that become one, and apart again."""
    x = _along(g, "Reshape")
    if x is None or x.rank < 2 or g.profile.free or x.shape[0] == LONGEST == x.shape[-1]:
        return
    last = x.shape[-1]
    if last == LONGEST:
        flat = g.add("Reshape", [x, g.numbers(int(np.prod(x.shape[:-1])), -1)], (x.size // last, last), x)
        g.add("Transpose", [flat], flat.shape[::-1], x, perm=[1, 0])
    else:
        g.add("Reshape", [x, g.numbers(-1, last)], (x.size // last, last), x)


def layer(g: Pool) -> None:
    """A recurrent layer over the whole sequence."""
    x = g.find(
        lambda one: one.dtype == F32 and one.rank == 3 and one.shape[0] == LONGEST and 0 < one.size <= 6000
    )
    if x is None or g.profile.free or not g.since(14) or LONGEST in x.shape[1:]:
        return
    op, gates = g.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch, width = x.shape
    hidden, both = g.pick(1, 4, 5), g.chance(0.4)
    count = 2 if both else 1
    weights = [g.weights(F32, count, gates * hidden, n, scale=0.3) for n in (width, hidden)]
    bias = g.weights(F32, count, 2 * gates * hidden, scale=0.3)
    state = (F32, (count, batch, hidden), 1.0)
    results = [(F32, (steps, count, batch, hidden), 1.0), state]
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if both else g.pick("forward", "reverse")}
    g.add_all(op, [g.within(x, 4.0), *weights, bias], results, **attrs)


STEPS: tuple[Step, ...] = (
    heads, heads, embedded, ends, ends, shifted, lengthened, flattened, layer,
)  # fmt: skip
