"""What networks do while they are trained: normalisation of a batch by itself, and steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.core.types import F64
from compiler.frontend.composites.writer import BodyWriter, Write
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError, UnsupportedError

_F64 = TensorType(F64, ())


def _batch_normalization(w: BodyWriter) -> tuple[str, ...]:
    """Normalised by its own mean and variance; those of former batches and of this one are mixed.

    Outputs 3 and 4, mean and variance of this batch alone, there were before opset 14 only.
    """
    if w.opset < 7:
        raise UnsupportedError("before opset 7 it is supported outside of training mode only")
    w.refuse(spatial=1)
    w.given("training_mode")
    x, scale, bias, mean, var = (w.input(at) for at in range(5))
    kind, stored = w.type(0), w.type(3)
    axes = w.constant([axis for axis in range(kind.rank) if axis != 1])
    batch_mean = w.emit("ReduceMean", w.cast(x, stored), axes, keepdims=1)
    distance = w.emit("Sub", w.cast(x, stored), batch_mean)
    batch_var = w.emit("ReduceMean", w.emit("Mul", distance, distance), axes, keepdims=0)
    batch_mean = w.emit("Reshape", batch_mean, w.constant([-1]))
    epsilon = w.attribute("epsilon", 1e-5)
    y = w.emit("BatchNormalization", x, scale, bias, batch_mean, batch_var, epsilon=epsilon)
    momentum = w.attribute("momentum", 0.9)
    mixed = (
        w.emit("Add", w.scaled(old, momentum, stored), w.scaled(new, 1 - momentum, stored))
        for old, new in ((mean, batch_mean), (var, batch_var))
    )
    return y, *mixed, batch_mean, batch_var


Step = Callable[[BodyWriter, Sequence[str], TensorType], tuple[str, ...]]
"""Writes one step for one tensor: its value, its gradient and what is kept of former steps, all new."""


def _each(count: int, step: Step) -> Write:
    """A step for each tensor; the inputs are rate, number of the step, then `count` times as many tensors."""

    def write(w: BodyWriter) -> tuple[str, ...]:
        number, rest = divmod(len(w.inputs) - 2, count)
        if rest or not number:
            raise InvalidError(f"it has {len(w.inputs)} inputs: 2, and {count} for each tensor are needed")
        made = [step(w, w.inputs[2 + at :: number], w.type(2 + at)) for at in range(number)]
        return tuple(name for kept in zip(*made, strict=True) for name in kept)

    return write


def _regularised(w: BodyWriter, x: str, gradient: str, kind: TensorType) -> str:
    return w.emit("Add", w.scaled(x, w.attribute("norm_coefficient", 0.0), kind), gradient)


def _rooted(w: BodyWriter, squares: str, default: float, kind: TensorType) -> str:
    return w.emit("Add", w.emit("Sqrt", squares), w.constant(w.attribute("epsilon", default), kind))


def _adagrad(w: BodyWriter, tensors: Sequence[str], kind: TensorType) -> tuple[str, ...]:
    x, gradient, squares = tensors
    passed = w.scaled(w.cast(w.input(1), kind), w.attribute("decay_factor", 0.0), kind)
    rate = w.emit("Div", w.cast(w.input(0), kind), w.emit("Add", passed, w.constant(1, kind)))
    gradient = _regularised(w, x, gradient, kind)
    squares = w.emit("Add", squares, w.emit("Mul", gradient, gradient))
    step = w.emit("Div", w.emit("Mul", rate, gradient), _rooted(w, squares, 1e-6, kind))
    return w.emit("Sub", x, step), squares


def _adam(w: BodyWriter, tensors: Sequence[str], kind: TensorType) -> tuple[str, ...]:
    """Means of gradients and of their squares start at zero; the rate makes up for that."""
    x, gradient, mean, squares = tensors
    alpha, beta = w.attribute("alpha", 0.9), w.attribute("beta", 0.999)
    gradient = _regularised(w, x, gradient, kind)
    mean = w.emit("Add", w.scaled(mean, alpha, kind), w.scaled(gradient, 1 - alpha, kind))
    square = w.emit("Mul", gradient, gradient)
    squares = w.emit("Add", w.scaled(squares, beta, kind), w.scaled(square, 1 - beta, kind))
    rate = w.cast(_adam_rate(w, alpha, beta), kind)
    step = w.emit("Mul", rate, w.emit("Div", mean, _rooted(w, squares, 1e-6, kind)))
    after = 1 - w.attribute("norm_coefficient_post", 0.0)
    return w.scaled(w.emit("Sub", x, step), after, kind), mean, squares


def _adam_rate(w: BodyWriter, alpha: float, beta: float) -> str:
    """In f64: beta to the power of the first steps is close to one."""
    rate, steps, one = w.cast(w.input(0), _F64), w.cast(w.input(1), _F64), w.constant(1, _F64)
    left = [
        w.emit("Sub", one, w.emit("Pow", w.constant(base, _F64), steps)) for base in (beta, alpha)
    ]  # fmt: skip
    corrected = w.emit("Div", w.emit("Mul", rate, w.emit("Sqrt", left[0])), left[1])
    return w.emit("Where", w.emit("Greater", steps, w.constant(0, _F64)), corrected, rate)


def _momentum(w: BodyWriter, tensors: Sequence[str], kind: TensorType) -> tuple[str, ...]:
    x, gradient, velocity = tensors
    mode, alpha = w.attribute("mode"), w.attribute("alpha")
    if mode not in ("standard", "nesterov"):
        raise InvalidError(f"mode {mode!r} is neither standard nor nesterov")
    gradient = _regularised(w, x, gradient, kind)
    first = w.emit("LessOrEqual", w.input(1), w.constant(0, w.type(1)))
    beta = w.emit("Where", first, w.constant(1, kind), w.constant(w.attribute("beta"), kind))
    velocity = w.emit("Add", w.scaled(velocity, alpha, kind), w.emit("Mul", beta, gradient))
    ahead = w.emit("Add", gradient, w.scaled(velocity, alpha, kind)) if mode == "nesterov" else velocity
    return w.emit("Sub", x, w.emit("Mul", w.cast(w.input(0), kind), ahead)), velocity


_DOMAIN = "ai.onnx.preview.training"

BODIES: Mapping[tuple[str, str], Write] = {
    ("", "BatchNormalization"): _batch_normalization,
    (_DOMAIN, "Adagrad"): _each(3, _adagrad),
    (_DOMAIN, "Adam"): _each(4, _adam),
    (_DOMAIN, "Momentum"): _each(3, _momentum),
}
