"""Slices that end at a limit, where a run may have less, at small sizes beside onnxruntime."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler.graph.interpret import evaluate
from compiler.graph.rewrites import rewrite_graph
from tests.support.sized_models import feeds, model, node
from tests.unit.stages.test_free_sizes import imported

_END = 2**31
# from, to, step along the axis whose extent is free
SLICES = {
    "the first three": (0, 3, 1),
    "the second and third": (1, 3, 1),
    "the third alone": (2, 3, 1),
    "every second of six": (0, 6, 2),
    "the last three": (-3, _END, 1),
    "the last but one": (-2, -1, 1),
    "all but the first": (1, _END, 1),
    "a hundred": (0, 100, 1),
}
SHAPES = {"behind a batch": ("B", "n"), "behind a size": (4, "n"), "first": ("n", 5)}


def sliced(name: str, shape: str) -> onnx.ModelProto:
    """A slice and, beside its elements, what is made of all of them."""
    begin, end, step = SLICES[name]
    dims = SHAPES[shape]
    nodes = [
        node("Slice", ["x", "begin", "end", "axis", "step"], ["some"]),
        node("Mul", ["some", "some"], ["squares"]),
        node("ReduceSum", ["squares", "axis"], ["sums"]),
        node("Add", ["x", "sums"], ["moved"]),
    ]
    known = {"begin": begin, "end": end, "step": step, "axis": dims.index("n")}
    arrays = {key: np.array([value]) for key, value in known.items()}
    return model(nodes, {"x": dims}, ("squares", "sums", "moved"), **arrays)


def wanted(proto: onnx.ModelProto, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


@pytest.mark.sample(2, each=("name", "shape"))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", SLICES)
def test_as_much_as_there_is(name: str, shape: str, tmp_path: Path) -> None:
    proto = sliced(name, shape)
    graph = imported(proto, tmp_path)
    for one, size, beyond in product((graph, rewrite_graph(graph)), (1, 2, 3, 4, 9), (np.nan, 1e6)):
        given = feeds(proto, {"n": size, "B": 1})
        got = evaluate(one, given, beyond=beyond)
        for output, array in wanted(proto, given).items():
            np.testing.assert_allclose(got[output], array, rtol=1e-5, err_msg=f"{output}, {size}")


@pytest.mark.parametrize("name", ["the first three", "the last three"])
def test_as_a_library(name: str, tmp_path: Path) -> None:
    proto = sliced(name, "behind a batch")
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", compiler.CompileOptions(output=tmp_path / "m.so"))
    with compiler.load(tmp_path / "m.so") as loaded:
        for size in (4, 1, 3, 2):
            given = feeds(proto, {"n": size, "B": 3})
            got = loaded.run(given)
            for output, array in wanted(proto, given).items():
                np.testing.assert_allclose(got[output], array, rtol=1e-5, err_msg=f"{output}, {size}")
