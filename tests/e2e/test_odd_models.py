"""Models that are odd but valid: compiled, run at one and three threads, compared with onnxruntime."""

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
from tests.support import merged_cases
from tests.support.merged_cases import Part
from tests.support.onnx_models import assert_close, model, run_onnxruntime

RNG = np.random.default_rng(0)
Arrays = dict[str, np.ndarray]


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def node(op: str, inputs: str, outputs: str, **attrs: Any) -> onnx.NodeProto:
    """Names separated by blanks; `-` stands for an operand that is left out."""
    return helper.make_node(op, ["" if i == "-" else i for i in inputs.split()], outputs.split(), **attrs)


def names(stem: str, count: int) -> str:
    return " ".join(f"{stem}{number}" for number in range(count))


@dataclass(frozen=True)
class Case:
    nodes: Sequence[onnx.NodeProto]
    inputs: Arrays
    outputs: str
    constants: Arrays = field(default_factory=dict)
    opset: int = 17

    @property
    def proto(self) -> onnx.ModelProto:
        return model(self.nodes, self.inputs, self.outputs.split(), self.constants, self.opset)


X = normal(2, 3)
RELU, NEG = node("Relu", "x", "a"), node("Neg", "x", "b")
SHAPE_32 = {"s": np.array([3, 2])}


def join(inputs: str, output: str) -> onnx.NodeProto:
    return node("Concat", inputs, output, axis=0)


OUTPUTS = {
    "several outputs": Case([RELU, NEG, node("Add", "a b", "c")], {"x": X}, "a b c"),
    "outputs in another order": Case([RELU, node("Exp", "a", "b")], {"x": X}, "b a"),
    "the input is the output": Case([node("Identity", "x", "y")], {"x": X}, "y"),
    "the input is one of the outputs": Case([node("Identity", "x", "y"), NEG], {"x": X}, "y b"),
    "one value is two outputs": Case([RELU, node("Identity", "a", "y")], {"x": X}, "a y"),
    "a view of the input is the output": Case([node("Reshape", "x s", "y")], {"x": X}, "y", SHAPE_32),
    "views of an output are outputs": Case(
        [RELU, node("Reshape", "a s", "y"), node("Reshape", "a t", "z")],
        {"x": X}, "a y z", {**SHAPE_32, "t": np.array([6])},
    ),
    "a constant is an output": Case([node("Add", "c c", "y"), RELU], {"x": X}, "y a", {"c": normal(4)}),
    "nothing but constants": Case([node("Add", "c c", "y")], {}, "y", {"c": normal(4)}),
    "an input that nobody reads": Case([RELU], {"x": X, "unused": normal(5)}, "a"),
    "an index that leads to the one element there is": Case(
        [
            node("Add", "i j", "k"), node("Gather", "x k", "a", axis=0),
            node("Mul", "j i", "l"), node("Gather", "a l", "b", axis=1), node("Neg", "b", "y"),
        ],
        {"x": normal(3, 1), "i": np.ones(1, np.int64), "j": np.zeros(1, np.int64)}, "y",
    ),
    "64 outputs": Case([node("Neg", "x", f"y{i}") for i in range(64)], {"x": X}, names("y", 64)),
    "300 outputs": Case(
        [node("Split", "x n", names("y", 300))],
        {"x": normal(600)}, names("y", 300), {"n": np.array([2] * 300)},
    ),
    "40 inputs": Case([node("Sum", names("x", 40), "y")], dict.fromkeys(names("x", 40).split(), X), "y"),
    "values that double, 40 times": Case(
        [part for i in range(40)
         for part in (node("Sigmoid", f"t{i}", f"s{i}"), node("Mul", f"t{i} s{i}", f"t{i + 1}"))],
        {"t0": normal(5, 37)}, "t40",
    ),
    "300 steps": Case(
        [node("Relu" if i % 2 else "Neg", f"t{i}", f"t{i + 1}") for i in range(300)], {"t0": X}, "t300"
    ),
}  # fmt: skip

