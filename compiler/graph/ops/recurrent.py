"""Recurrent layers: RNN, GRU and LSTM, unrolled over time.

The input's products for all steps are one MatMul; a step is the state's product and what is elementwise. Its
part of the input's product is a run of memory, so that all steps share their kernels.

Canonical attributes: `given` numbers the optional inputs that are there; `activations`, `alphas` and `betas`
have one entry for each function of each direction; `clip` is infinite where nothing is clipped; `wanted` says
whether the outputs are used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.ir import Node, NodeInfo, TensorType, Value
from compiler.graph.op import (
    Emitter,
    Imported,
    InvalidError,
    Kind,
    OnnxNode,
    Op,
    Raw,
    Signature,
    Types,
    UnsupportedError,
    Values,
    same_dtype,
)
from compiler.graph.ops.elementwise import FLOATS, check_kind
from compiler.graph.ops.movement import emit_rows
from compiler.graph.ops.recurrent_cells import STEPS, Cell, Parameters, State
from compiler.graph.ops.recurrent_reference import REFERENCES

_DEFAULTS: Mapping[str, tuple[float, float]] = {
    "affine": (1.0, 0.0), "relu": (0.0, 0.0), "leakyrelu": (0.01, 0.0), "thresholdedrelu": (1.0, 0.0),
    "tanh": (0.0, 0.0), "scaledtanh": (1.0, 1.0), "sigmoid": (0.0, 0.0), "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0), "softsign": (0.0, 0.0), "softplus": (0.0, 0.0),
}  # fmt: skip
"""Activations with their alpha and beta where the model gives none."""
_HAS_ALPHA = frozenset({"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"})
_HAS_BETA = frozenset({"affine", "scaledtanh", "hardsigmoid"})
_DIRECTIONS: Mapping[str, tuple[bool, ...]] = {
    "forward": (False,), "reverse": (True,), "bidirectional": (False, True),
}  # fmt: skip
"""For each direction of a layer whether it goes backward."""

MOST_STEPS = 10_000
"""Of all directions of a layer: each is some nodes, of which the graph would have too many."""

_BIAS, _LENGTHS, _HIDDEN, _CELL, _PEEPHOLES = range(3, 8)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What tells the three layers apart. functions: the default activations of one direction."""

    name: str
    gates: int
    functions: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def has_cell(self) -> bool:
        """Whether there is a second state."""
        return self.name == "LSTM"


_RNN = _Kind("RNN", 1, ("tanh",))
_GRU = _Kind("GRU", 3, ("sigmoid", "tanh"), ("linear_before_reset",))
_LSTM = _Kind("LSTM", 4, ("sigmoid", "tanh", "tanh"), ("input_forget",))

# ---------------------------------------------------------------- as ONNX writes them


def _importer(kind: _Kind) -> Any:
    def adapt(node: OnnxNode, inputs: Values, attrs: Raw) -> Imported:
        given = Attrs(attrs)
        direction = given.text("direction")
        if direction not in _DIRECTIONS:
            raise InvalidError(f"{direction!r} is no direction")
        directions = len(_DIRECTIONS[direction])
        names = tuple(name.lower() for name in given.texts("activations", kind.functions * directions))
        if len(names) != len(kind.functions) * directions:
            raise InvalidError(f"it has {len(names)} activations for {directions} directions")
        unknown = [name for name in names if name not in _DEFAULTS]
        if unknown:
            raise UnsupportedError(f"activation {unknown[0]!r} is not supported")
        rank = inputs[2].type.rank
        if rank != 3 or given.get("hidden_size", inputs[2].type.shape[-1]) != inputs[2].type.shape[-1]:
            raise InvalidError(f"its recurrent weights are {inputs[2].type}")
        return inputs, {
            "given": tuple(at for at in range(3, len(node.inputs)) if node.has(at)),
            "wanted": tuple(int(used) for used in node.used_outputs),
            "direction": direction,
            "activations": names,
            "alphas": _numbers(names, given.numbers("activation_alpha", ()), _HAS_ALPHA, 0),
            "betas": _numbers(names, given.numbers("activation_beta", ()), _HAS_BETA, 1),
            "clip": given.number("clip", math.inf),
            "layout": given.integer("layout", 0),
            **{name: given.integer(name) for name in kind.flags},
        }

    return adapt


def _numbers(
    names: Sequence[str], given: Sequence[float], takers: frozenset[str], default: int
) -> tuple[float, ...]:
    """A number for each activation; those given belong to the activations that take one, in order."""
    left = list(given)
    return tuple(left.pop(0) if name in takers and left else _DEFAULTS[name][default] for name in names)


