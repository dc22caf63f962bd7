"""Small pieces of work of every kind that the rules schedule, prime and odd extents among them."""

from __future__ import annotations

from collections.abc import Callable

from compiler.graph.fuse_attention import fuse_attention
from compiler.graph.fuse_chains import fuse_chains
from compiler.graph.fuse_factors import fuse_factors
from compiler.graph.ir import Value
from compiler.graph.ops.norm import emit_standardized
from compiler.graph.ops.windows import Windows
from tests.support.sketch import Sketch, Work, works

Make = Callable[[Sketch], Value]


def conv(
    channels: int, outer: int, size: int, hw: tuple[int, int], *, batch: int = 1, **options: int
) -> Make:
    """A convolution, a bias and ReLU."""

    def make(s: Sketch) -> Value:
        y = s.conv(s.input(batch, channels, *hw), outer, size, **options)  # type: ignore[arg-type]
        return s.emit("Relu", s.emit("Add", y, s.weights(outer, 1, 1)))

    return make


def deep(
    inner: Callable[[Sketch, Value], Value], channels: int = 10, size: int = 6
) -> Callable[[Sketch], Value]:
    """Work between two convolutions, so that its operands are in channel blocks."""

    def make(s: Sketch) -> Value:
        x = s.conv(s.input(1, 3, size, size), channels)
        return s.conv(inner(s, x), 4)

    return make


def dense(rows: int, inner: int, columns: int) -> Make:
    def make(s: Sketch) -> Value:
        y = s.emit("MatMul", s.input(rows, inner), s.weights(inner, columns))
        return s.emit("Relu", s.emit("Add", y, s.weights(columns)))

    return make


def swishes(count: int, *shape: int) -> Make:
    """v * sigmoid(v), again and again: written out, twice as long each time."""

    def make(s: Sketch) -> Value:
        y = s.input(*shape)
        for _ in range(count):
            y = s.emit("Mul", y, s.emit("Sigmoid", y))
        return y

    return make


def moved_swishes(s: Sketch) -> Value:
    """The same with channels last, between pools, so that the result is in channel blocks."""
    y = s.emit("Transpose", s.pool(s.input(1, 5, 6, 9), 2, 1), perm=(0, 2, 3, 1))
    for _ in range(4):
        y = s.emit("Mul", y, s.emit("Sigmoid", y))
    return s.pool(s.emit("Transpose", y, perm=(0, 3, 1, 2)), 2, 1)


def doubled(s: Sketch) -> Value:
    """Values that several others read, and these the last one."""
    x = s.input(5, 19)
    y = s.emit("Tanh", s.emit("Add", s.emit("Exp", s.emit("Mul", x, x)), x))
    a, b = s.emit("Mul", y, s.emit("Exp", y)), s.emit("Add", y, s.emit("Sigmoid", y))
    return s.emit(
        "Add", s.emit("Mul", a, s.emit("Tanh", a)), s.emit("Mul", b, s.emit("Exp", s.emit("Add", a, b)))
    )


def largest(axis: int, count: int) -> Callable[[Sketch, Value], Value]:
    """The largest elements along an axis, in order."""

    def make(s: Sketch, x: Value) -> Value:
        places = s.emit("TopPositions", x, axis=axis, k=count, largest=True)
        return s.emit("GatherElements", x, places, axis=axis)

    return make


def scattered(s: Sketch) -> Value:
    """Each row added up at the places of its own order."""
    x = s.input(4, 19)
    places = s.emit("TopPositions", x, axis=1, k=19, largest=False)
    return s.emit("ScatterElements", x, places, s.emit("Exp", x), axis=1, reduction="add")


def residual(s: Sketch) -> Value:
    x = s.conv(s.input(1, 5, 7, 7), 12)
    return s.emit("Relu", s.emit("Add", s.conv(x, 12, 1), x))


def separable(s: Sketch) -> Value:
    """A depthwise convolution of padded lines, and a 1 x 1 convolution of its channels in groups."""
    windows = Windows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
    x = s.emit("Conv", s.input(1, 40, 6, 7), s.weights(40, 1, 3, 3), group=40, **windows.attrs())
    return s.emit("Add", s.conv(s.emit("Relu", x), 14, groups=2), s.weights(14, 1, 1))


