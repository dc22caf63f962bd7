"""Steps: quantisation, recurrent layers, control flow with known counts, tensors out of nothing."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.grow import (
    F32,
    F64,
    FLOATS,
    I8,
    I32,
    I64,
    U8,
    U16,
    Pool,
    Step,
    Tensor,
    code,
    is_float,
    tensor,
)


def quantise(g: Pool) -> None:
    """To integers and back, by one scale or one for each channel; halves of a step do not occur."""
    x = g.find(lambda one: one.dtype == F32 and one.rank > g.first and 0 not in one.shape)
    if x is None or not g.since(13):
        return
    kind = g.pick(I8, U8, *([U16] if g.since(21) else []))
    axis = g.axis(x)
    per_channel = g.chance(0.4)
    count = (x.shape[axis],) if per_channel else ()
    scale = g.constant(g.rng.uniform(0.03, 0.1, count).astype(np.float32))
    zero = g.constant(np.asarray(g.rng.integers(0, 9, count)).astype(kind))
    attrs = {"axis": axis} if per_channel else {}
    y = g.add("QuantizeLinear", [g.within(x, 30.0), scale, zero], x.shape, x, dtype=kind, limit=256, **attrs)
    if g.chance(0.7):
        g.add("DequantizeLinear", [y, scale, zero], x.shape, x, limit=30.0, **attrs)


def integer_product(g: Pool) -> None:
    x = g.find(
        lambda one: one.dtype in (U8, I8) and one.rank >= 2 and 0 not in one.shape and one.shape[-1] <= 300
    )
    if x is None:
        return
    weights = g.constant(g.rng.integers(-128, 128, (x.shape[-1], g.dim())).astype(np.int8))
    shape = (*x.shape[:-1], g.constants[weights].shape[1])
    zero = g.constant(np.asarray(3).astype(x.dtype))
    g.add("MatMulInteger", [x, weights, zero], shape, x, dtype=I32, limit=2.0**31)


def recurrent(g: Pool) -> None:
    """A few steps of a small layer in one or both directions."""
    if g.profile.free or not g.since(14):
        return
    x = g.find(lambda one: one.dtype == F32 and one.rank == 3 and 0 < one.size <= 3000 and one.shape[0] <= 7)
    if x is None:
        x = g.give(F32, (g.integer(1, 5), g.integer(1, 3), g.pick(3, 8, 17)))
    op, gates = g.pick(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    steps, batch, width = x.shape
    hidden, both = g.pick(1, 4, 5, 16), g.chance(0.4)
    count = 2 if both else 1
    direction = "bidirectional" if both else g.pick("forward", "reverse")
    weights = [g.weights(F32, count, gates * hidden, n, scale=0.3) for n in (width, hidden)]
    operands: list[str | Tensor] = [
        g.within(x, 4.0),
        *weights,
        g.weights(F32, count, 2 * gates * hidden, scale=0.3),
    ]
    attrs = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        attrs["linear_before_reset"] = g.integer(0, 1)
    state = (F32, (count, batch, hidden), 1.0)
    results = [
        (F32, (steps, count, batch, hidden), 1.0),
        state,
        *([(F32, (count, batch, hidden), 8.0)] if op == "LSTM" else []),
    ]
    g.add_all(op, operands, results, **attrs)


def _body(g: Pool, x: Tensor, name: str) -> tuple[str, list[onnx.NodeProto]]:
    """A node or two on a value, as subgraphs hold them; their names are new."""
    first, last = (f"{g.prefix}b{len(g.nodes)}{name}{at}" for at in "ab")
    constant = g.weights(x.dtype, scale=0.5)
    g.read.add(constant)
    nodes = [
        helper.make_node(g.pick("Mul", "Add", "Sub"), [x.name, constant], [first]),
        helper.make_node(g.pick("Neg", "Abs", "Tanh") if is_float(x) else "Abs", [first], [last]),
    ]
    return last, nodes


def branch(g: Pool) -> None:
    """Two branches on a value from outside, and a condition that is known or not."""
    x = g.find(lambda one: one.dtype in (F32, F64) and one.limit < 1e5)
    if x is None or not g.since(13) or g.profile.free:
        return
    graphs = []
    for name in ("t", "e"):
        last, nodes = _body(g, x, name)
        info = helper.make_tensor_value_info(last, code(x.dtype), x.shape)
        graphs.append(helper.make_graph(nodes, name, [], [info]))
    if g.chance(0.5):
        condition = g.constant(np.asarray(g.chance(0.5)))
    else:
        condition = f"{g.prefix}x{len(g.inputs)}"
        g.inputs[condition] = [np.asarray(True), np.asarray(False)]
    g.read.add(x.name)
    g.add("If", [condition], x.shape, x, limit=x.limit + 16, then_branch=graphs[0], else_branch=graphs[1])


def loop(g: Pool) -> None:
    """A known number of turns that carry a value, and stack it."""
    x = g.find(lambda one: one.dtype in (F32, F64) and one.size <= 2000 and one.limit < 1e3)
    if x is None or not g.since(13) or g.profile.free:
        return
    turns, mark = g.integer(1, 4), f"{g.prefix}l{len(g.nodes)}"
    carried = Tensor(f"{mark}x", x.dtype, x.shape, x.limit)
    last, nodes = _body(g, carried, "l")
    nodes.append(helper.make_node("Identity", [f"{mark}c"], [f"{mark}d"]))
    nodes.append(helper.make_node("Identity", [last], [f"{mark}s"]))
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        nodes,
        "body",
        [
            info(f"{mark}i", code(I64), ()),
            info(f"{mark}c", 9, ()),
            info(carried.name, code(x.dtype), x.shape),
        ],
        [info(f"{mark}d", 9, ()), *(info(one, code(x.dtype), x.shape) for one in (last, f"{mark}s"))],
    )
    count, go = g.constant(np.asarray(turns, np.int64)), g.constant(np.asarray(True))
    limit = x.limit + 16
    results = [(x.dtype, x.shape, limit), (x.dtype, (turns, *x.shape), limit)]
    g.add_all("Loop", [count, go, x], results, body=body)


def source(g: Pool) -> None:
    """Tensors out of nothing, joined with what there is."""
    x = g.find(lambda one: one.dtype in (F32, F64, I64, I32) and 0 < one.rank <= 3 and one.size > 0)
    if x is None or g.profile.free:
        return
    kind, last = g.pick("ConstantOfShape", "Range", "EyeLike"), x.shape[-1]
    if kind == "ConstantOfShape":
        value = tensor(np.asarray([3]).astype(x.dtype))
        made = g.add(kind, [g.decides(*x.shape)], x.shape, x, limit=3.0, value=value)
    elif kind == "Range":
        ends = [g.constant(np.asarray(end, x.dtype)) for end in (1, 1 + 2 * last, 2)]
        made = g.add(kind, ends, (last,), x, limit=2.0 * last)
    elif x.rank == 2:
        made = g.add(kind, [x], x.shape, x, limit=1.0, k=g.integer(-1, 1))
    else:
        return
    g.add("Add", [x, made], x.shape, x, limit=x.limit + made.limit)


def attention(g: Pool) -> None:
    """softmax(q k^T) v as exporters spell it."""
    x = g.find(
        lambda one: one.dtype in FLOATS and one.rank == 3 and 1 < one.size <= 4000 and 0 not in one.shape
    )
    if x is None or not (g.takes("MatMul", x.dtype) and g.takes("Softmax", x.dtype)):
        return
    x = g.within(x, 4.0)
    n, tokens, width = x.shape
    q, k, v = (
        g.add("MatMul", [x, g.weights(x.dtype, width, 16, scale=width**-0.5)], (n, tokens, 16), x)
        for _ in range(3)
    )
    turned = g.add("Transpose", [k], (n, 16, tokens), x, perm=[0, 2, 1])
    scores = g.add("MatMul", [q, turned], (n, tokens, tokens), x, limit=64.0)
    scaled = g.add("Mul", [scores, g.constant(np.asarray(0.25).astype(x.dtype))], scores.shape, x, limit=16.0)
    weights = g.add("Softmax", [scaled], scores.shape, x, limit=1.0, axis=-1)
    g.add("MatMul", [weights, v], v.shape, x)


STEPS: tuple[Step, ...] = (quantise, quantise, integer_product, recurrent, branch, loop, source, attention)
