"""Nodes of opsets 1 to 6 mean what those opsets say; what cannot be expressed is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_proto
from compiler.graph.interpret import evaluate
from tests.support.onnx_models import assert_close, single
from tests.support.op_case import bools, floats, i64

X = floats(2, 3, 4, 5)
COLUMN, TAIL, SLOPES = floats(3, seed=1), floats(4, 5, seed=2, low=0.5), floats(3, seed=3)
SHAPE = i64(6, 20)

CASES: dict[str, tuple[str, int, Sequence[np.ndarray], dict[str, Any], Callable[..., Any]]] = {
    "no broadcast": ("Add", 6, (X, X), {}, lambda x, y: x + y),
    "the last axes": ("Mul", 6, (X, TAIL), {"broadcast": 1}, lambda x, y: x * y),
    "from an axis on": ("Sub", 6, (X, COLUMN), {"broadcast": 1, "axis": 1},
                        lambda x, y: x - y[:, None, None]),
    "a negative axis": ("Div", 6, (X, TAIL), {"broadcast": 1, "axis": -2}, lambda x, y: x / y),
    "a number": ("Add", 1, (X, floats(1)), {"broadcast": 1, "consumed_inputs": [0, 0]}, lambda x, y: x + y),
    "comparisons": ("Less", 1, (X, COLUMN), {"broadcast": 1, "axis": 1}, lambda x, y: x < y[:, None, None]),
    "logic": ("And", 1, (bools(2, 3), bools(2)), {"broadcast": 1, "axis": 0}, lambda x, y: x & y[:, None]),
    "slopes": ("PRelu", 6, (X, SLOPES), {}, lambda x, s: np.where(x < 0, x * s[:, None, None], x)),
    "one slope": ("PRelu", 6, (X, SLOPES[:1]), {}, lambda x, s: np.where(x < 0, x * s, x)),
    "dropout": ("Dropout", 6, (X,), {"is_test": 1, "ratio": 0.3}, lambda x: x),
    "memory": ("Exp", 1, (X,), {"consumed_inputs": [0]}, np.exp),
    "join": ("Concat", 1, (X, X), {}, lambda x, y: np.concatenate((x, y), 1)),
    "pads": ("Pad", 1, (COLUMN,), {"paddings": [1, 2], "value": 2.0},
             lambda x: np.pad(x, (1, 2), constant_values=2)),
    "a shape": ("Reshape", 1, (X,), {"shape": [6, 20]}, lambda x: x.reshape(6, 20)),
    "a shape as input": ("Reshape", 5, (X, SHAPE), {}, lambda x, _: x.reshape(6, 20)),
    "a named type": ("Cast", 1, (X,), {"to": "INT32"}, lambda x: x.astype(np.int32)),
    "unchanged": ("Relu", 6, (X,), {}, lambda x: np.maximum(x, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_old_nodes(name: str, tmp_path: Path) -> None:
    op, opset, arrays, attrs, expected = CASES[name]
    known = [1] if any(array is SHAPE for array in arrays) else []
    proto, feeds = single(op, arrays, attrs, opset, known)
    got = evaluate(import_proto(proto, tmp_path, {}, {}), feeds)
    assert_close(got["out0"], np.asarray(expected(*arrays)), 1e-6)


REFUSED: dict[str, tuple[str, int, Sequence[np.ndarray], dict[str, Any], str]] = {
    "shapes differ": ("Add", 6, (X, TAIL), {}, "does not broadcast"),
    "no room": ("Add", 6, (X, TAIL), {"broadcast": 1, "axis": 3}, "does not fit into"),
    "training": ("Dropout", 6, (X,), {}, "training mode"),
    "another node": ("Tile", 1, (X, i64(2), i64(1)), {}, "Tile of opset 1 is not supported"),
    "no such node yet": ("Expand", 6, (X, i64(2)), {}, "Expand does not exist in opset 6"),
    "no such type": ("Cast", 1, (X,), {"to": "FLOAT7"}, "no element type 'FLOAT7'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    op, opset, arrays, attrs, message = REFUSED[name]
    proto, _ = single(op, arrays, attrs, opset)
    with pytest.raises(BadInputError, match=message):
        import_proto(proto, tmp_path, {}, {})
