"""What chance decides: which elements Dropout leaves out, and draws from a distribution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from compiler.core.types import BOOL, F64, I32
from compiler.frontend.composites.writer import BodyWriter, Write
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError, UnsupportedError

_BOOL, _F64, _I32 = (TensorType(kind, ()) for kind in (BOOL, F64, I32))


def _dropout(w: BodyWriter) -> tuple[str, ...]:
    """While a network is trained each element is left out with probability `ratio`; later all are kept.

    Those that stay are scaled, so that sums stay what they are. Output 1 says which do.
    """
    x, kind, seed = w.input(0), w.type(0), w.given("seed")
    if w.opset < 7:
        raise UnsupportedError("before opset 7 it is supported outside of training mode only")
    ratio = float(w.attribute("ratio", 0.5))  # an input since opset 12
    training = w.content(2) if w.has(2) else np.zeros((), bool)
    known_ratio = w.content(1) if w.has(1) else np.asarray(ratio)
    if known_ratio is not None and not 0 <= float(known_ratio.reshape(())) <= 1:
        raise InvalidError(f"its ratio is {known_ratio}, not between 0 and 1")
    if training is not None and not training.any():
        mask = w.constant(np.ones(kind.shape), _BOOL)
        return x, w.cast(mask, kind) if w.opset < 10 else mask
    limit = w.cast(w.input(1), _F64) if w.has(1) else w.constant(ratio, _F64)
    if training is None:  # only a run knows
        limit = w.emit("Where", w.input(2), limit, w.constant(0, _F64))
    mask = w.emit("GreaterOrEqual", _uniform(w, kind.shape, seed), limit)
    one = w.constant(1, _F64)
    scale = w.cast(w.emit("Div", one, w.emit("Sub", one, limit)), kind)
    return w.emit("Where", mask, w.emit("Mul", x, scale), w.constant(0, kind)), mask


def _bernoulli(w: BodyWriter) -> tuple[str, ...]:
    """1 with the probability that the input says, as ONNX has it in words (its function body has 1 - p)."""
    kind = w.type(0)
    drawn = _uniform(w, kind.shape, w.given("seed"))
    met = w.emit("Less", drawn, w.cast(w.input(0), _F64))
    to = w.given("dtype")
    return (w.emit("Cast", met, to=to["dtype"]) if to else w.cast(met, kind),)


def _uniform(w: BodyWriter, shape: Sequence[int], seed: Mapping[str, Any]) -> str:
    """From 0 to 1, in f64; each node's own numbers where it has no seed."""
    seeds: dict[str, Any] = {name: float(value) for name, value in seed.items()}
    return w.emit("RandomUniform", shape=list(shape), dtype=TensorProto.DOUBLE, **seeds)


def _multinomial(w: BodyWriter) -> tuple[str, ...]:
    """Of each row, whose numbers are logarithms of weights, the classes where uniform draws fall."""
    kind = w.type(0)
    if kind.rank != 2:
        raise InvalidError(f"its input is {kind}, not a matrix")
    (rows, classes), draws = kind.shape, w.attribute("sample_size", 1)
    parts = w.emit("Softmax", w.cast(w.input(0), _F64), axis=1)
    ends = w.emit("Reshape", w.emit("CumSum", parts, w.constant(1)), w.constant([rows, 1, classes]))
    passed = w.emit("GreaterOrEqual", _uniform(w, (rows, draws, 1), w.given("seed")), ends)
    number = w.emit("ReduceSum", w.cast(passed, _I32), w.constant([2]), keepdims=0)
    number = w.emit("Min", number, w.constant(classes - 1, _I32))  # the last end may be less than 1
    return (w.emit("Cast", number, to=w.attribute("dtype", TensorProto.INT32)),)


BODIES: Mapping[tuple[str, str], Write] = {
    ("", "Bernoulli"): _bernoulli,
    ("", "Dropout"): _dropout,
    ("", "Multinomial"): _multinomial,
}
