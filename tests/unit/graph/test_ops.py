"""Every op record against onnxruntime (else onnx itself): as imported, in canonical form, and as loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from compiler.frontend.onnx import import_proto
from compiler.graph.dtypes import to_numpy
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Node, TensorType, verify
from compiler.graph.ops import OPS
from compiler.graph.rewrites import rewrite_graph
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.verify import verify_func
from tests.support.onnx_models import assert_close, single
from tests.support.op_cases import CASES, Case

LOOP_ELEMENTS = 40_000
"""The loop interpreter is slow: larger nodes are left to tests of compiled code."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_record_means_what_its_oracle_computes(case: Case, tmp_path: Path) -> None:
    proto, feeds = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    graph = import_proto(proto, tmp_path, {}, {})
    verify(graph)
    want = case.oracle(proto, feeds)
    got = evaluate(graph, feeds)
    for name, array in want.items():
        assert_close(got[name], array, case.tolerance, "as imported")
    canonical = rewrite_graph(graph)
    verify(canonical)
    got = evaluate(canonical, feeds)
    for name, array in want.items():
        assert_close(got[name], array, case.tolerance, "in canonical form")
    for item in graph.nodes:
        check_forms(item, case)
    for item in canonical.nodes:
        check_forms(item, case, valid=True)


def check_forms(item: Node, case: Case, *, valid: bool = False) -> None:
    """Each form means what the record says; `valid`: and is a well-formed program."""
    if any(value.type.dtype.is_stored for value in (*item.inputs, *item.outputs)):
        return  # in canonical form there are bytes instead
    rng = np.random.default_rng(1)
    arrays = [random_like(value.type, rng, item) for value in item.inputs]
    if item.op.flops(item.info) > LOOP_ELEMENTS:
        return
    want = [np.asarray(array) for array in item.op.reference(arrays, item.attrs)]
    for name, form in item.op.forms_for(item.info).items():
        builder = Builder("kernel")
        buffers = [builder.input("x", v.type.shape, v.type.dtype) for v in item.inputs]
        output = form.build(builder, buffers, item.info)
        func = builder.finish([output])
        if valid:
            verify_func(func)
        feeds = {buffer.name: array for buffer, array in zip(buffers, arrays, strict=True)}
        got = interpret(func, feeds)
        (array,) = want
        assert_close(got[output.name], array, max(case.tolerance, 1e-5), f"form {name} of {item.op.name}")


def random_like(kind: TensorType, rng: np.random.Generator, item: Node) -> np.ndarray:
    target = to_numpy(kind.dtype)
    if kind.dtype.is_bool:
        return rng.integers(0, 2, kind.shape).astype(bool)
    if kind.dtype.is_int:
        positive = item.op.name in ("Div", "Mod", "Gather", "Pow", "BitShift")
        return rng.integers(1 if positive else -3, 3, kind.shape).astype(target)
    return rng.uniform(0.2, 2, kind.shape).astype(target)


def test_every_record_has_a_case() -> None:
    covered = {case.op for case in CASES}
    own = [op.name for op in OPS.values() if op.signatures and not op.domain]  # others: tests/e2e
    missing = [name for name in own if name not in covered]
    assert not missing


def test_every_record_can_become_loops() -> None:
    """Each has a form, or expands into records that have one, or is a constant once shapes are known."""
    lost = [op.name for op in OPS.values() if not op.forms and op.expand is None and op.inputs != (0, 0)]
    assert not lost


def test_no_record_is_opaque() -> None:
    assert not [op.name for op in OPS.values() if op.kind == "opaque"]