JOINS = {
    "parts that are outputs": Case([RELU, NEG, join("a b", "y")], {"x": X}, "a y"),
    "parts in two joins": Case([RELU, NEG, join("a b", "y"), join("b a", "z")], {"x": X}, "y z"),
    "nested": Case([RELU, NEG, join("a b", "c"), node("Abs", "x", "e"), join("c e", "y")], {"x": X}, "y"),
    "nested, the inner one read": Case(
        [RELU, NEG, join("a b", "c"), node("Abs", "x", "e"), join("c e", "y"), node("Exp", "c", "z")],
        {"x": X}, "y z",
    ),
    "of 200 parts": Case(
        [*(node("Neg", f"x{i}", f"a{i}") for i in range(0, 200, 2)),
         join(" ".join(f"x{i}" if i % 2 else f"a{i}" for i in range(200)), "c"), node("Exp", "c", "y")],
        {f"x{i}": normal(1 + i % 3, 2) for i in range(200)}, "y",
    ),
    "of an input": Case([join("x z", "y")], {"x": X, "z": normal(1, 3)}, "y"),
    "of one value with itself": Case([RELU, join("a a", "y")], {"x": X}, "y"),
    "with a constant": Case([join("x c", "y")], {"x": X}, "y", {"c": normal(4, 3)}),
    "of a view": Case(
        [RELU, node("Reshape", "a s", "v"), node("Neg", "v", "w"), join("v w", "y")], {"x": X}, "y", SHAPE_32
    ),
    "seen in another shape": Case(
        [RELU, NEG, join("a b", "c"), node("Reshape", "c s", "y")], {"x": X}, "y", {"s": np.array([12])}
    ),
}  # fmt: skip

SHAPES = {
    "scalars": Case([node("Add", "x c", "y")], {"x": np.float32(3)[...]}, "y", {"c": np.float32(4)[...]}),
    "a scalar result": Case([node("ReduceSum", "x", "y", keepdims=0)], {"x": X}, "y"),
    "one element": Case([node("Mul", "x x", "y")], {"x": normal(1)}, "y"),
    "an empty intermediate": Case(
        [node("Slice", "x n n", "e"), node("Relu", "e", "y"), RELU], {"x": X}, "y a", {"n": np.array([1])}
    ),
    "an empty part": Case(
        [node("Slice", "x n n", "e"), node("Relu", "e", "f"), join("f x", "y")],
        {"x": X}, "y", {"n": np.array([1])},
    ),
    "inputs without elements": Case(
        [join("x e", "y"), node("Neg", "e", "n"), node("ReduceSum", "e", "s", keepdims=0),
         node("ReduceMax", "e", "m", axes=[0]), node("MatMul", "t e", "p"), node("Gemm", "t e c", "g"),
         node("Identity", "e", "i")],
        {"x": X, "e": normal(0, 3), "t": normal(2, 0), "c": normal(2, 3)}, "y n s m p g i", opset=12,
    ),
    "the sum of nothing": Case(
        [node("Slice", "x n n", "e"), node("ReduceSum", "e", "y", keepdims=0)],
        {"x": X}, "y", {"n": np.array([1])},
    ),
    "a sort that reads a slice": Case(
        [node("Slice", "x s e a", "c"), node("TopK", "c k", "v y", axis=1)], {"x": normal(11, 11)}, "y",
        {name: np.array([n]) for name, n in {"s": 5, "e": 11, "a": 1, "k": 1}.items()},
    ),
    "an image that is a slice, an output, and pooled": Case(
        [node("Slice", "x s e a", "c"), node("MaxPool", "c", "p", kernel_shape=[2])],
        {"x": normal(1, 4, 3)}, "c p",
        {name: np.array([n]) for name, n in {"s": 2, "e": 4, "a": 1}.items()},
    ),
    "seven axes": Case(
        [node("Add", "x z", "y"), node("Transpose", "y", "t", perm=[6, 5, 4, 3, 2, 1, 0])],
        {"x": normal(2, 1, 3, 1, 2, 2, 3), "z": normal(2, 3, 1, 2, 1, 3)}, "t",
    ),
    "a long row": Case([node("Sigmoid", "x", "y")], {"x": normal(100003)}, "y"),
    "vector times matrix": Case([node("MatMul", "x z", "y")], {"x": normal(7), "z": normal(7, 3)}, "y"),
    "vector times vector": Case([node("MatMul", "x z", "y")], {"x": normal(7), "z": normal(7)}, "y"),
    "stacks of matrices": Case(
        [node("MatMul", "x z", "y")], {"x": normal(2, 3, 5, 7), "z": normal(3, 7, 4)}, "y"
    ),
    "computed weights": Case(
        [node("Conv", "x w", "y")], {"x": normal(1, 3, 8, 8), "w": normal(4, 3, 3, 3)}, "y"
    ),
    "a pixel": Case([node("Conv", "x w", "y")], {"x": normal(1, 3, 1, 1)}, "y", {"w": normal(4, 3, 1, 1)}),
    "softmax of ones": Case([node("Softmax", "x", "y", axis=-1)], {"x": normal(17, 1)}, "y"),
    "softmax of columns": Case([node("Softmax", "x", "y", axis=0)], {"x": normal(17, 5)}, "y"),
}  # fmt: skip