def _signatures(kind: _Kind) -> tuple[Signature, ...]:
    attrs: Raw = dict.fromkeys(kind.flags, 0)
    optional = frozenset(range(3, 8 if kind.has_cell else 6))

    def since(version: int, **more: int) -> Signature:
        plain = {"activations": None, "activation_alpha": None, "activation_beta": None, "clip": None}
        return Signature(
            version, {**plain, "direction": "forward", "hidden_size": None, **attrs, **more},
            adapt=_importer(kind), outputs=3 if kind.has_cell else 2, optional=optional,
        )  # fmt: skip

    return since(7), since(14, layout=0)


# ---------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class _Extents:
    """The extents of a layer."""

    steps: int
    batch: int
    size: int
    hidden: int
    directions: int


def _extents(types: Types, attrs: Attrs) -> _Extents:
    x, directions = types[0], len(_DIRECTIONS[attrs.text("direction")])
    if x.rank != 3:
        raise InvalidError(f"its input is {x}, expected three dimensions")
    steps, batch = (x.shape[1], x.shape[0]) if attrs.integer("layout") else x.shape[:2]
    return _Extents(steps, batch, x.shape[2], types[2].shape[-1], directions)


def _infer(kind: _Kind) -> Any:
    def infer(types: Types, attrs: Attrs) -> tuple[TensorType, ...]:
        check_kind(kind.name, types[0].dtype, FLOATS)
        n = _extents(types, attrs)
        if n.steps * n.directions > MOST_STEPS:
            raise UnsupportedError(
                f"{n.steps * n.directions:,} steps are not supported, at most {MOST_STEPS:,}"
            )
        rows, transposed = kind.gates * n.hidden, bool(attrs.integer("layout"))
        state = (n.batch, n.directions, n.hidden) if transposed else (n.directions, n.batch, n.hidden)
        expected = {
            1: (n.directions, rows, n.size), 2: (n.directions, rows, n.hidden),
            _BIAS: (n.directions, 2 * rows), _LENGTHS: (n.batch,), _HIDDEN: state, _CELL: state,
            _PEEPHOLES: (n.directions, 3 * n.hidden),
        }  # fmt: skip
        for at, item in zip((1, 2, *attrs.integers("given")), types[1:], strict=True):
            if item.shape != expected[at]:
                raise InvalidError(f"its input {at} is {item}, expected {list(expected[at])}")
            if at == _LENGTHS and item.dtype.name != "i32":
                raise InvalidError(f"its sequence_lens are {item.dtype}, expected i32")
            if at != _LENGTHS:
                same_dtype([types[0], item])
        every = (n.batch, n.steps, n.directions, n.hidden) if transposed else (n.steps, *state)
        made = [every, state, state][: 3 if kind.has_cell else 2]
        return tuple(types[0].with_shape(shape) for shape in made)

    return infer


# ---------------------------------------------------------------- unrolled


@dataclass(frozen=True, slots=True)
class _Direction:
    """What one direction makes: a result for each step, in the order of time, and the last state."""

    results: tuple[Value, ...]
    last: State


def _expand(kind: _Kind) -> Any:
    def expand(e: Emitter, item: Node) -> Values:
        n = _extents([value.type for value in item.inputs], item.attrs)
        operands = dict(zip((0, 1, 2, *item.attrs.integers("given")), item.inputs, strict=True))
        if item.attrs.integer("layout"):
            for at in {0, _HIDDEN, _CELL} & operands.keys():
                operands[at] = e.emit("Transpose", operands[at], perm=(1, 0, 2))
        made = [_unrolled(e, kind, item.attrs, operands, n, at) for at in range(n.directions)]
        return _results(e, item, made, n)

    return expand


def _unrolled(
    e: Emitter, kind: _Kind, attrs: Attrs, operands: Mapping[int, Value], n: _Extents, at: int
) -> _Direction:
    """All steps of one direction."""
    backward = _DIRECTIONS[attrs.text("direction")][at]
    cell = Cell(e, kind.gates, n.hidden, _parameters(e, operands, at), attrs, at * len(kind.functions))
    rows = e.emit("Reshape", operands[0], shape=(n.steps * n.batch, n.size))
    given = cell.input_products(rows)
    counts = _counts(e, operands.get(_LENGTHS), n)
    state = State(_initial(e, operands, _HIDDEN, at, n), _initial(e, operands, _CELL, at, n))
    waits = backward and _HIDDEN not in operands
    results: dict[int, Value] = {}
    for step in reversed(range(n.steps)) if backward else range(n.steps):
        part = emit_rows(e, given, step * n.batch, n.batch)
        here = None if counts is None else emit_rows(e, counts, step * n.batch, n.batch)
        following = STEPS[kind.name](cell, part, state)
        hidden, result = _kept(e, here, following.hidden, state.hidden)
        inner = following.cell if here is None else _where(e, here, following.cell, state.cell)
        # Backward the steps behind a sequence's end come first, and leave the state as zero as it was.
        state, results[step] = State(hidden, inner, here if waits else None), result
    return _Direction(tuple(results[step] for step in range(n.steps)), state)


