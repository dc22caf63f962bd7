"""Recurrent layers in numpy, sequence by sequence: ONNX's equations, nothing shared with the expansions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, widened_array

Function = Callable[[Array], Array]


def _function(name: str, alpha: float, beta: float, clip: float) -> Function:
    functions: Mapping[str, Function] = {
        "relu": lambda x: np.maximum(x, 0),
        "tanh": np.tanh,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "softplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
        "leakyrelu": lambda x: np.where(x < 0, alpha * x, x),
        "thresholdedrelu": lambda x: np.where(x > alpha, x, 0),
        "elu": lambda x: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "hardsigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "affine": lambda x: alpha * x + beta,
        "scaledtanh": lambda x: alpha * np.tanh(beta * x),
    }
    return lambda x: functions[name](np.clip(x, -clip, clip)).astype(x.dtype)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """One sequence in one direction: its inputs in the order of reading, and what it begins with."""

    inputs: Array
    weights: Sequence[Array]
    recurrent: Sequence[Array]
    bias: Sequence[Array]
    recurrent_bias: Sequence[Array]
    hidden: Array
    cell: Array
    peepholes: Sequence[Array]
    functions: Sequence[Function]
    attrs: Attrs

    def argument(self, gate: int, x: Array, hidden: Array) -> Array:
        """What a gate makes of an input and a state."""
        product = self.weights[gate] @ x + self.recurrent[gate] @ hidden
        return np.asarray(product + self.bias[gate] + self.recurrent_bias[gate])


Steps = Iterator[tuple[Array, Array]]
"""The hidden state and the cell after each step."""


def _rnn(s: _Sequence) -> Steps:
    hidden = s.hidden
    for x in s.inputs:
        hidden = s.functions[0](s.argument(0, x, hidden))
        yield hidden, s.cell


def _gru(s: _Sequence) -> Steps:
    hidden, (f, g) = s.hidden, s.functions
    for x in s.inputs:
        z, r = (f(s.argument(gate, x, hidden)) for gate in (0, 1))
        if s.attrs.flag("linear_before_reset"):
            inner = r * (s.recurrent[2] @ hidden + s.recurrent_bias[2])
        else:
            inner = s.recurrent[2] @ (r * hidden) + s.recurrent_bias[2]
        hidden = (1 - z) * g(s.weights[2] @ x + s.bias[2] + inner) + z * hidden
        yield hidden, s.cell


def _lstm(s: _Sequence) -> Steps:
    hidden, cell, (f, g, h) = s.hidden, s.cell, s.functions
    for x in s.inputs:
        i, o, forget, c = (s.argument(gate, x, hidden) for gate in range(4))
        i = f(i + s.peepholes[0] * cell)
        forget = 1 - i if s.attrs.flag("input_forget") else f(forget + s.peepholes[2] * cell)
        cell = forget * cell + i * g(c)
        hidden = f(o + s.peepholes[1] * cell) * h(cell)
        yield hidden, cell


def _reference(
    steps: Callable[[_Sequence], Steps], gates: int, functions: int
) -> Callable[[Sequence[Array], Attrs], Sequence[Array]]:
    def reference(arrays: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
        given = dict(zip((0, 1, 2, *attrs.integers("given")), map(widened_array, arrays), strict=True))
        swapped = bool(attrs.integer("layout"))
        x = given[0].swapaxes(0, 1) if swapped else given[0]
        (length, batch), (directions, _, hidden) = x.shape[:2], given[2].shape
        states = np.zeros((2, directions, batch, hidden), x.dtype)
        for place, number in enumerate((5, 6)):
            if number in given:
                states[place] = given[number].swapaxes(0, 1) if swapped else given[number]
        every = np.zeros((length, directions, batch, hidden), x.dtype)
        lengths = given.get(4, np.full(batch, length))
        for way in range(directions):
            for sample in range(batch):
                times = np.arange(int(lengths[sample]))
                if attrs.text("direction") == "reverse" or way:
                    times = times[::-1]
                one = _one(given, x[times, sample], states[:, way, sample], way, attrs, (gates, functions))
                for time, (after, cell) in zip(times, steps(one), strict=True):
                    every[time, way, sample] = after
                    states[:, way, sample] = after, cell
        made = [every, *states][: 3 if gates == 4 else 2]
        if swapped:
            made = [every.transpose(2, 0, 1, 3), *(state.swapaxes(0, 1) for state in made[1:])]
        return [np.ascontiguousarray(item).astype(arrays[0].dtype) for item in made]

    return reference


def _one(
    given: Mapping[int, Array], inputs: Array, state: Array, way: int, attrs: Attrs, counts: tuple[int, int]
) -> _Sequence:
    """One sequence with the weights and functions of its direction."""
    (gates, functions), hidden = counts, given[2].shape[2]
    bias = given[3][way] if 3 in given else np.zeros(2 * gates * hidden, inputs.dtype)
    peepholes = given[7][way] if 7 in given else np.zeros(3 * hidden, inputs.dtype)
    mine = slice(way * functions, (way + 1) * functions)
    named = zip(
        attrs.texts("activations")[mine], attrs.numbers("alphas")[mine], attrs.numbers("betas")[mine],
        strict=True,
    )  # fmt: skip
    both = bias.reshape(2, gates, hidden)
    return _Sequence(
        inputs,
        given[1][way].reshape(gates, hidden, -1),
        given[2][way].reshape(gates, hidden, hidden),
        both[0],
        both[1],
        state[0].copy(),
        state[1].copy(),
        list(peepholes.reshape(3, hidden)),
        # What an LSTM makes of its cell is the one function whose argument is not clipped.
        [_function(*item, attrs.number("clip") if at < 2 else np.inf) for at, item in enumerate(named)],
        attrs,
    )


REFERENCES: Mapping[str, Callable[[Sequence[Array], Attrs], Sequence[Array]]] = {
    "RNN": _reference(_rnn, 1, 1),
    "GRU": _reference(_gru, 3, 2),
    "LSTM": _reference(_lstm, 4, 3),
}
