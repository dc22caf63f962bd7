"""What a user can do wrong, and what they are told: one clear message, the right exit code, no traceback."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import BadInputError
from tests.support.command import Result

Tk = Callable[..., Result]
WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3)


def model(
    *nodes: onnx.NodeProto, shape: tuple[int | str, ...] = (2, 4), opset: int = 17, weight: bool = True
) -> onnx.ModelProto:
    """One input x, a constant w, one output y."""
    graph = helper.make_graph(
        nodes or [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(WEIGHT, "w")] if weight else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(result: Result, code: int, *parts: str) -> None:
    """Exit code, a message in our form with these parts, nothing on standard output, no traceback."""
    assert result.code == code, result.err
    assert result.out == ""
    assert "Traceback" not in result.err
    assert result.err.startswith("error: ")
    assert [part for part in parts if part not in result.err] == [], result.err


@pytest.fixture
def good(tmp_path: Path) -> Path:
    onnx.save(model(), tmp_path / "good.onnx")
    return tmp_path / "good.onnx"


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08", b"\x00" * 1000, b"\xff" * 1000])
def test_no_onnx_file(tk: Tk, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.onnx").write_bytes(content)
    check(tk("compile", "bad.onnx"), 3, "where: bad.onnx")
    check(tk("inspect", "bad.onnx"), 3, "where: bad.onnx")
    assert not (tmp_path / "bad.so").exists()


@pytest.mark.parametrize(
    "words",
    [("--emit", "source", "-o", "/proc/x"), ("--dump", "/proc/x"), ("--emit", "object", "-o", "/proc/x")],
)
def test_a_folder_that_cannot_be_made(tk: Tk, good: Path, words: tuple[str, ...]) -> None:
    check(tk("compile", good, *words), 4, "cannot write a file", "where: /proc/x/")


def test_truncated_at_many_places(tk: Tk, good: Path, tmp_path: Path) -> None:
    data = good.read_bytes()
    cut = tmp_path / "cut.onnx"
    for length in range(1, len(data), 5):
        cut.write_bytes(data[:length])
        with pytest.raises(BadInputError):
            compiler.compile_model(cut, compiler.CompileOptions(output=tmp_path / "cut.so"))
    cut.write_bytes(data[: len(data) // 2])
    check(tk("compile", "cut.onnx"), 3, "where: cut.onnx")


def test_all_unsupported_operators_at_once(tk: Tk, tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Swizzle", ["b"], ["c"], name="second", domain="my.domain"),
        helper.make_node("Add", ["c", "a"], ["y"]),
    ]
    onnx.save(model(*nodes), tmp_path / "odd.onnx")
    check(tk("compile", "odd.onnx"), 3, "Frobnicate", "first", "Swizzle", "second")
    inspected = tk("inspect", "odd.onnx")
    assert inspected.code == 3
    assert "cannot be compiled: 2 nodes" in inspected.out
    document = tk("inspect", "odd.onnx", "--json").json
    assert [one["node"] for one in document["unsupported"]] == ["first", "second"]


def test_open_dimension_names_the_flag(tk: Tk, tmp_path: Path) -> None:
    onnx.save(model(shape=("batch", "width")), tmp_path / "open.onnx")
    check(tk("inspect", "open.onnx"), 2, "--dim", "x", "batch")
    assert tk("compile", "open.onnx", "--shape", "x=3,4").code == 0


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--shape", "z=2,4"), "z"),
        (("--shape", "x=2,5"), "x"),
        (("--shape", "x=2,4,1"), "x"),
        (("--bind", "z=1"), "z"),
    ],
)
def test_shapes_and_binds_that_do_not_fit(tk: Tk, good: Path, arguments: tuple[str, ...], part: str) -> None:
    result = tk("compile", good, *arguments)
    check(result, result.code, part)
    assert result.code in (2, 3)


def test_operands_that_do_not_fit(tk: Tk, tmp_path: Path) -> None:
    onnx.save(model(shape=(2, 5)), tmp_path / "misfit.onnx")
    check(tk("compile", "misfit.onnx"), 3, "product")


def test_external_data_outside_the_directory(tk: Tk, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(WEIGHT.tobytes())
    inside = tmp_path / "inside"
    inside.mkdir()
    proto = model(weight=False)
    tensor = TensorProto(name="w", dims=[4, 3], data_type=TensorProto.FLOAT)
    onnx.external_data_helper.set_external_data(_with_data(tensor), "../secret", 0, WEIGHT.nbytes)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    proto.graph.initializer.append(tensor)
    (inside / "model.onnx").write_bytes(proto.SerializeToString())
    check(tk("compile", inside / "model.onnx"), 3, "secret")


def _with_data(tensor: TensorProto) -> TensorProto:
    tensor.raw_data = WEIGHT.tobytes()
    return tensor


def test_unknown_target_and_arch(tk: Tk, good: Path) -> None:
    check(tk("compile", good, "--target", "cpuu"), 2, "cpuu", "did you mean 'cpu'?")
    check(tk("compile", good, "--target", "toaster"), 2, "toaster")
    check(tk("compile", good, "--arch", "x86-64-v9"), 2, "x86-64-v9")


def test_unknown_stage(tk: Tk, good: Path) -> None:
    check(tk("compile", good, "--stop-after", "lowr"), 2, "lowr", "did you mean 'lower'?")


def test_edited_file_that_is_missing(tk: Tk, good: Path) -> None:
    result = tk("compile", good, "--from", "nowhere/30-loops.txt")
    check(result, result.code, "nowhere")
    assert result.code in (2, 3)


def test_no_compiler(tk: Tk, good: Path, tmp_path: Path) -> None:
    check(tk("compile", good, env={"PATH": str(tmp_path)}), 4, "C++ compiler", "apt install g++")
    check(tk("compile", good, env={"TK_CXX": "no-such-cxx"}), 4, "no-such-cxx", "TK_CXX")


def test_a_program_that_is_no_compiler(tk: Tk, good: Path) -> None:
    check(tk("compile", good, env={"TK_CXX": "true"}), 4, "true")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_output_that_cannot_be_written(tk: Tk, good: Path, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    check(tk("compile", good, "-o", "closed/model.so"), 4, "closed")


def test_output_below_a_file(tk: Tk, good: Path) -> None:
    check(tk("compile", good, "-o", good / "model.so"), 4, "model.so")


def test_libraries_that_are_none(tk: Tk, good: Path, tmp_path: Path) -> None:
    check(tk("run", good), 3, "good.onnx")
    check(tk("bench", good), 3, "good.onnx")
    check(tk("verify", good, "--model", good), 3, "good.onnx")
    assert tk("compile", good, "-o", "model.so").code == 0
    data = (tmp_path / "model.so").read_bytes()
    for length in (4, 64, 1000, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.so").write_bytes(data[:length])
        result = tk("inspect", "cut.so")
        assert (result.code, "Traceback" in result.err) == (3, False), f"{length} bytes: {result.err}"


def test_a_failed_compile_keeps_the_old_library(tk: Tk, good: Path, tmp_path: Path) -> None:
    assert tk("compile", good, "-o", "model.so").code == 0
    before = (tmp_path / "model.so").read_bytes()
    (tmp_path / "bad.onnx").write_bytes(good.read_bytes()[:-20])
    assert tk("compile", "bad.onnx", "-o", "model.so").code == 3
    assert (tmp_path / "model.so").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.onnx", "good.onnx", "model.so"]
