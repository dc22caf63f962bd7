"""Models that cannot be compiled: what is said of their nodes, and what is known all the same."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend.refusals import Refusal, UnsupportedModelError, why_unknown
from compiler.inspect import inspect_model
from tests.support.command import Result

Tk = Callable[..., Result]


def scattering(times: int = 45) -> onnx.ModelProto:
    """A product, then so many nodes of an operator without a record, then a sum of the result."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s0"], name="product")]
    nodes += [
        helper.make_node("StringNormalizer", [f"s{n}", "at", "new"], [f"s{n + 1}"], name=f"scatter{n}")
        for n in range(times)
    ]
    nodes.append(helper.make_node("ReduceSum", [f"s{times}"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 4))],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ("batch", None)),
            helper.make_tensor_value_info("s0", TensorProto.FLOAT, None),
        ],
        [
            numpy_helper.from_array(np.ones((4, 3), np.float32), "w"),
            numpy_helper.from_array(np.zeros((1, 1), np.int64), "at"),
            numpy_helper.from_array(np.ones((1, 3), np.float32), "new"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def scattered(tmp_path: Path) -> Path:
    onnx.save(scattering(), tmp_path / "scattered.onnx")
    return tmp_path / "scattered.onnx"


def test_what_is_known_is_reported(scattered: Path) -> None:
    report = inspect_model(scattered)
    assert [(one.name, one.dtype, one.shape) for one in report.inputs] == [("x", "f32", (2, 4))]
    assert [(one.name, one.dtype, one.shape) for one in report.outputs] == [
        ("y", "f32", ("batch", "?")),
        ("s0", "f32", (2, 3)),
    ]
    assert (report.parameters, report.parameter_bytes) == (12 + 1 + 3, 12 * 4 + 8 + 3 * 4)
    assert [(one.op, one.count, one.flops) for one in report.ops] == [
        ("MatMul", 1, 2 * 2 * 4 * 3),
        ("ReduceSum", 1, 0),
        ("StringNormalizer", 45, 0),
    ]
    assert (report.flops, report.unknown_nodes, len(report.unsupported)) == (48, 46, 45)


def test_inspect_shows_it_and_groups_equal_reasons(tk: Tk, scattered: Path) -> None:
    result = tk("inspect", scattered)
    assert result.code == 3
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert "input x f32 2x4" in lines
    assert "output y f32 batchx?" in lines
    assert "parameters 16 (68 B)" in lines
    assert "computation 4.8e-08 GFLOP in the 1 of 47 nodes whose shapes are known" in lines
    assert "cannot be compiled: 45 nodes" in lines
    assert "StringNormalizer 45 scatter0 not supported yet" in lines
    assert result.out.count("StringNormalizer") == 2
    assert len(tk("inspect", scattered, "--json").json["unsupported"]) == 45


def test_where_nothing_is_known_no_number_is_shown(tk: Tk, tmp_path: Path) -> None:
    proto = scattering(1)
    del proto.graph.node[0], proto.graph.output[1]
    proto.graph.node[0].input[0] = "x"
    onnx.save(proto, tmp_path / "m.onnx")
    out = tk("inspect", "m.onnx").out
    assert "computation   not known: no node's shapes are known" in out
    assert "GFLOP" not in out


def test_compile_groups_equal_reasons(tk: Tk, scattered: Path) -> None:
    result = tk("compile", scattered)
    assert result.code == 3
    assert "45 nodes of the model cannot be compiled" in result.err
    assert "StringNormalizer  scatter0 and 44 more: not supported yet" in result.err
    assert result.err.count("StringNormalizer") == 1


def test_many_reasons_are_cut() -> None:
    error = UnsupportedModelError("m.onnx", [Refusal(f"n{n}", "Op", f"reason {n}") for n in range(100)])
    assert error.why.endswith("n39: reason 39\n  and 60 more nodes for 60 more reasons")
    again = copy.copy(error)
    assert (again.refusals, again.known, str(again)) == (error.refusals, error.known, str(error))


@pytest.mark.parametrize(
    ("domain", "name", "reason"),
    [
        ("", "StringNormalizer", "not supported yet"),
        ("", "LSTM", "not supported yet"),
        ("", "Scatter", "not supported yet"),  # no longer in the newest opset
        ("ai.onnx.ml", "TreeEnsemble", "not supported yet"),
        ("", "MatMull", "ONNX has no operator of this name (did you mean 'MatMul'?)"),
        ("", "LSTMM", "ONNX has no operator of this name (did you mean 'LSTM'?)"),
        ("", "Qqqqqq", "ONNX has no operator of this name"),
        ("their.domain", "Conv", "operators of their.domain are not supported yet"),
        ("ai.onnx.ml", "Qqqqqq", "ai.onnx.ml has no operator of this name"),
    ],
)
def test_a_missing_operator_is_no_typo(domain: str, name: str, reason: str) -> None:
    assert why_unknown(domain, name) == reason
