"""One step of a recurrent layer in terms of other operators; equations as ONNX's operators have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.ir import Value
from compiler.graph.op import Emitter
from compiler.graph.ops.elementwise import emit_scalar
from compiler.graph.ops.indexing import emit_slice


@dataclass(frozen=True, slots=True)
class Parameters:
    """Weights of one direction, transposed: (inputs, gates x hidden) and (hidden, gates x hidden).

    bias: of both products, one behind the other. peepholes: of the gates i, o and f.
    """

    weights: Value
    recurrent: Value
    bias: Value | None
    peepholes: Value | None


@dataclass(frozen=True, slots=True)
class State:
    """What a step hands on to the next one: (batch, hidden) each; only an LSTM changes the cell.

    begun: rows of truth values, false where the hidden state is zero as no step has changed it yet; None
    where nothing is known.
    """

    hidden: Value
    cell: Value
    begun: Value | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of a layer; `first` is the place of its first activation among those of the node."""

    e: Emitter
    gates: int
    hidden: int
    parameters: Parameters
    attrs: Attrs
    first: int

    @property
    def is_reset_late(self) -> bool:
        """Whether a GRU multiplies with its reset gate behind the product."""
        return self.attrs.flag("linear_before_reset", default=False)

    def input_products(self, rows: Value) -> Value:
        """The products of all steps' inputs with the weights, and all of the bias that can be added then."""
        found, bias = self.e.emit("MatMul", rows, self.parameters.weights), self.parameters.bias
        if bias is None:
            return found
        width = self.gates * self.hidden
        first, second = (emit_slice(self.e, bias, 0, at * width, width) for at in (0, 1))
        if self.is_reset_late:
            zeros = self.e.constant(np.zeros(self.hidden, np.float32))
            kept = emit_slice(self.e, second, 0, 0, 2 * self.hidden)
            zeros = self.e.emit("Cast", zeros, to=bias.type.dtype)
            second = self.e.emit("Concat", kept, zeros, axis=0)
        return self.e.emit("Add", found, self.e.emit("Add", first, second))

    def recurrent_product(self, rows: Value, begun: Value | None, first: int, count: int) -> Value:
        """The product of what is made of the hidden state with the weights for some gates."""
        width = self.hidden
        weights = emit_slice(self.e, self.parameters.recurrent, 1, first * width, count * width)
        product = self.e.emit("MatMul", rows, weights)
        if begun is None:
            return product
        return self.e.emit("Where", begun, product, emit_scalar(self.e, 0.0, product))

    def gate(self, value: Value, number: int) -> Value:
        """The columns of one gate."""
        return emit_slice(self.e, value, 1, number * self.hidden, self.hidden)

    def peephole(self, value: Value, cell: Value, number: int) -> Value:
        """A gate's argument with what it sees of the cell, if anything."""
        weights = self.parameters.peepholes
        if weights is None:
            return value
        part = emit_slice(self.e, weights, 0, number * self.hidden, self.hidden)
        return self.e.emit("Add", value, self.e.emit("Mul", cell, part))

    def gated(self, value: Value, number: int) -> Value:
        """Activation `number` of the direction, of a gate's argument, which is clipped."""
        clip = self.attrs.number("clip")
        if clip != math.inf:
            value = self.e.emit("Clip", value, low=-clip, high=clip, low_input=False, high_input=False)
        return self.activate(value, number)

    def activate(self, value: Value, number: int) -> Value:
        """Activation `number` of the direction."""
        at = self.first + number
        name = self.attrs.texts("activations")[at]
        alpha, beta = (self.attrs.numbers(kind)[at] for kind in ("alphas", "betas"))
        return _ACTIVATIONS[name](self.e, value, alpha, beta)

    def one_minus(self, value: Value) -> Value:
        """What is left to one."""
        return self.e.emit("Sub", emit_scalar(self.e, 1.0, value), value)


Activation = Callable[[Emitter, Value, float, float], Value]


def _scaled(e: Emitter, value: Value, factor: float) -> Value:
    return value if factor == 1 else e.emit("Mul", value, emit_scalar(e, factor, value))