def gate(s: Sketch) -> Value:
    """The mean of each channel, and two dense layers, of which a cluster of blocks makes a launch."""
    x = s.conv(s.emit("Relu", s.conv(global_mean(s), 4)), 37)
    return s.emit("Sigmoid", s.emit("Add", x, s.weights(37, 1, 1)))


def attention(s: Sketch) -> Value:
    q, k, v = s.input(2, 5, 7), s.input(2, 7, 11), s.input(2, 11, 6)
    return s.emit("MatMul", s.emit("Softmax", s.emit("MatMul", q, k), axis=2, flatten=False), v)


def heads(rows: int, keys: int, depth: int, width: int) -> Make:
    """Attention of two heads as exporters write it: tensors by tokens, a scale, a mask."""

    def make(s: Sketch) -> Value:
        q, k, v = s.input(1, rows, 2, depth), s.input(1, keys, 2, depth), s.input(1, keys, 2, width)
        by_head = s.emit("Transpose", q, perm=(0, 2, 1, 3)), s.emit("Transpose", k, perm=(0, 2, 3, 1))
        scores = s.emit("Mul", s.emit("MatMul", *by_head), s.weights())
        scores = s.emit("Add", scores, s.input(1, 1, 1, keys))
        weights = s.emit("Softmax", scores, axis=3, flatten=False)
        y = s.emit("MatMul", weights, s.emit("Transpose", v, perm=(0, 2, 1, 3)))
        return s.emit("Transpose", y, perm=(0, 2, 1, 3))

    return make


def shared_keys(s: Sketch) -> Value:
    """Four heads of queries on two of keys and values (grouped queries), which are repeated for them."""

    def repeated(x: Value) -> Value:
        x = s.emit("Reshape", s.emit("Transpose", x, perm=(0, 2, 1, 3)), shape=(1, 2, 1, 9, 8))
        return s.emit("Reshape", s.emit("Expand", x, shape=(1, 2, 2, 9, 8)), shape=(1, 4, 9, 8))

    q = s.emit("Transpose", s.input(1, 7, 4, 8), perm=(0, 2, 1, 3))
    k, v = repeated(s.input(1, 9, 2, 8)), repeated(s.input(1, 9, 2, 8))
    scores = s.emit("Mul", s.emit("MatMul", q, s.emit("Transpose", k, perm=(0, 1, 3, 2))), s.weights())
    y = s.emit("MatMul", s.emit("Softmax", scores, axis=3, flatten=False), v)
    return s.emit("Transpose", y, perm=(0, 2, 1, 3))


def layer_norm(s: Sketch) -> Value:
    x = emit_standardized(s, s.input(5, 13), 1, 1e-5)
    return s.emit("Add", s.emit("Mul", x, s.weights(13)), s.weights(13))


def rms_norm(s: Sketch) -> Value:
    x = emit_standardized(s, s.input(5, 13), 1, 1e-5, centred=False)
    return s.emit("Mul", x, s.weights(13))


def norm_of_channels(channels: int, rows: int, columns: int) -> Make:
    """Layer normalisation over the channels of an image whose rows are channels first."""

    def make(s: Sketch) -> Value:
        x = s.emit("Transpose", s.input(1, channels, rows, columns), perm=(0, 2, 3, 1))
        x = emit_standardized(s, x, 3, 1e-5)
        return s.emit("Add", s.emit("Mul", x, s.weights(channels)), s.weights(channels))

    return make


def global_mean(s: Sketch) -> Value:
    return s.emit("Mul", s.emit("ReduceSum", s.input(1, 13, 5, 7), axes=(2, 3), keepdims=True), s.weights(1))


def slices(s: Sketch) -> Value:
    x = s.input(2, 9, 11)
    part = s.emit("Slice", x, begin=(0, 1, 2), step=(1, 2, 1), size=(2, 4, 7))
    return s.emit("Mul", part, s.emit("Sigmoid", part))


def two_pools(s: Sketch, x: Value) -> Value:
    return s.emit("Add", s.pool(x, 3, 1), s.pool(x, 3, 1, "MaxPool"))