TYPES = {
    "truth out": Case([node("Less", "x z", "y")], {"x": normal(1, 252), "z": normal(1, 252)}, "y"),
    "truth out of a convolution": Case(
        [node("Conv", "x w", "c"), node("Greater", "c z", "y")],
        {"x": normal(1, 3, 20)}, "y", {"w": normal(32, 3, 3), "z": np.array(0.1, np.float32)},
    ),
    "truth mirrored": Case(
        [node("Pad", "c p", "y", mode="reflect")],
        {"c": RNG.random((5, 33)) > 0.5}, "y", {"p": np.array([0, 1, 0, 1])},
    ),
    "truth in": Case(
        [node("Where", "c x z", "y"), node("Not", "c", "n")],
        {"c": RNG.random((3, 37)) > 0.5, "x": normal(3, 37), "z": normal(3, 37)}, "y n",
    ),
    "i64": Case(
        [node("Div", "x z", "y"), node("Mod", "x z", "w"), node("Add", "x z", "v")],
        {"x": RNG.integers(-99, 99, (3, 50)), "z": RNG.integers(1, 9, (50,))}, "y w v",
    ),
    "i8": Case(
        [node("Div", "x z", "y")],
        {"x": RNG.integers(-128, 127, 300).astype(np.int8), "z": np.full(300, 7, np.int8)}, "y",
    ),
    "i32": Case([node("Mul", "x x", "y")], {"x": RNG.integers(-99, 99, (3, 5)).astype(np.int32)}, "y"),
    "u8": Case([node("Cast", "x", "y", to=onnx.TensorProto.UINT8)], {"x": np.abs(normal(3, 40)) * 20}, "y"),
    "f16": Case([node("Add", "x x", "y")], {"x": normal(3, 50).astype(np.float16)}, "y"),
    "f64": Case(
        [node("MatMul", "x z", "y")],
        {"x": RNG.standard_normal((3, 5)), "z": RNG.standard_normal((5, 9))}, "y",
    ),
    "no numbers": Case(
        [node("Relu", "x", "a"), node("Max", "x z", "m"), node("Exp", "x", "e")],
        {
            "x": np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1e38, -1e38] * 5, np.float32),
            "z": np.array([0, 1, 2, np.nan, 1, 0, 0] * 5, np.float32),
        },
        "a m e",
    ),
}  # fmt: skip


def of_batch(batch: int) -> dict[str, Case]:
    blocks = {"w": normal(32, 16, 3, 3), "v": normal(16, 32, 3, 3)}
    dense = {"w": normal(20, 3, 3, 3), "b": normal(20), "d": normal(320, 7)}
    return {
        f"convolution, pool and dense layer, batch {batch}": Case(
            [
                node("Conv", "x w b", "c", pads=[1, 1, 1, 1]),
                node("Relu", "c", "r"),
                node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
                node("Flatten", "m", "f"),
                node("Gemm", "f d", "y"),
            ],
            {"x": normal(batch, 3, 9, 9)}, "y", dense,
        ),
        f"depthwise, batch {batch}": Case(
            [node("Conv", "x w", "y", group=6, pads=[1, 1, 1, 1])], {"x": normal(batch, 6, 7, 7)}, "y",
            {"w": normal(6, 1, 3, 3)},
        ),
        f"one dimension, batch {batch}": Case(
            [node("Conv", "x w", "y", pads=[1, 1])], {"x": normal(batch, 3, 9)}, "y", {"w": normal(5, 3, 3)}
        ),
        f"three dimensions, batch {batch}": Case(
            [node("Conv", "x w", "y")], {"x": normal(batch, 2, 4, 5, 6)}, "y", {"w": normal(3, 2, 2, 2, 2)}
        ),
        f"blocked tensors as outputs, batch {batch}": Case(
            [node("Conv", "x w", "y", pads=[1, 1, 1, 1]), node("Conv", "y v", "z", pads=[1, 1, 1, 1])],
            {"x": normal(batch, 16, 9, 9)}, "y z", blocks,
        ),
    }  # fmt: skip


