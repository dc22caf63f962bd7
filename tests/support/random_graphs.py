"""Random ONNX graphs over the op records: the same seed gives the same graph.

A graph grows from one to three inputs. Each step picks an operator and operands that fit it among the values
so far; what nobody reads is an output. Numbers are kept in range, so that results of different summation
orders stay comparable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.support.onnx_models import model

OPSET = 18
PRIMES = (1, 2, 3, 5, 7, 11, 13)


@dataclass
class Growing:
    """A graph under construction: values by name (with their shapes), constants, nodes."""

    rng: np.random.Generator
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    read: set[str] = field(default_factory=set)

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def value(self, fits: Callable[[tuple[int, ...]], bool] = lambda _: True) -> str | None:
        """A value whose shape fits; later ones are likelier, so that graphs grow deep."""
        names = [name for name, shape in self.shapes.items() if fits(shape)]
        if not names:
            return None
        weights = np.arange(1, len(names) + 1, dtype=np.float64) ** 2
        return str(self.rng.choice(names, p=weights / weights.sum()))

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weights(self, *shape: int, scale: float = 1.0) -> str:
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", **attrs))
        self.shapes[name] = shape
        self.read.update(inputs)
        return name


def broadcast_operand(g: Growing, shape: tuple[int, ...]) -> str:
    """Another value of the shape, or a constant that broadcasts to it."""
    other = g.value(lambda s: s == shape)
    if other is not None and g.rng.random() < 0.5:
        return other
    kept = shape[g.integer(0, len(shape)) :]
    return g.weights(*(n if g.rng.random() < 0.7 else 1 for n in kept))


def unary(g: Growing) -> None:
    x = g.value()
    assert x is not None
    op, attrs = g.pick(
        ("Relu", {}), ("Sigmoid", {}), ("Tanh", {}), ("LeakyRelu", {"alpha": 0.1}), ("Elu", {}), ("Abs", {}),
        ("Neg", {}), ("HardSwish", {}), ("HardSigmoid", {}), ("Erf", {}), ("Softplus", {}), ("Softsign", {}),
        ("Identity", {}), ("Dropout", {}), ("Sin", {}), ("Selu", {}),
    )  # fmt: skip
    g.add(op, [x], g.shapes[x], **attrs)


def bounded(g: Growing) -> None:
    """Operators that need a restricted range get it."""
    x = g.value()
    assert x is not None
    shape = g.shapes[x]
    positive = g.add("Add", [g.add("Abs", [x], shape), g.constant(np.float32(0.5))], shape)
    op = g.pick("Sqrt", "Log", "Reciprocal", "Pow", "Exp")
    if op == "Exp":
        g.add("Exp", [g.add("Tanh", [x], shape)], shape)
    elif op == "Pow":
        g.add("Pow", [positive, g.constant(np.float32(g.pick(0.5, 1.3, -1)))], shape)
    else:
        g.add(op, [positive], shape)


def binary(g: Growing) -> None:
    x = g.value()
    assert x is not None
    shape = g.shapes[x]
    operands = [x, broadcast_operand(g, shape)]
    if g.rng.random() < 0.3:
        operands.reverse()
    g.add(g.pick("Add", "Sub", "Mul", "Max", "Min", "Sum", "Mean"), operands, shape)


def choice(g: Growing) -> None:
    x = g.value()
    assert x is not None
    shape = g.shapes[x]
    cond = g.add(g.pick("Greater", "Less"), [x, broadcast_operand(g, shape)], shape)
    del g.shapes[cond]  # a truth value: not for other operators
    g.add("Where", [cond, x, broadcast_operand(g, shape)], shape)


def clip(g: Growing) -> None:
    x = g.value()
    assert x is not None
    low, high = g.pick((0, 6), (-1, 1), (0, None), (None, 0.5))
    ends = ["" if bound is None else g.constant(np.float32(bound)) for bound in (low, high)]
    g.add("Clip", [x, *ends], g.shapes[x])


def reshape(g: Growing) -> None:
    x = g.value()
    assert x is not None
    shape = g.shapes[x]
    if g.rng.random() < 0.4 and len(shape) < 5:
        axis = g.integer(0, len(shape))
        new = (*shape[:axis], 1, *shape[axis:])
        g.add("Unsqueeze", [x, g.constant([axis])], new)
        return
    if len(shape) > 1:
        axis = g.integer(0, len(shape) - 2)
        new = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        g.add("Reshape", [x, g.constant(list(new))], new)


def transpose(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 1)
    if x is None:
        return
    shape = g.shapes[x]
    perm = [int(axis) for axis in g.rng.permutation(len(shape))]
    moved = g.add("Transpose", [x], tuple(shape[axis] for axis in perm), perm=perm)
    if g.rng.random() < 0.5:
        g.shapes.setdefault(moved, ())
        back = [int(axis) for axis in np.argsort(perm)]
        y = g.add("Relu", [moved], g.shapes[moved])
        g.add("Transpose", [y], shape, perm=back)


def slices(g: Growing) -> None:
    x = g.value(lambda s: any(n > 1 for n in s))
    if x is None:
        return
    shape = g.shapes[x]
    axis = g.pick(*(axis for axis, n in enumerate(shape) if n > 1))
    n = shape[axis]
    first, step = g.integer(0, n - 1), g.pick(1, 1, 2)
    taken = len(range(first, n, step))
    new = (*shape[:axis], taken, *shape[axis + 1 :])
    g.add("Slice", [x, *(g.constant([value]) for value in (first, n + 3, axis, step))], new)


def concat(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 0)
    if x is None:
        return
    shape = g.shapes[x]
    axis = g.integer(0, len(shape) - 1)
    other = g.value(
        lambda s: (
            len(s) == len(shape)
            and all(a == b for i, (a, b) in enumerate(zip(s, shape, strict=True)) if i != axis)
        )
    )
    parts = [x, other or x, *([g.weights(*shape)] if g.rng.random() < 0.3 else [])]
    sizes = [g.shapes[name][axis] if name in g.shapes else g.constants[name].shape[axis] for name in parts]
    g.add("Concat", parts, (*shape[:axis], sum(sizes), *shape[axis + 1 :]), axis=axis)


def pad(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 0 and min(s) > 2)
    if x is None:
        return
    shape = g.shapes[x]
    pads = [g.integer(0, 2) for _ in range(2 * len(shape))]
    new = tuple(n + pads[i] + pads[i + len(shape)] for i, n in enumerate(shape))
    g.add("Pad", [x, g.constant(pads)], new, mode=g.pick("constant", "constant", "edge", "reflect"))


def gather(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 0)
    if x is None:
        return
    shape = g.shapes[x]
    axis = g.integer(0, len(shape) - 1)
    indices = g.rng.integers(-shape[axis], shape[axis], g.integer(1, 4))
    g.add("Gather", [x, g.constant(indices)], (*shape[:axis], len(indices), *shape[axis + 1 :]), axis=axis)


def expand(g: Growing) -> None:
    x = g.value(lambda s: 1 in s)
    if x is None:
        return
    shape = tuple(g.integer(1, 4) if n == 1 else n for n in g.shapes[x])
    g.add("Expand", [x, g.constant(list(shape))], shape)


def reduce(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 0)
    if x is None:
        return
    shape = g.shapes[x]
    axes = sorted({g.integer(0, len(shape) - 1) for _ in range(g.integer(1, 2))})
    keep = g.integer(0, 1)
    new = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
    op = g.pick("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL2", "ReduceSumSquare")
    g.add(op, [x, g.constant(axes)], new, keepdims=keep)


def rows(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 0)
    if x is None:
        return
    shape = g.shapes[x]
    axis = g.integer(0, len(shape) - 1)
    if g.rng.random() < 0.6:
        g.add(g.pick("Softmax", "LogSoftmax"), [x], shape, axis=axis)
    else:
        inner = shape[axis:]
        g.add("LayerNormalization", [x, g.weights(*inner), g.weights(*inner)], shape, axis=axis, epsilon=0.1)


def _image(g: Growing, least: int = 3) -> str | None:
    found = g.value(lambda s: len(s) == 4 and min(s[2:]) >= least and np.prod(s) < 20000)
    if found is not None:
        return found
    small = g.value(lambda s: 1 < np.prod(s) < 2000)
    if small is None:
        return None
    size = int(np.prod(g.shapes[small]))
    shape = (1, g.integer(2, 6), g.integer(4, 9), g.integer(4, 9))
    flat = g.add("Reshape", [small, g.constant([1, size])], (1, size))
    count = int(np.prod(shape))
    grown = g.add("MatMul", [flat, g.weights(size, count, scale=size**-0.5)], (1, count))
    return g.add("Reshape", [grown, g.constant(list(shape))], shape)


def conv(g: Growing) -> None:
    x = _image(g)
    if x is None:
        return
    n, c, *space = g.shapes[x]
    group = g.pick(1, 1, c, 2 if c % 2 == 0 else 1)
    outer = group * g.integer(1, 4)
    kernel = [g.integer(1, 3) for _ in space]
    strides, pads = [g.integer(1, 2) for _ in space], [g.integer(0, 1) for _ in range(4)]
    dilations = [g.pick(1, 1, 2) for _ in space]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    new = [(m + pads[i] + pads[i + 2] - reach[i]) // strides[i] + 1 for i, m in enumerate(space)]
    if min(new) < 1 or any(m + pads[i] + pads[i + 2] < reach[i] for i, m in enumerate(space)):
        return
    taps = c // group * int(np.prod(kernel))
    inputs = [x, g.weights(outer, c // group, *kernel, scale=taps**-0.5)]
    if g.rng.random() < 0.5:
        inputs.append(g.weights(outer))
    shape = (n, outer, *new)
    y = g.add(
        "Conv",
        inputs,
        shape,
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        group=group,
        dilations=dilations,
    )
    if g.rng.random() < 0.5:
        factors = [g.constant(g.rng.uniform(0.5, 1.5, outer).astype(np.float32)) for _ in range(4)]
        y = g.add("BatchNormalization", [y, *factors], shape)
    if g.rng.random() < 0.5:
        g.add("Relu", [y], shape)


def conv_transpose(g: Growing) -> None:
    x = _image(g)
    if x is None:
        return
    n, c, *space = g.shapes[x]
    outer, kernel, strides = (
        g.integer(1, 4),
        [g.integer(1, 3) for _ in space],
        [g.integer(1, 2) for _ in space],
    )
    new = [(m - 1) * s + k for m, s, k in zip(space, strides, kernel, strict=True)]
    weights = g.weights(c, outer, *kernel, scale=(c * int(np.prod(kernel))) ** -0.5)
    g.add("ConvTranspose", [x, weights], (n, outer, *new), kernel_shape=kernel, strides=strides)


def pool(g: Growing) -> None:
    x = _image(g)
    if x is None:
        return
    n, c, *space = g.shapes[x]
    if g.rng.random() < 0.2:
        g.add(g.pick("GlobalAveragePool", "GlobalMaxPool"), [x], (n, c, 1, 1))
        return
    kernel, strides = [g.integer(2, 3) for _ in space], [g.integer(1, 2) for _ in space]
    pads = [g.integer(0, 1) for _ in range(4)]
    new = [(m + pads[i] + pads[i + 2] - kernel[i]) // strides[i] + 1 for i, m in enumerate(space)]
    attrs = {"count_include_pad": g.integer(0, 1)}
    op = g.pick("MaxPool", "AveragePool")
    g.add(
        op,
        [x],
        (n, c, *new),
        kernel_shape=kernel,
        strides=strides,
        pads=pads,
        **(attrs if op == "AveragePool" else {}),
    )


def lrn(g: Growing) -> None:
    x = _image(g)
    if x is not None:
        g.add("LRN", [x], g.shapes[x], size=g.pick(1, 3, 5), alpha=0.01, beta=g.pick(0.5, 0.75), bias=1.0)


def resize(g: Growing) -> None:
    x = _image(g)
    if x is None:
        return
    shape = g.shapes[x]
    sizes = (*shape[:2], *(n * 2 if g.rng.random() < 0.5 else g.integer(2, 2 * n) for n in shape[2:]))
    mode = g.pick("nearest", "linear")
    # With other coordinates a result may sit exactly between two sources, where runtimes differ.
    coordinates = "half_pixel" if mode == "linear" else "asymmetric"
    rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
    g.add(
        "Resize",
        [x, "", "", g.constant(list(sizes))],
        sizes,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        **rounding,
    )


def matmul(g: Growing) -> None:
    x = g.value(lambda s: len(s) > 1 and s[-1] < 500)
    if x is None:
        return
    shape = g.shapes[x]
    inner, outer = shape[-1], g.pick(*PRIMES)
    if len(shape) == 2 and g.rng.random() < 0.5:
        flip = g.integer(0, 1)
        weights = g.weights(*((outer, inner) if flip else (inner, outer)), scale=inner**-0.5)
        bias = g.weights(outer)
        g.add("Gemm", [x, weights, bias], (shape[0], outer), transB=flip, alpha=g.pick(1.0, 0.5))
        return
    other = g.value(lambda s: s == shape)
    if other is not None and g.rng.random() < 0.4:
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        turned = g.add("Transpose", [other], tuple(shape[axis] for axis in perm), perm=perm)
        y = g.add("MatMul", [x, turned], (*shape[:-1], shape[-2]))
        g.add("Mul", [y, g.constant(np.float32(1 / inner))], (*shape[:-1], shape[-2]))
        return
    g.add("MatMul", [x, g.weights(inner, outer, scale=inner**-0.5)], (*shape[:-1], outer))


STEPS = (
    unary, unary, bounded, binary, binary, choice, clip, reshape, transpose, slices, concat, pad, gather,
    expand, reduce, rows, conv, conv, conv_transpose, pool, lrn, resize, matmul, matmul,
)  # fmt: skip
LIMIT = 60_000


def random_model(seed: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model and its inputs."""
    g = Growing(np.random.default_rng(seed))
    inputs: dict[str, np.ndarray] = {}
    for number in range(g.integer(1, 3)):
        rank = g.pick(2, 3, 4, 4)
        shape = (
            (1, g.integer(2, 6), g.integer(4, 9), g.integer(4, 9))
            if rank == 4
            else tuple(g.pick(*PRIMES) for _ in range(rank))
        )
        inputs[f"x{number}"] = g.rng.uniform(-2, 2, shape).astype(np.float32)
        g.shapes[f"x{number}"] = shape
    wanted = g.integer(2, 14)
    for _ in range(60):
        if len(g.nodes) >= wanted:
            break
        g.pick(*STEPS)(g)
        for name in [name for name, shape in g.shapes.items() if np.prod(shape) > LIMIT]:
            del g.shapes[name]
    made = [output for item in g.nodes for output in item.output]
    loose = [name for name in made if name not in g.read]
    middle = [name for name in made if name in g.read and name in g.shapes and g.rng.random() < 0.1]
    return model(g.nodes, inputs, [*middle, *loose], g.constants, OPSET, ir_version=8), inputs