def odd_join(s: Sketch, x: Value) -> Value:
    return s.emit("Concat", x, s.conv(x, 5), s.emit("Tanh", x), axis=1)


def window(size: int, channels: int, beta: float = 0.75) -> Make:
    return deep(lambda s, x: s.emit("LRN", x, size=size, alpha=0.5, beta=beta, bias=2.0), channels, 5)


def filtered_along(channels: int, outer: int, hw: tuple[int, int], kernel: tuple[int, int]) -> Make:
    """A convolution with other taps down than across, between two others."""

    def make(s: Sketch) -> Value:
        x = s.conv(s.input(2, 3, *hw), channels)
        windows = Windows(kernel, (1, 1), (1, 1), (0, 0), (0, 0))
        weights = s.weights(outer, channels, *kernel)
        return s.conv(s.emit("Relu", s.emit("Conv", x, weights, group=1, **windows.attrs())), 4)

    return make


def filtered(channels: int, outer: int, size: int, batch: int = 1) -> Make:
    """A padded 3 x 3 convolution with a residual, between two others."""

    def make(s: Sketch) -> Value:
        x = s.conv(s.input(batch, 3, size, size + 1), channels)
        y = s.emit("Add", s.conv(s.pad(x), outer, 3), s.weights(outer, 1, 1))
        y = s.emit("Add", y, x) if outer == channels else s.pad(y)
        return s.conv(y, 4)

    return make


