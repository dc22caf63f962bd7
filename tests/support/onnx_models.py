"""Small ONNX models, and onnxruntime as the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Arrays = Mapping[str, np.ndarray]
Attrs = Mapping[str, Any]


def value_info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Arrays,
    outputs: Sequence[str],
    constants: Arrays | None = None,
    opset: int = 17,
    **options: Any,
) -> onnx.ModelProto:
    """A model without declared output types: both sides infer them."""
    initializers = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [value_info(name, array) for name, array in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        initializers,
    )
    imports = [helper.make_opsetid("", opset), *options.pop("imports", ())]
    return helper.make_model(graph, opset_imports=imports, ir_version=options.pop("ir_version", 8), **options)


def single(
    op: str,
    inputs: Sequence[np.ndarray | None],
    attrs: Attrs,
    opset: int,
    known: Sequence[int] = (),
    outputs: int = 1,
    domain: str = "",
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node and its inputs; inputs whose number is in `known` are initializers."""
    names = ["" if array is None else f"in{number}" for number, array in enumerate(inputs)]
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    constants = {f"in{number}": given.pop(f"in{number}") for number in known if f"in{number}" in given}
    made = [f"out{number}" for number in range(outputs)]
    node = helper.make_node(op, names, made, name=f"the_{op}", domain=domain, **attrs)
    return model([node], given, made, constants, opset), given


def run_onnxruntime(
    proto: onnx.ModelProto, inputs: Arrays, *, optimise: bool = True
) -> dict[str, np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def run_reference(proto: onnx.ModelProto, inputs: Arrays) -> dict[str, np.ndarray]:
    """What onnx's own evaluator makes of a model."""
    evaluator = ReferenceEvaluator(proto)
    with np.errstate(all="ignore"):
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(inputs)), strict=True))


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float = 1e-5, what: str = "") -> None:
    """Floats within `tolerance` of the result's scale, everything else equal."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, expected {want.dtype}"
    if want.dtype.kind == "V":  # types of ml_dtypes, of which numpy does not know that NaN is not a number
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64), err_msg=what)
        return
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = want[np.isfinite(want)].astype(np.float64)
    scale = float(np.abs(finite).max()) if finite.size else 1.0
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(scale, 1e-6), err_msg=what)


__all__ = ["TensorProto", "assert_close", "model", "run_onnxruntime", "run_reference", "single", "value_info"]
