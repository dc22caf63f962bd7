"""Operands that decide shapes and that only a run knows: what the model declares is compiled, and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.diagnostics import BadInputError
from tests.support.merged_cases import Part, join
from tests.support.onnx_models import model, run_onnxruntime, value_info

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5)).astype(np.float32)
EVEN = RNG.standard_normal((2, 3, 2)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 5, 6)).astype(np.float32)
MOST = np.iinfo(np.int64).max


def i64(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def f32(*values: float) -> np.ndarray:
    return np.asarray(values, np.float32)


@dataclass(frozen=True)
class AtRun:
    """A node, what it is given, and operands that ask for something else than is declared."""

    op: str
    inputs: Sequence[np.ndarray | None]
    other: dict[int, np.ndarray]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    label: str = ""

    @property
    def name(self) -> str:
        return f"{self.op}{self.label}"

    def part(self) -> Part:
        """A model that declares the results' shapes."""
        given = {f"in{number}": array for number, array in enumerate(self.inputs) if array is not None}
        names = [f"in{number}" if array is not None else "" for number, array in enumerate(self.inputs)]
        made = [f"out{number}" for number in range(self.outputs)]
        node = helper.make_node(self.op, names, made, name=self.name, **self.attrs)
        proto = model([node], given, made, opset=self.opset)
        want = run_onnxruntime(proto, given)
        del proto.graph.output[:]
        proto.graph.output.extend(value_info(name, array) for name, array in want.items())
        return Part(self.name, proto, given, want, 1e-5)