GRAPHS: dict[str, Make] = {
    "winograd-2": filtered(8, 8, 4),
    "winograd-2 one vector": filtered(16, 16, 6),
    "winograd-4": filtered(8, 16, 8),
    "winograd-4 sticking out": filtered(4, 12, 7),
    "winograd-4 batch": filtered(8, 4, 6, 3),
    "winograd-4 odd channels": filtered(5, 7, 5),
    "winograd-2 row-major": conv(4, 4, 3, (6, 6)),
    "winograd-1x4": filtered_along(8, 16, (5, 11), (1, 3)),
    "winograd-1x4 of 3x3": filtered_along(8, 8, (5, 6), (3, 3)),
    "winograd-4x1": filtered_along(8, 8, (9, 3), (3, 1)),
    "winograd-4x1 of 3x3": filtered_along(4, 8, (8, 5), (3, 3)),
    "winograd-4 one tile across": filtered(8, 8, 3, 2),
    "im2col": deep(lambda s, x: s.emit("Relu", s.conv(x, 12, 3)), 16, 7),
    "im2col strided": conv(5, 9, 3, (11, 9), stride=2, batch=2),
    "im2col 1x1": deep(lambda s, x: s.emit("Add", s.conv(x, 24, 1), x), 24, 5),
    "im2col padded": deep(lambda s, x: s.pad(s.conv(s.pad(x), 6, 3)), 6, 5),
    "window": window(5, 16),
    "window even": window(4, 16, 0.5),
    "window odd channels": window(3, 10),
    "window of one": window(1, 8, 1.0),
    "conv 3x3": conv(7, 18, 3, (7, 9)),
    "conv 3x3 prime": conv(3, 13, 3, (7, 13)),
    "conv 1x1": conv(10, 18, 1, (5, 7)),
    "conv strided": conv(5, 9, 3, (11, 9), stride=2),
    "conv dilated": conv(3, 8, 3, (9, 9), dilation=2),
    "conv batch": conv(4, 6, 2, (5, 6), batch=3),
    "conv one channel": conv(1, 1, 3, (6, 7)),
    "conv grouped": conv(12, 20, 3, (5, 6), groups=2),
    "conv odd groups": conv(14, 14, 3, (5, 5), groups=2),
    "depthwise": conv(11, 11, 3, (7, 8), groups=11),
    "depthwise multiplied": conv(6, 12, 3, (5, 5), groups=6),
    "deep conv": deep(lambda s, x: s.emit("Relu", s.conv(x, 7, 3)), 10),
    "deep conv in chunks": deep(lambda s, x: s.emit("Relu", s.conv(x, 12, 3)), 24, 7),
    "deep 1x1 in chunks": deep(lambda s, x: s.emit("Add", s.conv(x, 24, 1), x), 24, 5),
    "deep groups in chunks": deep(lambda s, x: s.conv(s.conv(x, 32, 1), 24, 3, groups=2), 32, 5),
    "deep depthwise": deep(lambda s, x: s.conv(x, 10, 3, groups=10), 10),
    "deep depthwise strided": deep(lambda s, x: s.conv(x, 11, 3, groups=11, stride=2), 11, 9),
    "deep odd groups": deep(lambda s, x: s.conv(s.conv(x, 14, 1, groups=2), 14, 3, groups=2), 14, 5),
    "deep groups of groups": deep(
        lambda s, x: s.conv(s.pad(s.emit("Relu", s.conv(x, 20, 1, groups=2))), 20, 3, groups=4), 20, 4
    ),
    "deep groups to one group": deep(lambda s, x: s.pool(s.conv(x, 18, 1, groups=2), 4, 4), 18, 4),
    "deep groups shuffled": deep(
        lambda s, x: s.conv(
            s.emit("ChannelShuffle", s.conv(x, 12, groups=2), axis=1, groups=2), 28, groups=4
        ),
        14,
        3,
    ),
    "deep sigmoid gate": deep(lambda s, x: s.emit("Mul", x, s.emit("Sigmoid", s.conv(x, 10)))),
    "deep shuffle": deep(lambda s, x: s.emit("ChannelShuffle", x, axis=1, groups=2)),
    "deep pad": deep(lambda s, x: s.conv(s.pad(x, 2, 1), 6, 3)),
    "deep pools": deep(two_pools, 9),
    "deep join": deep(odd_join, 7),
    "deep scan": deep(lambda s, x: s.emit("CumSum", x, axis=1, exclusive=False, reverse=True)),
    "deep best": deep(largest(1, 3)),
    "deep order": deep(largest(1, 36), 36, 3),
    "scan": lambda s: s.emit("CumSum", s.input(5, 7, 3), axis=1, exclusive=True, reverse=False),
    "scatter": scattered,
    "residual": residual,
    "conv 1-d": lambda s: s.conv(s.input(2, 5, 17), 6, 3),
    "conv 3-d": lambda s: s.conv(s.input(1, 2, 4, 5, 6), 5, 2),
    "dense one row": dense(1, 37, 21),
    "dense long": dense(6, 272, 9),
    "dense": dense(7, 16, 19),
    "dense one column": dense(5, 13, 1),
    "matmul of activations": lambda s: s.emit("MatMul", s.input(3, 5, 7), s.input(3, 7, 10)),
    "product of odd extents": lambda s: s.emit("MatMul", s.input(2, 13, 6), s.input(2, 6, 19)),
    "product of one row": lambda s: s.emit("MatMul", s.input(3, 1, 9), s.input(3, 9, 21)),
    "product transposed": lambda s: s.emit(
        "MatMul", s.input(2, 5, 9), s.emit("Transpose", s.input(2, 13, 9), perm=(0, 2, 1))
    ),
    "product of heads": lambda s: s.emit(
        "MatMul",
        s.emit("Transpose", s.input(7, 2, 18), perm=(1, 0, 2)),
        s.emit("Transpose", s.input(21, 2, 18), perm=(1, 2, 0)),
    ),
    "product with shared columns": lambda s: s.emit("MatMul", s.input(2, 3, 5, 8), s.input(2, 1, 8, 37)),
    "separable": separable,
    "attention": attention,
    "attention of heads": heads(13, 21, 5, 8),
    "attention of many rows": heads(18, 19, 4, 10),
    "attention of one row": heads(1, 37, 4, 3),
    "attention of few rows": heads(3, 6, 8, 16),
    "attention with shared keys": shared_keys,
    "max pool": lambda s: s.pool(s.input(1, 5, 9, 11), 3, 2, "MaxPool"),
    "sum pool": lambda s: s.emit("Mul", s.pool(s.input(2, 3, 7, 7), 2, 2), s.weights(1)),
    "global mean": global_mean,
    "global max": lambda s: s.emit("ReduceMax", s.input(2, 7, 3, 5), axes=(2, 3), keepdims=True),
    "sum of columns": lambda s: s.emit("ReduceSum", s.input(11, 7), axes=(0,), keepdims=False),
    "sum of everything": lambda s: s.emit("ReduceSum", s.input(5, 7), axes=(0, 1), keepdims=False),
    "sum of scaled": lambda s: s.emit(
        "ReduceSum", s.emit("Mul", s.input(5, 18), s.input()), axes=(0,), keepdims=False
    ),
    "sums of several axes": lambda s: s.emit("ReduceSum", s.input(3, 5, 7, 2), axes=(0, 2), keepdims=False),
    "conv to one channel": deep(lambda s, x: s.emit("Sigmoid", s.conv(x, 1, 3))),
    "arg max": lambda s: s.emit("ArgMax", s.input(5, 13), axes=(1,), keepdims=False, last=False),
    "softmax": lambda s: s.emit("Softmax", s.input(3, 21), axis=1, flatten=False),
    "softmax long": lambda s: s.emit("Softmax", s.input(6, 150), axis=1, flatten=False),
    "softmax of columns": lambda s: s.emit("Softmax", s.input(7, 10), axis=0, flatten=False),
    "layer norm": layer_norm,
    "rms norm": rms_norm,
    "layer norm of channels": norm_of_channels(13, 3, 21),
    "elementwise": lambda s: s.emit("Tanh", s.emit("Add", s.input(3, 37), s.input(37))),
    "shared values": swishes(7, 3, 37),
    "shared values in one vector": swishes(5, 4),
    "shared values, few": swishes(4, 3, 2),
    "shared values of a scalar": swishes(4),
    "shared values in a sum": lambda s: s.emit("ReduceSum", swishes(4, 5, 18)(s), axes=(1,), keepdims=False),
    "shared values read by several": doubled,
    "shared values moved": moved_swishes,
    "shared values padded": lambda s: s.pad(swishes(6, 1, 2, 5, 6)(s)),
    "scalar": lambda s: s.emit("Exp", s.input()),
    "transpose": lambda s: s.emit("Transpose", s.input(3, 5, 7), perm=(2, 0, 1)),
    "pad": lambda s: s.pad(s.emit("Relu", s.input(1, 3, 5, 7)), 2, 1),
    "slice": slices,
    "join": lambda s: s.emit("Concat", s.input(2, 3, 5), s.input(2, 4, 5), s.input(2, 1, 5), axis=1),
}