def _parameters(e: Emitter, operands: Mapping[int, Value], at: int) -> Parameters:
    """The weights of one direction."""

    def row(number: int) -> Value | None:
        if number not in operands:
            return None
        value = emit_rows(e, operands[number], at, 1)
        return e.emit("Reshape", value, shape=value.type.shape[1:])

    weights, recurrent = (e.emit("Transpose", row(number), perm=(1, 0)) for number in (1, 2))  # type: ignore[arg-type]  # they are always there
    return Parameters(weights, recurrent, row(_BIAS), row(_PEEPHOLES))


def _initial(e: Emitter, operands: Mapping[int, Value], number: int, at: int, n: _Extents) -> Value:
    """A state before the first step: zeros where none is given."""
    if number not in operands:
        kind = np.dtype(np.float32)
        zeros = e.constant(np.zeros((n.batch, n.hidden), kind))
        return e.emit("Cast", zeros, to=operands[0].type.dtype)
    return e.emit("Reshape", emit_rows(e, operands[number], at, 1), shape=(n.batch, n.hidden))


def _counts(e: Emitter, lengths: Value | None, n: _Extents) -> Value | None:
    """For each step and sequence whether it is before the sequence's end, in rows of one; None if all are."""
    if lengths is None:
        return None
    times = e.constant(np.arange(n.steps, dtype=np.int32).reshape(n.steps, 1))
    found = e.emit("Greater", e.emit("Reshape", lengths, shape=(1, n.batch)), times)
    known = e.known(found)
    rows = e.emit("Reshape", found, shape=(n.steps * n.batch, 1))
    return None if known is not None and known.all() else rows


def _kept(e: Emitter, counts: Value | None, new: Value, old: Value) -> tuple[Value, Value]:
    """The hidden state after a step, and the step's result: behind a sequence's end the old one, and zero."""
    if counts is None:
        return new, new
    kept = _where(e, counts, new, old)
    zero = e.emit("Cast", e.constant(np.zeros((), np.float32)), to=new.type.dtype)
    return kept, e.emit("Where", counts, kept, zero)


def _where(e: Emitter, counts: Value, new: Value, old: Value) -> Value:
    return e.emit("Where", counts, new, old)


def _results(e: Emitter, item: Node, made: Sequence[_Direction], n: _Extents) -> Values:
    """The outputs: all results, and the last states."""
    transposed = bool(item.attrs.integer("layout"))
    steps = [value for together in zip(*(one.results for one in made), strict=True) for value in together]
    rows = _joined(e, steps) if steps else _nothing(e, made[0].last.hidden)
    every = e.emit("Reshape", rows, shape=(n.steps, n.directions, n.batch, n.hidden))
    hidden = [one.last.hidden for one in made]
    if item.attrs.integers("wanted")[0]:
        # As parts of all results, whose memory the last ones lie in.
        places = {value: at for at, value in enumerate(steps)}
        hidden = [emit_rows(e, rows, places[h] * n.batch, n.batch) if h in places else h for h in hidden]
    states = [hidden, [one.last.cell for one in made]] if len(item.outputs) > 2 else [hidden]
    last = [e.emit("Reshape", _joined(e, s), shape=(n.directions, n.batch, n.hidden)) for s in states]
    if not transposed:
        return (every, *last)
    return (
        e.emit("Transpose", every, perm=(2, 0, 1, 3)),
        *(e.emit("Transpose", value, perm=(1, 0, 2)) for value in last),
    )


def _nothing(e: Emitter, like: Value) -> Value:
    """No rows of states."""
    return e.emit("Rows", like, first=0, count=0)


def _joined(e: Emitter, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else e.emit("Concat", *values, axis=0)


def _flops(info: NodeInfo) -> int:
    rows, size, hidden = *info.in_types[1].shape[1:], info.in_types[2].shape[-1]
    return 2 * rows * (size + hidden) * (info.out_types[0].size // max(hidden, 1))


def _record(kind: _Kind) -> Op:
    return Op(
        kind.name, Kind.REDUCTION, _infer(kind), REFERENCES[kind.name], (3, 8 if kind.has_cell else 6),
        _signatures(kind), expand=_expand(kind), flops=_flops,
    )  # fmt: skip


OPS = tuple(_record(kind) for kind in (_RNN, _GRU, _LSTM))