CASES = (
    AtRun("Reshape", [X, i64(2, -1, 5)], {1: i64(3, -1, 5)}),
    AtRun("Reshape", [X, i64(0, 2, 10)], {1: i64(0, 2, 9)}, label=" with 0"),
    AtRun("Expand", [X[:, :1], i64(4, 1)], {1: i64(5, 1)}),
    AtRun("Tile", [X, i64(1, 2, 3)], {1: i64(1, 2, 4)}),
    AtRun("Squeeze", [X[:, :1], i64(-2)], {1: i64(0)}),
    AtRun("Unsqueeze", [X, i64(0, -1)], {1: i64(0, 1)}),
    AtRun("ConstantOfShape", [i64(2, 3)], {0: i64(3, 2)}),
    AtRun("Split", [X, i64(1, 3)], {1: i64(2, 2)}, {"axis": 1}, outputs=2),
    AtRun("Slice", [X, i64(-3, 1), i64(MOST, 3), i64(1, 0), i64(2, 1)], {1: i64(-1, 1)}),
    AtRun("Slice", [X, i64(-1, 3), i64(-MOST, 0), i64(2, 1), i64(-2, -1)], {4: i64(-1, -1)}, label=" back"),
    AtRun("Slice", [X, i64(1, 0), i64(3, 9)], {2: i64(2, 9)}, label=" of the first axes"),
    AtRun("Pad", [X, i64(1, 0, 2, 0, 1, -1), np.array(7, np.float32)], {1: i64(0, 0, 2, 0, 1, -1)}),
    AtRun("Pad", [X, i64(2, 1), None, i64(-1)], {1: i64(2, 2)}, {"mode": "reflect"}, label=" reflecting"),
    AtRun("Pad", [X, i64(2, 1), None, i64(1)], {1: i64(0, 0)}, {"mode": "edge"}, label=" with edges"),
    AtRun("Pad", [X, i64(2, 1), None, i64(1)], {1: i64(0, 0)}, {"mode": "wrap"}, opset=19, label=" wrapping"),
    AtRun("Range", [i64(9).reshape(()), i64(0).reshape(()), i64(-2).reshape(())], {0: i64(7).reshape(())}),
    AtRun(
        "Range",
        [np.array(0, np.float32), np.array(2, np.float32), np.array(0.3, np.float32)],
        {1: np.array(1, np.float32)},
        label=" of floats",
    ),
    AtRun("Slice", [X, i64(0), i64(2), i64(1), i64(1)], {4: i64(0)}, label=" by no step"),
    AtRun("Resize", [IMAGE, None, f32(1, 1, 0.7, 2.5)], {2: f32(1, 1, 0.7, 2.3)}, {"mode": "linear"}),
    AtRun(
        "Resize",
        [IMAGE, None, None, i64(1, 2, 7, 3)],
        {3: i64(1, 2, 7, 4)},
        {"mode": "cubic"},
        label=" to extents",
    ),
    AtRun("Resize", [IMAGE, None, f32(1, 1, 2, 0.5)], {2: f32(1, 1, 3, 0.5)}, label=" to the nearest"),
    AtRun("ReduceSum", [EVEN, i64(2)], {1: i64(1)}, {"keepdims": 0}),
    AtRun("ReduceMean", [EVEN, i64(-3, 1)], {1: i64(1, 2)}),
    AtRun("ReduceLogSumExp", [EVEN, i64(1)], {1: i64(0)}, {"keepdims": 1}),
)
FREE = AtRun("Trilu", [X, i64(1).reshape(())], {})
"""Right for any value."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """All cases in one library."""
    together = join("at_run", [case.part() for case in (*CASES, FREE) if case.opset == 18])
    return _compiled(together.proto, tmp_path_factory.mktemp("at_run"), "cpu"), together


def _compiled(proto: onnx.ModelProto, directory: Path, target: str) -> Path:
    onnx.save(proto, directory / "m.onnx")
    compiler.compile_model(
        directory / "m.onnx", compiler.CompileOptions(output=directory / "m.so", target=target)
    )
    return directory / "m.so"


def test_computes_what_the_operands_ask_for(library: tuple[Path, Any]) -> None:
    path, together = library
    with compiler.load(path) as loaded:
        assert [item.name for item in loaded.outputs] == [item.name for item in together.proto.graph.output]
        assert not together.problems(loaded.run(together.feeds))


@pytest.mark.parametrize("case", [case for case in CASES if case.opset == 18], ids=lambda case: case.name)
def test_another_shape_is_refused(case: AtRun, library: tuple[Path, Any]) -> None:
    path, together = library
    number = [part.name for part in together.parts].index(case.name)
    other = {f"c{number}_in{at}": array for at, array in case.other.items()}
    with compiler.load(path) as loaded:
        with pytest.raises(BadInputError, match=f"c{number}_{case.name}.*do not ask for the declared shape"):
            loaded.run({**together.feeds, **other})
        assert not together.problems(loaded.run(together.feeds))  # the context still works


@pytest.mark.parametrize("case", [case for case in CASES if case.opset != 18], ids=lambda case: case.name)
def test_of_a_later_opset(case: AtRun, tmp_path: Path) -> None:
    part = case.part()
    path = _compiled(part.proto, tmp_path, "cpu")
    with compiler.load(path) as loaded:
        np.testing.assert_array_equal(loaded.run(part.feeds)["out0"], part.want["out0"])
        with pytest.raises(BadInputError, match="declared shape"):
            loaded.run({**part.feeds, "in1": case.other[1]})


def test_on_a_device(tmp_path: Path, opencl_driver: str) -> None:
    case = next(case for case in CASES if case.op == "Slice")
    part = case.part()
    path = _compiled(part.proto, tmp_path, "opencl-cpu")
    with compiler.load(path, device=opencl_driver) as loaded:
        np.testing.assert_array_equal(loaded.run(part.feeds)["out0"], part.want["out0"])
        with pytest.raises(BadInputError, match="declared shape"):
            loaded.run({**part.feeds, "in1": case.other[1]})


def test_without_a_declaration_the_message_names_bind(tmp_path: Path) -> None:
    case = CASES[0]
    proto = case.part().proto
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    with pytest.raises(BadInputError, match=r"does not declare it.*--bind"):
        _compiled(proto, tmp_path, "cpu")
