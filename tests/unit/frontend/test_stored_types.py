"""Types that are stored only: read from models as ONNX packs them, refused where ONNX does not take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_model, import_proto
from compiler.graph.dtypes import from_numpy as dtype_of
from compiler.graph.dtypes import packed_array, unpacked_array
from compiler.graph.interpret import evaluate
from tests.support.onnx_models import single

KINDS = [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.float4_e2m1fn]


def numbers(kind: Any) -> np.ndarray:
    return np.arange(-7, 8).astype(np.float32).reshape(3, 5).astype(kind)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
def test_packed_as_onnx_does(kind: Any) -> None:
    array = numbers(kind)
    packed = packed_array(array)
    assert packed.tobytes() == numpy_helper.from_array(array).raw_data
    back = unpacked_array(packed, dtype_of(array.dtype), array.shape)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back.astype(np.float32), array.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
def test_external_data_is_packed(kind: Any, tmp_path: Path) -> None:
    array = numbers(kind)
    tensor = numpy_helper.from_array(array, "w")
    (tmp_path / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w.bin")
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, array.shape)
    proto = helper.make_model(
        helper.make_graph([node], "g", [], [made], [tensor]), opset_imports=[helper.make_opsetid("", 25)]
    )
    onnx.save(proto, tmp_path / "m.onnx")
    found = evaluate(import_model(tmp_path / "m.onnx"), {})
    np.testing.assert_array_equal(found["y"], array.astype(np.float32))


def test_arithmetic_on_them_is_refused(tmp_path: Path) -> None:
    proto, _ = single("Add", [np.zeros(3, ml_dtypes.int4)] * 2, {}, 21)
    with pytest.raises(BadInputError) as caught:
        import_proto(proto, tmp_path, {}, {})
    assert "input 0 is int4, which Add of opset 14 does not take" in str(caught.value.why)