def around(channels: int, outer: int, hw: tuple[int, int], batch: int = 1) -> Make:
    """A 3 x 3 convolution that pads by itself, a bias, a residual where it has one, and ReLU."""

    def make(s: Sketch) -> Value:
        x = s.input(batch, channels, *hw)
        windows = Windows((3, 3), (1, 1), (1, 1), (1, 1), (1, 1))
        y = s.emit("Conv", x, s.weights(outer, channels, 3, 3), group=1, **windows.attrs())
        y = s.emit("Add", y, s.weights(outer, 1, 1))
        return s.emit("Relu", s.emit("Add", y, x) if outer == channels else y)

    return make


ON_THREADS: dict[str, Make] = {
    "winograd-fused-1": around(18, 18, (3, 5), 2),
    "winograd-fused-1 without padding": conv(16, 16, 3, (8, 8)),
    "winograd-fused-2": around(32, 16, (4, 6)),
    "attention of long rows": heads(20, 45, 16, 10),
    "gate": gate,
}
"""Those of which only devices that bind loops to threads have the form."""


def works_of(name: str, lanes: int, *, joined: bool = True) -> list[Work]:
    """The loop functions of a graph above, in the layouts that the graph pass chooses for `lanes`.

    The first word of its name is the form of its convolutions, where they have it. joined: every attention is
    one kernel, as on processors with vectors; else that of many rows, as on devices that bind threads, and so
    are a depthwise convolution and the 1 x 1 convolution that reads it, and the layers of a gate.
    """
    sketch = Sketch()
    fused = fuse_attention(sketch.fused({**GRAPHS, **ON_THREADS}[name](sketch)), threads=not joined)
    if not joined:
        fused = fuse_factors(fused, lambda _first, _product: True)
        fused = fuse_chains(fused, lambda parts: len(parts) if name == "gate" else 0.0)
    return list(works(fused, lanes, form=name.split()[0]))
