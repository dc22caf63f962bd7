"""Operators that find as many results as their operands hold, where the model declares how many."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.frontend.onnx import import_proto
from compiler.graph.interpret import evaluate
from compiler.graph.ir import verify
from compiler.graph.rewrites import rewrite_graph
from tests.support.onnx_models import assert_close, single
from tests.support.op_case import Case
from tests.support.op_cases_indexing import declared
from tests.unit.graph.test_ops import check_forms

Arrays = dict[str, np.ndarray]


def as_declared(case: Case) -> tuple[onnx.ModelProto, Arrays, Arrays]:
    """The model of a case with the types of its results, its inputs, and the results."""
    proto, feeds = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    want = case.oracle(proto, feeds)
    for item in proto.graph.output:
        kind = helper.np_dtype_to_tensor_dtype(want[item.name].dtype)
        item.CopyFrom(helper.make_tensor_value_info(item.name, kind, want[item.name].shape))
    return proto, feeds, want


@pytest.mark.parametrize("case", list(declared()), ids=lambda case: case.name)
def test_results_are_those_of_onnxruntime(case: Case, tmp_path: Path) -> None:
    proto, feeds, want = as_declared(case)
    graph = import_proto(proto, tmp_path, {}, {})
    verify(graph)
    for one, what in ((graph, "as imported"), (rewrite_graph(graph), "in canonical form")):
        got = evaluate(one, feeds)
        for name, array in want.items():
            assert_close(got[name], array, case.tolerance, what)
        assert one.checks == 1
        assert int(got[one.output_names[-1]]) == 1
        for item in one.nodes:
            check_forms(item, case, valid=one is not graph)


def test_another_number_of_results_fails_the_check(tmp_path: Path) -> None:
    proto, feeds, want = as_declared(Case("NonZero", [np.array([1, 0, 2], np.int64)]))
    graph = import_proto(proto, tmp_path, {}, {})
    for other in ([1, 1, 1], [0, 0, 0]):
        made = evaluate(graph, {**feeds, "in0": np.array(other)})
        assert made["out0"].shape == want["out0"].shape
        assert int(made[graph.output_names[-1]]) == 0
