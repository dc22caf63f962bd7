"""Models with free dimensions at many sizes: their one graph, interpreted, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from compiler import BadInputError, CompileOptions, OpenDimensionsError, SizeRange, UsageError
from compiler.graph.extents import regrouped
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Extent, Graph
from compiler.graph.rewrites import rewrite_graph
from compiler.stages.free_sizes import import_for_job
from compiler.stages.job import CompileJob
from tests.support.sized_models import SIZED, feeds, model, node, some

SIZES = {
    "long sums": [{"S": n} for n in (1, 7, 24)],
    "attention": [{"B": 1, "S": n} for n in (1, 2, 7, 40)],
    "windows": [{"N": 1, "H": h, "W": w} for h, w in ((6, 9), (13, 13), (30, 7))],
    "cache": [{"past": p, "steps": n} for p, n in ((1, 1), (5, 1), (9, 3), (20, 17))],
    "positions": [{"past": p, "steps": n} for p, n in ((1, 1), (5, 1), (9, 3), (20, 17))],
    "strides": [{"H": h, "W": w} for h, w in ((1, 1), (17, 90), (33, 33), (40, 65), (64, 31), (96, 96))],
    "averages": [{"H": h, "W": w} for h, w in ((1, 1), (5, 6), (6, 5), (7, 8), (40, 39))],
    "there and back": [{"H": h} for h in (4, 8, 12, 40)],
    "rounded up": [{"H": h, "W": w} for h, w in ((1, 1), (5, 6), (6, 5), (7, 8), (40, 39))],
    "resized": [{"T": n} for n in (3, 7, 8, 13, 40)],
    "frames": [{"T": n} for n in (8, 11, 12, 40)],
    "running sum, and the largest": [{"B": 1, "S": n} for n in (3, 4, 40)],
    "backwards": [{"B": 1, "S": n} for n in (1, 2, 40)],
    "products over what is free": [{"rows": n} for n in (1, 5, 40)],
    "recurrent": [{"T": n} for n in (1, 5, 16)],
}
LARGEST = {"recurrent": 16, "strides": 96}


def imported(proto: onnx.ModelProto, tmp_path: Path, **options: object) -> Graph:
    onnx.save(proto, tmp_path / "m.onnx")
    given = CompileOptions(output=tmp_path / "m.so", target="cpu", **options)  # type: ignore[arg-type]
    return import_for_job(CompileJob.of(tmp_path / "m.onnx", given)).general


@pytest.mark.parametrize("name", SIZED)
def test_one_graph_computes_what_onnxruntime_does_at_every_size(name: str, tmp_path: Path) -> None:
    proto = SIZED[name]()
    graph = imported(
        proto, tmp_path, dims=dict.fromkeys(_symbols(proto) - {"B", "N"}, SizeRange(1, LARGEST.get(name, 48)))
    )
    rewritten = rewrite_graph(graph)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in SIZES[name]:
        given = feeds(proto, sizes)
        expected = dict(zip(graph.output_names, session.run(None, given), strict=True))
        for one, beyond in ((graph, np.nan), (rewritten, np.nan), (rewritten, 1e6)):
            got = evaluate(one, given, beyond=beyond)
            for output, array in expected.items():
                np.testing.assert_allclose(got[output], array, rtol=1e-4, atol=1e-5, err_msg=f"{sizes}")


def _symbols(proto: onnx.ModelProto) -> set[str]:
    shapes = (item.type.tensor_type.shape for item in proto.graph.input)
    return {dim.dim_param for shape in shapes for dim in shape.dim if dim.dim_param}


def test_the_largest_sizes_are_those_that_the_model_takes(tmp_path: Path) -> None:
    proto = SIZED["attention"]()
    (positions,) = [item for item in proto.graph.initializer if item.name == "positions"]
    positions.CopyFrom(onnx.numpy_helper.from_array(some(1, 77, 32), "positions"))
    graph = imported(proto, tmp_path)
    assert [(item.name, item.minimum, item.maximum) for item in graph.symbols] == [("S", 1, 77)]
    assert graph.batch is not None
    assert graph.batch.name == "B"


def test_the_least_sizes_are_those_that_the_model_takes(tmp_path: Path) -> None:
    graph = imported(SIZED["running sum, and the largest"](), tmp_path)
    assert [(item.name, item.minimum) for item in graph.symbols] == [("S", 3)]
    graph = imported(SIZED["windows"](), tmp_path)
    assert [(item.name, item.minimum) for item in graph.symbols] == [("H", 2), ("W", 2)]


def test_a_batch_without_a_name(tmp_path: Path) -> None:
    graph = imported(model([node("Relu", ["x"], ["y"])], {"x": (None, 3)}, ("y",)), tmp_path)
    assert graph.batch is not None
    assert (graph.batch.name, graph.symbols) == ("batch", ())


def test_a_batch_of_samples_without_elements(tmp_path: Path) -> None:
    graph = imported(model([node("Relu", ["x"], ["y"])], {"x": ("N", 0)}, ("y",)), tmp_path)
    assert [item.name for item in graph.symbols] == ["N"]


def test_sizes_that_are_alike(tmp_path: Path) -> None:
    """Quotients of two dimensions of the same range are told apart."""
    ranges = {"H": SizeRange(4, 8), "W": SizeRange(4, 8)}
    graph = imported(SIZED["windows"](), tmp_path, dims=ranges)
    got = evaluate(graph, feeds(SIZED["windows"](), {"N": 1, "H": 4, "W": 7}), beyond=np.nan)
    assert got["y"].shape == (1, 4, 1, 2)


def test_extents_that_are_sums_by_name(tmp_path: Path) -> None:
    """As exporters write them, and what is added may be nothing."""
    proto = model(
        [node("Concat", ["past", "new"], ["all"], axis=0), node("Add", ["all", "mask_bias"], ["y"])],
        {"past": ("past_length", 3), "new": (1, 3), "mask_bias": ("past_length + 1", 3)},
        ("y",),
    )
    graph = imported(proto, tmp_path)
    assert [(item.name, item.minimum) for item in graph.symbols] == [("past_length", 0)]
    for length in (1, 6):
        past, new, bias = some(length, 3), some(1, 3), some(length + 1, 3)
        got = evaluate(graph, {"past": past, "new": new, "mask_bias": bias}, beyond=np.nan)
        np.testing.assert_allclose(got["y"], np.concatenate([past, new]) + bias, rtol=1e-6)


def test_extents_that_are_sums_by_another_name(tmp_path: Path) -> None:
    """As decoders have them: the mask is for what was before, and for what is new."""
    proto = model(
        [node("Concat", ["past", "new"], ["all"], axis=0), node("Add", ["all", "bias"], ["y"])],
        {"past": ("before", 3), "new": ("steps", 3), "bias": ("total", 3)},
        ("y",),
    )
    graph = imported(proto, tmp_path)
    assert [item.name for item in graph.symbols] == ["before", "steps"]
    past, new, bias = some(5, 3), some(2, 3), some(7, 3)
    got = evaluate(graph, {"past": past, "new": new, "bias": bias}, beyond=np.nan)
    np.testing.assert_allclose(got["y"], np.concatenate([past, new]) + bias, rtol=1e-6)


def test_extents_that_are_sums_with_a_size_that_was_given(tmp_path: Path) -> None:
    """A decoder for one token at a time; the batch is no part of any sum."""
    proto = model(
        [node("Concat", ["past", "new"], ["all"], axis=1), node("Add", ["all", "bias"], ["y"])],
        {"past": ("B", "before", 3), "new": ("B", "steps", 3), "bias": ("B", "total", 3)},
        ("y",),
    )
    graph = imported(proto, tmp_path, dims={"steps": 2})
    assert [item.name for item in graph.symbols] == ["before"]
    past, new, bias = some(1, 5, 3), some(1, 2, 3), some(1, 7, 3)
    got = evaluate(graph, {"past": past, "new": new, "bias": bias}, beyond=np.nan)
    np.testing.assert_allclose(got["y"], np.concatenate([past, new], 1) + bias, rtol=1e-6)


def test_windows_in_steps_end_differently(tmp_path: Path) -> None:
    """The last one reaches beyond an even size, not beyond an odd one."""
    pool = node("MaxPool", ["x"], ["y"], kernel_shape=[3], strides=[2], pads=[2, 1])
    graph = imported(model([pool], {"x": (1, 2, "T")}, ("y",)), tmp_path, dims={"T": SizeRange(7, 29)})
    for length in (7, 8, 15, 16, 28, 29):
        given = some(1, 2, length) - 3
        padded = np.pad(given, ((0, 0), (0, 0), (2, 1)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=2)[:, :, ::2]
        got = evaluate(graph, {"x": given}, beyond=1e6)["y"]
        np.testing.assert_array_equal(got, windows.max(axis=-1), err_msg=str(length))


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8, np.bool_])
def test_the_last_of_a_sequence(kind: type, tmp_path: Path) -> None:
    """A single element, which may be right by chance."""
    proto = model([node("Gather", ["x", "last"], ["y"])], {"x": ("T",)}, ("y",), last=-1)
    proto.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = imported(proto, tmp_path, dims={"T": SizeRange(1, 29)})
    for length in (1, 3, 28, 29):
        given = np.arange(length).astype(kind) if kind != np.bool_ else np.arange(length) == length - 1
        assert evaluate(graph, {"x": given}, beyond=0)["y"] == given[-1], length


def test_steps_that_are_larger_than_the_sizes_tried_first(tmp_path: Path) -> None:
    places = np.array([1, 1, 16, 16], np.float32)
    nodes = [
        node("MaxPool", ["x"], ["a"], kernel_shape=[16, 16], strides=[16, 16]),
        node("Resize", ["a", "", "places"], ["b"], mode="nearest"),
        node("Add", ["x", "b"], ["y"]),
    ]
    proto = model(nodes, {"x": (1, 2, "H", 16)}, ("y",), places=places)
    graph = imported(proto, tmp_path, dims={"H": SizeRange(16, 64)})
    assert [(one.minimum, one.step) for one in graph.symbols] == [(16, 16)]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for height in (16, 48):
        given = feeds(proto, {"H": height})
        np.testing.assert_allclose(evaluate(graph, given, beyond=np.nan)["y"], session.run(None, given)[0])


def test_sizes_in_steps(tmp_path: Path) -> None:
    """Of the largest sizes, of those asked for, and of those of a run."""
    proto = SIZED["there and back"]()
    (symbol,) = imported(proto, tmp_path).symbols
    assert (symbol.name, symbol.minimum, symbol.maximum, symbol.step) == ("H", 4, 512, 4)
    graph = imported(proto, tmp_path, dims={"H": SizeRange(5, 50)})
    (symbol,) = graph.symbols
    assert (symbol.minimum, symbol.maximum) == (8, 48)
    with pytest.raises(UsageError, match="`H` cannot be 10") as caught:
        evaluate(graph, feeds(proto, {"H": 10}))
    assert caught.value.why == "the model takes multiples of 4"


def test_sizes_that_do_not_go_together(tmp_path: Path) -> None:
    proto = model([node("Add", ["a", "b"], ["y"])], {"a": ("N", 3), "b": ("M", 3)}, ("y",))
    with pytest.raises(OpenDimensionsError, match="do not broadcast"):
        imported(proto, tmp_path)


REFUSED = {
    "depends on the size": (
        model(
            [node("Reshape", ["x", "s"], ["y"])],
            {"x": (1, "W", 3, "H")},
            ("y",),
            s=np.array([-1, 3]),
        ),
        "computes something else at another size",
    ),
    "packed": (
        helper.make_model(
            helper.make_graph(
                [node("Identity", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", onnx.TensorProto.INT4, ("N", "M"))],
                [helper.make_empty_tensor_value_info("y")],
            ),
            opset_imports=[helper.make_opsetid("", 21)],
        ),
        "fewer than 8 bits",
    ),
    "no rank": (
        helper.make_model(
            helper.make_graph(
                [node("Relu", ["x"], ["y"])],
                "g",
                [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)],
                [helper.make_empty_tensor_value_info("y")],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
        ),
        "a shape that the model does not say",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_stay_free(name: str, tmp_path: Path) -> None:
    proto, why = REFUSED[name]
    with pytest.raises(OpenDimensionsError) as caught:
        imported(proto, tmp_path)
    assert why in caught.value.why


def test_a_range_for_a_fixed_dimension(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], {"x": (1, 8)}, ("y",))
    with pytest.raises(UsageError, match="a range for dimensions that the model fixes"):
        imported(proto, tmp_path, shapes={"x": (1, SizeRange(1, 8))})


def test_a_range_beyond_what_the_model_takes(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="not valid"):
        imported(SIZED["attention"](), tmp_path, dims={"S": SizeRange(1, 600)})


@pytest.mark.parametrize(
    ("shape", "axis", "extent", "other", "expected"),
    [
        ((6, 2, 5), 0, Extent((1,)), (12, 5), (0, Extent((2,)))),
        ((12, 5), 0, Extent((2,)), (6, 10), (0, Extent((1,)))),
        ((12, 5), 0, Extent((1,)), (6, 10), None),
        ((3, 6, 4), 1, Extent((1,), 2), (3, 6, 2, 2), (1, Extent((1,), 2))),
        ((3, 6, 4), 1, Extent((1,)), (18, 4), None),
        ((1, 6, 4), 1, Extent((1,), 1, 2), (6, 4), (0, Extent((1,), 1, 2))),
        ((6, 4), 0, Extent((1,), 1, 2), (12, 2), None),
    ],
)
def test_ends_in_another_shape_of_the_same_memory(
    shape: tuple[int, ...],
    axis: int,
    extent: Extent,
    other: tuple[int, ...],
    expected: tuple[int, Extent] | None,
) -> None:
    assert regrouped(shape, axis, extent, other) == expected
