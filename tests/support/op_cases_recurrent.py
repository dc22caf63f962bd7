"""Cases of RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator

from tests.support.op_case import Case, Input, floats

STEPS, BATCH, SIZE, HIDDEN = 3, 2, 4, 5
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def operands(op: str, directions: int = 1, *, layout: int = 0, seed: int = 0) -> list[Input]:
    """All inputs of a layer."""
    rows, state = GATES[op] * HIDDEN, (directions, BATCH, HIDDEN)
    state = (BATCH, directions, HIDDEN) if layout else state
    found: list[Input] = [
        floats(*((BATCH, STEPS) if layout else (STEPS, BATCH)), SIZE, seed=seed),
        floats(directions, rows, SIZE, seed=seed + 1, low=-1, high=1),
        floats(directions, rows, HIDDEN, seed=seed + 2, low=-1, high=1),
        floats(directions, 2 * rows, seed=seed + 3, low=-1, high=1),
        np.asarray([2, 3], np.int32),
        floats(*state, seed=seed + 4),
    ]
    if op == "LSTM":
        found += [floats(*state, seed=seed + 5), floats(directions, 3 * HIDDEN, seed=seed + 6)]
    return found


def layer(
    op: str, attrs: dict[str, Any], left_out: Sequence[int] = (), directions: int = 1, **more: Any
) -> Case:
    """A layer whose weights are known; inputs at the end that are left out are not written."""
    given = operands(op, directions, layout=attrs.get("layout", 0))
    inputs = [None if at in left_out else array for at, array in enumerate(given)]
    while inputs[-1] is None:
        inputs.pop()
    known = more.pop("known", [at for at in (1, 2, 3, 7) if at < len(inputs)])
    outputs = 3 if op == "LSTM" else 2
    return Case(op, inputs, {"hidden_size": HIDDEN, **attrs}, 14, known, outputs, **more)


def onnx_reference(proto: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    names = [item.name for item in proto.graph.output]
    return dict(zip(names, ReferenceEvaluator(proto).run(None, feeds), strict=True))


def recurrent() -> Iterator[Case]:
    for op in GATES:
        yield layer(op, {}, [4])
        yield layer(op, {"direction": "bidirectional"}, directions=2)
        yield layer(op, {"direction": "reverse"}, [3, 5, 6, 7], label="lengths")
    yield layer("GRU", {"linear_before_reset": 1}, [4])
    yield layer("GRU", {"linear_before_reset": 1, "clip": 0.4}, [3, 4])
    yield layer("LSTM", {"clip": 0.4}, [4], label="clip")
    yield layer("LSTM", {"input_forget": 1}, [4, 5, 6, 7])
    yield layer("LSTM", {}, known=[], label="weights")
    yield layer("LSTM", {}, [4, 5, 6, 7], known=[1, 2, 3], label="short")
    yield layer("RNN", {"layout": 1}, [4, 5], oracle=onnx_reference)
