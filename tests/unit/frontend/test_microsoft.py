"""Operators of com.microsoft, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from compiler.frontend.onnx import import_proto
from compiler.frontend.refusals import UnsupportedModelError
from compiler.graph.interpret import evaluate
from compiler.graph.ir import verify
from tests.support.onnx_models import assert_close, run_onnxruntime, value_info
from tests.support.op_case import floats

DOMAIN = "com.microsoft"
X, Y = floats(2, 5, 8), floats(2, 5, 8, seed=1)
GAMMA, BETA, BIAS = (floats(8, seed=seed) for seed in (2, 3, 4))
IMAGE, FILTER = floats(1, 4, 7, 6), floats(3, 4, 3, 3, seed=5)
TABLES = floats(16, 2, seed=8), floats(16, 2, seed=9)
CACHE = floats(2, 2, 3, 4, seed=6), floats(2, 2, 3, 4, seed=7)
ROOM = floats(2, 1, 9, 16, seed=6), floats(2, 1, 9, 16, seed=7)
Q, K, V = floats(2, 5, 32), floats(2, 5, 16), floats(2, 5, 16, seed=1)
NEW = Q[:, :1], K[:, :1], V[:, :1]
ANGLES = floats(16, 8, seed=8), floats(16, 8, seed=9)


def i32(*values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


def total(value: int) -> np.ndarray:
    return np.asarray(value, np.int32)


def packed(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, shape).astype(np.uint8)


def case(op: str, *arrays: np.ndarray | None, made: str = "y", known: Any = (), **attrs: Any) -> Any:
    """One node; `made` names its outputs, "_" one that it does not have."""
    return pytest.param(op, arrays, made, known, attrs, id=f"{op}-{'-'.join(attrs)}-{len(arrays)}-{made}")


KEYS = {"num_heads": 2, "kv_num_heads": 1}
TWO = {"num_heads": 2}
BITS = {"K": 40, "N": 6, "block_size": 16}
QKV = floats(8, 24, seed=11), floats(24, seed=12)
CASES = [
    case("Gelu", X),
    case("BiasGelu", X, BIAS),
    case("FastGelu", X),
    case("FastGelu", X, BIAS),
    case("QuickGelu", X),
    case("QuickGelu", X, alpha=1.1),
    case("FusedMatMul", X, Y, transB=1, alpha=0.3),
    case("FusedMatMul", X, Y, transA=1),
    case("FusedGemm", X[0], Y[0], floats(5), transB=1, alpha=0.5, activation="Relu"),
    case("FusedGemm", X[0], Y[0], floats(5), transB=1, activation="LeakyRelu", activation_alpha=0.3),
    case("FusedConv", IMAGE, FILTER, floats(3), activation="Relu", pads=[1, 1, 1, 1], strides=[2, 1]),
    case("FusedConv", IMAGE, FILTER, activation="LeakyRelu", activation_params=[0.2]),
    case("FusedConv", IMAGE, FILTER, activation="Clip", activation_params=[-0.5, 0.5]),
    case("FusedConv", IMAGE, FILTER, floats(3), floats(1, 3, 5, 4), activation="Sigmoid"),
    case("SkipLayerNormalization", X, Y, GAMMA, BETA, BIAS, made="y__s", epsilon=1e-3),
    case("SkipLayerNormalization", X, Y, GAMMA),
    case("SkipLayerNormalization", X, Y[0], GAMMA, BETA),
    case("SkipSimplifiedLayerNormalization", X, Y, GAMMA, BIAS, made="y__s", epsilon=1e-3),
    case("SkipSimplifiedLayerNormalization", X, Y, GAMMA),
    case("SimplifiedLayerNormalization", X, GAMMA, epsilon=1e-3),
    case("EmbedLayerNormalization", i32([1, 4, 2], [0, 3, 3]), i32([0, 1, 1], [0, 0, 1]), floats(5, 8),
         floats(6, 8, seed=1), floats(2, 8, seed=2), GAMMA, BETA, i32([1, 1, 0], [1, 1, 1]), made="yms"),
    case("EmbedLayerNormalization", i32([1, 4, 2], [0, 3, 3]), None, floats(5, 8), floats(6, 8, seed=1),
         None, GAMMA, BETA, made="ym"),
    case("MatMulNBits", floats(3, 40), packed(6, 3, 8), floats(18), known=[1, 2], bits=4, **BITS),
    case("MatMulNBits", floats(3, 40), packed(6, 3, 8), floats(18), packed(12), known=[1, 2, 3], bits=4,
         **BITS),
    case("MatMulNBits", floats(2, 3, 40), packed(6, 3, 16), floats(18), packed(18), None, floats(6),
         known=[1, 2, 3, 5], bits=8, **BITS),
    case("RotaryEmbedding", floats(2, 5, 8), np.asarray([3]), *TABLES),
    case("RotaryEmbedding", floats(2, 2, 5, 4), np.asarray([[0, 1, 2, 5, 4]] * 2), *TABLES, interleaved=1),
    case("RotaryEmbedding", floats(2, 5, 12), np.asarray([[0, 1, 2, 5, 4]] * 2), *TABLES, num_heads=2,
         rotary_embedding_dim=4),
    case("Attention", X, *QKV, made="yp", **TWO),
    case("Attention", X, *QKV, i32([1, 1, 0, 1, 1], [1, 1, 1, 1, 0]), made="yp", unidirectional=1, **TWO),
    case("Attention", X, *QKV, i32(3, 5), **TWO, scale=0.3),
    case("Attention", X, *QKV, None, floats(2, 2, 2, 3, 4), made="yp", unidirectional=1, **TWO),
    case("Attention", X, *QKV, None, None, floats(2, 2, 5, 5), **TWO),
    case("Attention", X, floats(8, 22), floats(22), qkv_hidden_sizes=[8, 8, 6], **TWO),
    case("MultiHeadAttention", X, Y, Y, **TWO),
    case("MultiHeadAttention", X, Y, Y, floats(24), i32([1, 1, 0, 1, 1], [1, 1, 1, 1, 0]), scale=0.4, **TWO),
    case("MultiHeadAttention", X, Y, Y, None, i32(4, 5), floats(1, 2, 5, 5), unidirectional=1, **TWO),
    case("MultiHeadAttention", X, Y, Y, None, None, None, *CACHE, made="ykv", unidirectional=1, **TWO),
    case("MultiHeadAttention", X, *CACHE, floats(24), **TWO),
    case("GroupQueryAttention", Q, K, V, None, None, i32(4, 2), total(5), made="ykv", known=[6], **KEYS),
    case("GroupQueryAttention", floats(2, 5, 64), None, None, None, None, i32(4, 4), total(5), *ANGLES,
         made="ykv", known=[6], do_rotary=1, softcap=2.0, **KEYS),
    case("GroupQueryAttention", *NEW, *ROOM, i32(5, 3), total(6), *ANGLES, made="ykv",
         known=[6], do_rotary=1, rotary_interleaved=1, scale=0.4, **KEYS),
    case("GroupQueryAttention", *NEW, *ROOM, i32(9, 9), total(10), made="ykv", known=[6], local_window_size=4,
         **KEYS),
    case("GroupQueryAttention", Q[:1], K[:1], V[:1], ROOM[0][:1], ROOM[1][:1], i32(7), total(8), made="ykv",
         known=[6], local_window_size=3, **KEYS),
]  # fmt: skip


def proto_of(
    op: str, arrays: Any, made: str, known: Any, attrs: dict[str, Any]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    given = {f"in{at}": array for at, array in enumerate(arrays) if array is not None}
    weights = {f"in{at}": given.pop(f"in{at}") for at in known}
    names = ["" if array is None else f"in{at}" for at, array in enumerate(arrays)]
    outputs = [f"out{at}" if kind != "_" else "" for at, kind in enumerate(made)]
    domain = "" if op == "SimplifiedLayerNormalization" else DOMAIN
    node = helper.make_node(op, names, outputs, domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "test",
        [value_info(name, array) for name, array in given.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs if name],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8), given


@pytest.mark.parametrize(("op", "arrays", "made", "known", "attrs"), CASES)
def test_a_body_means_what_onnxruntime_computes(
    op: str, arrays: Any, made: str, known: Any, attrs: dict[str, Any]
) -> None:
    proto, feeds = proto_of(op, arrays, made, known, attrs)
    graph = import_proto(proto, Path(), {}, {})
    verify(graph)
    got, want = evaluate(graph, feeds), run_onnxruntime(proto, feeds)
    for name, array in want.items():
        assert_close(got[name], array, 1e-4, what=name)


def test_convolution_with_channels_last() -> None:
    """onnxruntime has no kernel of it for processors: what it stands for is the oracle."""
    bias, added = floats(3), floats(1, 3, 5, 4)
    how = {"activation": "Tanh", "group": 1}
    proto, feeds = proto_of("FusedConv", (IMAGE, FILTER, bias, added), "y", (), how)
    want = run_onnxruntime(proto, feeds)["out0"]
    last = (0, 2, 3, 1)
    arrays = (IMAGE.transpose(last), FILTER, bias, added.transpose(last))
    for op in ("NhwcConv", "NhwcFusedConv"):
        proto, feeds = proto_of(op, arrays, "y", (), how)
        graph = import_proto(proto, Path(), {}, {})
        assert_close(evaluate(graph, feeds)["out0"], want.transpose(last), 1e-4)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (case("FusedMatMul", X, Y, transBatchA=1), "transBatchA=1 is not supported, only 0"),
        (case("MatMulNBits", X, packed(6, 1, 4), floats(6), K=8, N=6, block_size=16, bits=2), "2 bits"),
        (case("FusedConv", IMAGE, FILTER, activation="Softmax"), "activation Softmax"),
        (case("Gelu", X, magic=1), "attribute magic"),
        (case("SkipLayerNormalization", X, Y, GAMMA, made="ym"), "output 1"),
        (case("GroupQueryAttention", Q, K, V, None, None, i32(4, 4), total(5), **KEYS), "must be known"),
        (case("GroupQueryAttention", Q, K, V, None, None, i32(4, 4), total(5), known=[6], smooth_softmax=1,
              **KEYS), "smooth_softmax=1"),
        (case("MultiHeadAttention", X, None, None, **TWO), "in one tensor"),
        (case("MultiHeadAttention", X, Y, Y, None, i32(1, 2, 3), **TWO), "shape"),
    ],
)  # fmt: skip
def test_what_is_refused(one: Any, why: str) -> None:
    proto, _ = proto_of(*one.values)
    with pytest.raises(UnsupportedModelError) as caught:
        import_proto(proto, Path(), {}, {})
    assert why in f"{caught.value.why}"