def _affine(e: Emitter, x: Value, alpha: float, beta: float) -> Value:
    found = _scaled(e, x, alpha)
    return e.emit("Add", found, emit_scalar(e, beta, x)) if beta else found


def _plain(op: str) -> Activation:
    return lambda e, x, _alpha, _beta: e.emit(op, x)


def _with_alpha(op: str) -> Activation:
    return lambda e, x, alpha, _beta: e.emit(op, x, alpha=alpha)


_ACTIVATIONS: Mapping[str, Activation] = {
    "relu": _plain("Relu"),
    "tanh": _plain("Tanh"),
    "sigmoid": _plain("Sigmoid"),
    "softsign": _plain("Softsign"),
    "softplus": _plain("Softplus"),
    "leakyrelu": _with_alpha("LeakyRelu"),
    "thresholdedrelu": _with_alpha("ThresholdedRelu"),
    "elu": _with_alpha("Elu"),
    "hardsigmoid": lambda e, x, alpha, beta: e.emit("HardSigmoid", x, alpha=alpha, beta=beta),
    "affine": _affine,
    "scaledtanh": lambda e, x, alpha, beta: _scaled(e, e.emit("Tanh", _scaled(e, x, beta)), alpha),
}


def _rnn(cell: Cell, given: Value, state: State) -> State:
    """H' = f(X W + H R + b)."""
    product = cell.recurrent_product(state.hidden, state.begun, 0, 1)
    return State(cell.gated(cell.e.emit("Add", product, given), 0), state.cell)


def _gru(cell: Cell, given: Value, state: State) -> State:
    """H' = (1 - z) h + z H, where the gates are z, r, h."""
    e, hidden = cell.e, state.hidden
    if cell.is_reset_late:
        product = cell.recurrent_product(hidden, state.begun, 0, 3)
        update, reset = (
            cell.gated(e.emit("Add", cell.gate(product, at), cell.gate(given, at)), 0) for at in (0, 1)
        )
        inner = cell.gate(product, 2)
        if cell.parameters.bias is not None:
            inner = e.emit("Add", inner, emit_slice(e, cell.parameters.bias, 0, 5 * cell.hidden, cell.hidden))
        inner = e.emit("Mul", reset, inner)
    else:
        product = cell.recurrent_product(hidden, state.begun, 0, 2)
        gates = e.emit("Add", product, emit_slice(e, given, 1, 0, 2 * cell.hidden))
        update, reset = (cell.gated(cell.gate(gates, at), 0) for at in (0, 1))
        inner = cell.recurrent_product(e.emit("Mul", reset, hidden), state.begun, 2, 1)
    found = cell.gated(e.emit("Add", inner, cell.gate(given, 2)), 1)
    new = e.emit("Mul", cell.one_minus(update), found)
    return State(e.emit("Add", new, e.emit("Mul", update, hidden)), state.cell)


def _lstm(cell: Cell, given: Value, state: State) -> State:
    """C' = f C + i c, H' = o h(C'), where the gates are i, o, f, c; only o sees the new cell.

    The cell is not clipped: ONNX speaks of the inputs of all activations, but onnxruntime clips gates alone.
    """
    e, old = cell.e, state.cell
    gates = e.emit("Add", cell.recurrent_product(state.hidden, state.begun, 0, 4), given)
    first = cell.gated(cell.peephole(cell.gate(gates, 0), old, 0), 0)
    if cell.attrs.flag("input_forget"):
        forget = cell.one_minus(first)
    else:
        forget = cell.gated(cell.peephole(cell.gate(gates, 2), old, 2), 0)
    found = cell.gated(cell.gate(gates, 3), 1)
    new = e.emit("Add", e.emit("Mul", forget, old), e.emit("Mul", first, found))
    output = cell.gated(cell.peephole(cell.gate(gates, 1), new, 1), 0)
    return State(e.emit("Mul", output, cell.activate(new, 2)), new)


STEPS: Mapping[str, Callable[[Cell, Value, State], State]] = {"RNN": _rnn, "GRU": _gru, "LSTM": _lstm}