LARGE = {
    "cubic resizing, dealt out to threads": Case(
        [node("Resize", "x roi scales", "y", mode="cubic")],
        {"x": normal(1, 5, 32, 33)}, "y",
        {"roi": np.zeros(0, np.float32), "scales": np.array([1, 1, 2.3, 1.7], np.float32)},
    ),
}  # fmt: skip

ALONE = {**LARGE, **OUTPUTS, **{f"join {k}": v for k, v in JOINS.items()}}
SIDE_BY_SIDE = {"shapes": SHAPES, "types": TYPES, "batch 1": of_batch(1), "batch 3": of_batch(3)}
"""Each table is one library for every opset: kernels do not depend on what else is in a model."""


def compiled(proto: onnx.ModelProto, directory: Path) -> Path:
    onnx.save(proto, directory / "m.onnx")
    compiler.compile_model(directory / "m.onnx", compiler.CompileOptions(output=directory / "m.so"))
    return directory / "m.so"


def assert_computes_the_same(proto: onnx.ModelProto, feeds: Arrays, directory: Path) -> None:
    want = run_onnxruntime(proto, feeds)
    path = compiled(proto, directory)
    for threads in (1, 3):
        with compiler.load(path, threads=threads) as loaded:
            got = loaded.run(feeds)
        assert got.keys() == want.keys()
        for name, array in want.items():
            assert_close(got[name], array, 1e-4, f"output {name}, {threads} threads")


@pytest.mark.parametrize("name", ALONE)
def test_model(name: str, tmp_path: Path) -> None:
    case = ALONE[name]
    assert_computes_the_same(case.proto, case.inputs, tmp_path)


@pytest.mark.parametrize(
    "table", [pytest.param(one, marks=pytest.mark.slow) if one == "batch 1" else one for one in SIDE_BY_SIDE]
)
def test_models_side_by_side(table: str, tmp_path: Path) -> None:
    cases = SIDE_BY_SIDE[table]
    for opset in {case.opset for case in cases.values()}:
        parts = [
            Part(name, case.proto, case.inputs, run_onnxruntime(case.proto, case.inputs), 1e-4)
            for name, case in cases.items()
            if case.opset == opset
        ]
        together = merged_cases.join(table, parts)
        path = compiled(together.proto, tmp_path)
        for threads in (1, 3):
            with compiler.load(path, threads=threads) as loaded:
                assert not together.problems(loaded.run(together.feeds)), f"{threads} threads"


NAMES = [
    "a/b",
    "a b",
    "..",
    "a\nb",
    "ü€😀",
    '"quoted\\"',
    "%s%n",
    "-x",
    "a" * 300,
    "/etc/passwd",
    "int",
    "tk_k0",
]


def test_names_are_names_only(tmp_path: Path) -> None:
    """One model with every odd name; nothing of them is code, a path or a format."""
    nodes = [helper.make_node("Neg", [name], [name + "_out"], name=name) for name in NAMES]
    feeds = {name: normal(2) for name in NAMES}
    proto = model(nodes, feeds, [name + "_out" for name in NAMES])
    assert_computes_the_same(proto, feeds, tmp_path)
    report = compiler.verify_library(compiler.VerifyRequest(tmp_path / "m.so", tmp_path / "m.onnx"))
    assert report.passed
    assert {one.name for one in report.outputs} == {name + "_out" for name in NAMES}
