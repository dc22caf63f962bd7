"""Each rewrite: the result means the same, and has the intended form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from compiler.core.diagnostics import InternalError
from compiler.core.types import F32
from compiler.graph.attrs import Attrs
from compiler.graph.edit import Editor
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Node, TensorType, Value, verify
from compiler.graph.op import Kind
from compiler.graph.ops import OPS
from compiler.graph.ops.norm import emit_standardized
from compiler.graph.ops.windows import Windows
from compiler.graph.rewrites import PASSES, rewrite_graph
from compiler.graph.rewrites.cancel_transposes import cancel_transposes
from compiler.graph.rewrites.canonicalise import canonicalise
from compiler.graph.rewrites.drop_dead import drop_dead
from compiler.graph.rewrites.explicit_pads import explicit_pads
from compiler.graph.rewrites.fold_batchnorm import fold_batchnorm
from compiler.graph.rewrites.fold_constants import fold_constants
from compiler.graph.rewrites.hoist_pads import hoist_pads
from compiler.graph.rewrites.merge_pads import merge_pads
from compiler.graph.rewrites.part_concats import MOST_OPERANDS, part_concats
from compiler.graph.rewrites.recognise_norms import recognise_norms
from compiler.graph.rewrites.separate_outputs import separate_outputs
from compiler.graph.rewrites.share_common import share_common
from compiler.graph.rewrites.simplify_reshapes import simplify_reshapes
from tests.support.onnx_models import assert_close

Rewrite = Callable[[Graph], Graph]


class Sketch(Editor):
    """A graph written by hand; nothing is folded on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[Value] = []
        self.rng = np.random.default_rng(7)

    def fold(self, *_: object) -> None:  # type: ignore[override]
        return None

    def input(self, *shape: int) -> Value:
        self.inputs.append(self.value(TensorType(F32, shape), f"x{len(self.inputs)}"))
        return self.inputs[-1]

    def weights(self, *shape: int) -> Value:
        return self.constant(self.rng.uniform(0.5, 1.5, shape).astype(np.float32))

    def conv(
        self, source: Value, outer: int, size: int = 3, pad: int = 0, bias: bool = True, group: int = 1
    ) -> Value:
        kernel, ones, pads = (size, size), (1, 1), (pad, pad)
        extra = (self.weights(outer),) if bias else ()
        weights = self.weights(outer, source.type.shape[1] // group, *kernel)
        windows = Windows(kernel, ones, ones, pads, pads)
        return self.emit("Conv", source, weights, *extra, group=group, **windows.attrs())

    def pool(self, op: str, source: Value, pad: int = 1) -> Value:
        windows = Windows((3, 3), (1, 1), (1, 1), (pad, pad), (pad, pad))
        return self.emit(op, source, **windows.attrs())

    def pad(self, source: Value, count: int, value: float = 0.0) -> Value:
        pads = (0, 0, count, count)
        return self.emit("Pad", source, before=pads, after=pads, mode="constant", value=value)

    def graph(self, *outputs: Value) -> Graph:
        names = tuple(f"y{number}" for number in range(len(outputs)))
        inputs = tuple(self.inputs)
        made = Graph(inputs, outputs, tuple(self.nodes), self.constants, tuple(v.name for v in inputs), names)
        verify(made)
        return made


def feeds_for(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    return {
        name: rng.standard_normal(value.type.shape).astype(np.float32)
        for name, value in zip(graph.input_names, graph.inputs, strict=True)
    }


def check(graph: Graph, *rewrites: Rewrite, want: Mapping[str, int] | None = None) -> Graph:
    """Apply the rewrites: the same outputs, and exactly the given operators (when given)."""
    result = graph
    for step in rewrites:
        result = step(result)
        verify(result)
    feeds = feeds_for(graph)
    before, after = evaluate(graph, feeds), evaluate(result, feeds)
    for name in graph.output_names:
        assert_close(after[name], before[name], 1e-5, name)
    if want is not None:
        assert counts(result) == want
    return result


def counts(graph: Graph) -> dict[str, int]:
    return dict(Counter(item.op.name for item in graph.nodes))


# ---------------------------------------------------------------- constants and dead code


def test_known_results_become_constants() -> None:
    s = Sketch()
    x = s.input(2, 3)
    known = s.emit("Exp", s.emit("Add", s.weights(3), s.weights(3)))
    check(s.graph(s.emit("Mul", x, known)), fold_constants, drop_dead, want={"Mul": 1})


def test_huge_results_are_not_stored() -> None:
    s = Sketch()
    x = s.input(1)
    huge = s.emit("Expand", s.weights(1), shape=(1 << 27,))
    graph = s.graph(s.emit("Mul", x, s.emit("Slice", huge, begin=(5,), step=(1,), size=(1,))))
    assert counts(fold_constants(graph))["Expand"] == 1


def test_dead_nodes_and_constants_go() -> None:
    s = Sketch()
    x = s.input(2, 3)
    s.emit("Mul", x, s.weights(3))
    result = check(s.graph(s.emit("Relu", x)), drop_dead, want={"Relu": 1})
    assert not result.constants
    assert drop_dead(result) is result


def test_equal_nodes_are_computed_once() -> None:
    s = Sketch()
    x = s.input(2, 3)
    both = s.emit("Add", s.emit("Exp", x), s.emit("Exp", x))
    check(s.graph(both), share_common, drop_dead, want={"Exp": 1, "Add": 1})


# ---------------------------------------------------------------- canonical form


def test_gemm_becomes_a_product_of_known_weights() -> None:
    s = Sketch()
    x = s.input(2, 4)
    gemm = s.emit("Gemm", x, s.weights(5, 4), s.weights(5), alpha=0.5, beta=2.0, transA=False, transB=True)
    check(s.graph(gemm), canonicalise, drop_dead, want={"MatMul": 1, "Add": 1})


def test_average_of_padded_windows_multiplies_by_a_table() -> None:
    s = Sketch()
    x = s.input(1, 2, 5, 5)
    windows = Windows((3, 3), (2, 2), (1, 1), (1, 1), (1, 1))
    pool = s.emit("AveragePool", x, **windows.attrs(), counted_before=(0, 0), counted_after=(0, 0))
    result = check(s.graph(pool), canonicalise, drop_dead, want={"SumPool": 1, "Mul": 1})
    assert [value.type.shape for value in result.constants] == [(3, 3)]


def test_average_of_inner_windows_multiplies_by_a_number() -> None:
    s = Sketch()
    x = s.input(1, 2, 6, 6)
    windows = Windows((2, 2), (2, 2), (1, 1), (0, 0), (0, 0))
    pool = s.emit("AveragePool", x, **windows.attrs(), counted_before=(0, 0), counted_after=(0, 0))
    result = check(s.graph(pool), canonicalise, drop_dead, want={"SumPool": 1, "Mul": 1})
    assert [value.type.shape for value in result.constants] == [()]


def test_constants_stand_second_and_neutral_elements_vanish() -> None:
    s = Sketch()
    x, c = s.input(2, 3), s.weights(3)
    one, zero = s.constant(np.ones(3, np.float32)), s.constant(np.zeros((), np.float32))
    y = s.emit("Mul", s.emit("Add", c, s.emit("Div", s.emit("Sub", x, c), s.weights(3))), one)
    result = check(s.graph(s.emit("Add", zero, y)), canonicalise, drop_dead, want={"Add": 2, "Mul": 1})
    assert all(item.inputs[1] in result.constants for item in result.nodes)


def test_a_batch_of_rows_is_one_matrix() -> None:
    s = Sketch()
    x = s.input(2, 3, 4)
    result = check(s.graph(s.emit("MatMul", x, s.weights(4, 5))), canonicalise, drop_dead)
    (product,) = (item for item in result.nodes if item.op.name == "MatMul")
    assert product.output.type.shape == (6, 5)


def test_split_becomes_slices() -> None:
    s = Sketch()
    x = s.input(2, 6)
    parts = s.emit_all(OPS["Split"], (x,), Attrs(axis=1, split=(1, 5)))
    check(s.graph(*parts), canonicalise, drop_dead, want={"Slice": 2})


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (2, 3)])
def test_transposed_convolution_is_a_convolution(strides: tuple[int, int]) -> None:
    s = Sketch()
    x = s.input(1, 4, 5, 6)
    windows = Windows((3, 2), strides, (1, 1), (1, 0), (0, 1))
    made = s.emit(
        "ConvTranspose", x, s.weights(4, 3, 3, 2), s.weights(3), group=1, extra=(0, 0), **windows.attrs()
    )
    result = check(s.graph(made), canonicalise, drop_dead)
    assert counts(result)["Conv"] == 1
    assert set(counts(result)) <= {"Conv", "Reshape", "Transpose", "Slice"}


def test_canonical_graph_holds_canonical_operators_only() -> None:
    """What has an expansion and no form must be gone."""
    s = Sketch()
    x = s.input(1, 4, 6, 6)
    y = s.emit("InstanceNormalization", x, s.weights(4), s.weights(4), epsilon=1e-5)
    result = rewrite_graph(s.graph(s.emit("GlobalAveragePool", y)))
    assert all(item.op.forms_for(item.info) or item.op.kind is Kind.VIEW for item in result.nodes)


# ---------------------------------------------------------------- batch normalisation


def batch_norm(s: Sketch, x: Value) -> Value:
    parameters = [s.weights(x.type.shape[1]) for _ in range(4)]
    return s.emit("BatchNormalization", x, *parameters, epsilon=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("group", [1, 2])
def test_batch_norm_goes_into_the_convolution(bias: bool, group: int) -> None:
    s = Sketch()
    y = batch_norm(s, s.conv(s.input(1, 4, 6, 6), 6, bias=bias, group=group))
    check(s.graph(s.emit("Relu", y)), canonicalise, fold_batchnorm, drop_dead, want={"Conv": 1, "Relu": 1})


def test_a_scale_layer_after_the_batch_norm_goes_there_too() -> None:
    s = Sketch()
    y = batch_norm(s, s.conv(s.input(1, 4, 6, 6), 6))
    y = s.emit("Add", s.emit("Mul", y, s.weights(6, 1, 1)), s.weights(1, 6, 1, 1))
    check(s.graph(y), canonicalise, fold_batchnorm, drop_dead, want={"Conv": 1})


def test_chains_without_a_convolution_become_one_multiplication_and_one_addition() -> None:
    s = Sketch()
    y = batch_norm(s, batch_norm(s, s.input(1, 4, 3, 3)))
    y = s.emit("Add", s.emit("Mul", y, s.weights(4, 1, 1)), s.weights(4, 1, 1))
    check(
        s.graph(s.emit("Relu", y)),
        canonicalise,
        fold_batchnorm,
        drop_dead,
        want={"Mul": 1, "Add": 1, "Relu": 1},
    )


def test_a_convolution_that_others_read_is_left_alone() -> None:
    s = Sketch()
    conv = s.conv(s.input(1, 4, 6, 6), 6)
    graph = s.graph(batch_norm(s, conv), s.emit("Relu", conv))
    check(graph, canonicalise, fold_batchnorm, drop_dead, want={"Conv": 1, "Mul": 1, "Add": 1, "Relu": 1})


def test_a_factor_per_pixel_cannot_be_folded() -> None:
    s = Sketch()
    conv = s.conv(s.input(1, 4, 6, 6), 6)
    graph = s.graph(s.emit("Mul", conv, s.weights(4, 4)))
    check(graph, fold_batchnorm, drop_dead, want={"Conv": 1, "Mul": 1})


def test_factors_of_columns_go_into_the_matrix() -> None:
    s = Sketch()
    product = s.emit("MatMul", s.input(3, 4), s.weights(4, 5))
    check(s.graph(s.emit("Mul", product, s.weights(5))), fold_batchnorm, drop_dead, want={"MatMul": 1})


# ---------------------------------------------------------------- padding


def test_padding_becomes_a_node() -> None:
    s = Sketch()
    result = check(s.graph(s.conv(s.input(1, 4, 6, 6), 6, pad=1)), explicit_pads, want={"Pad": 1, "Conv": 1})
    (conv,) = (item for item in result.nodes if item.op.name == "Conv")
    assert not any(conv.attrs.integers("before"))


def test_max_pool_pads_with_the_lowest_number_where_numbers_may_be_negative() -> None:
    s = Sketch()
    result = check(s.graph(s.pool("MaxPool", s.input(1, 2, 5, 5))), explicit_pads)
    assert [item.attrs["value"] for item in result.nodes if item.op.name == "Pad"] == [-np.inf]


def test_max_pool_pads_with_zero_behind_relu() -> None:
    s = Sketch()
    x = s.emit("Concat", s.emit("Relu", s.input(1, 2, 5, 5)), s.emit("Sigmoid", s.input(1, 1, 5, 5)), axis=1)
    result = check(s.graph(s.pool("MaxPool", x)), explicit_pads)
    assert [item.attrs["value"] for item in result.nodes if item.op.name == "Pad"] == [0.0]


def test_a_pad_before_padding_joins_it() -> None:
    s = Sketch()
    graph = s.graph(s.conv(s.pad(s.input(1, 4, 6, 6), 2), 6, pad=1))
    check(graph, explicit_pads, drop_dead, want={"Pad": 1, "Conv": 1})


def test_a_pad_with_another_value_does_not() -> None:
    s = Sketch()
    graph = s.graph(s.conv(s.pad(s.input(1, 4, 6, 6), 2, value=1.0), 6, pad=1))
    check(graph, explicit_pads, drop_dead, want={"Pad": 2, "Conv": 1})


def test_readers_share_the_largest_pad() -> None:
    s = Sketch()
    x = s.emit("Relu", s.input(1, 4, 6, 6))
    graph = s.graph(s.conv(x, 3, 5, pad=2), s.conv(x, 3, 3, pad=1), s.conv(x, 3, 1), s.pool("MaxPool", x))
    want = {"Relu": 1, "Conv": 3, "MaxPool": 1, "Pad": 1, "Slice": 2}
    result = check(graph, explicit_pads, merge_pads, share_common, drop_dead, want=want)
    (pad,) = (item for item in result.nodes if item.op.name == "Pad")
    assert pad.attrs.integers("before") == (0, 0, 2, 2)


def test_an_output_stays_bare() -> None:
    s = Sketch()
    x = s.emit("Relu", s.input(1, 4, 6, 6))
    graph = s.graph(s.conv(x, 3, 3, pad=1), x)
    check(graph, explicit_pads, merge_pads, drop_dead, want={"Relu": 1, "Conv": 1, "Pad": 1})


def test_a_viewed_tensor_stays_bare() -> None:
    s = Sketch()
    x = s.emit("Relu", s.input(1, 4, 6, 6))
    graph = s.graph(s.conv(x, 3, 3, pad=1), s.emit("Reshape", x, shape=(144,)))
    check(graph, explicit_pads, merge_pads, drop_dead, want={"Relu": 1, "Conv": 1, "Pad": 1, "Reshape": 1})


def test_parts_of_a_join_are_padded_instead_of_the_join() -> None:
    s = Sketch()
    x = s.input(1, 4, 6, 6)
    join = s.emit("Concat", s.conv(x, 2, 1), s.conv(x, 3, 1), axis=1)
    graph = s.graph(s.conv(join, 3, 3, pad=1))
    result = check(graph, explicit_pads, hoist_pads, drop_dead, want={"Conv": 3, "Pad": 2, "Concat": 1})
    assert [item.op.name for item in result.nodes][-2:] == ["Concat", "Conv"]


# ---------------------------------------------------------------- transposes and reshapes


NCHW, NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def test_opposite_transposes_cancel() -> None:
    s = Sketch()
    x = s.emit("Transpose", s.input(1, 4, 5, 6), perm=NHWC)
    y = s.emit("Transpose", s.emit("Relu", s.emit("Mul", x, s.weights(4))), perm=NCHW)
    check(s.graph(y), cancel_transposes, drop_dead, want={"Mul": 1, "Relu": 1})


def test_transposes_sink_through_joins_pads_reductions_and_softmax() -> None:
    s = Sketch()
    x, y = (s.emit("Transpose", s.input(1, 4, 5, 6), perm=NHWC) for _ in range(2))
    z = s.emit("Concat", x, s.emit("Add", x, y), axis=3)
    z = s.emit("Pad", z, before=(0, 1, 2, 0), after=(0, 0, 1, 0), mode="constant", value=0.0)
    z = s.emit("ReduceSum", s.emit("Softmax", z, axis=3, flatten=False), axes=(1, 2), keepdims=True)
    steps = canonicalise, cancel_transposes, simplify_reshapes, drop_dead
    result = check(s.graph(s.emit("Transpose", z, perm=NCHW)), *steps)
    assert counts(result) == {"Add": 1, "Concat": 1, "Pad": 1, "ReduceSum": 1, "Softmax": 1}


def test_different_transposes_stay() -> None:
    s = Sketch()
    x = s.emit("Transpose", s.input(3, 3, 3), perm=(0, 2, 1))
    y = s.emit("Transpose", s.input(3, 3, 3), perm=(2, 1, 0))
    check(s.graph(s.emit("Add", x, y)), cancel_transposes, drop_dead, want={"Transpose": 2, "Add": 1})


def test_moving_an_axis_of_extent_one_is_a_reshape() -> None:
    s = Sketch()
    y = s.emit("Transpose", s.input(1, 4, 5), perm=(1, 0, 2))
    check(s.graph(y), canonicalise, want={"Reshape": 1})


def test_reshapes_merge_and_sink_below_bias_and_residual() -> None:
    s = Sketch()
    x = s.input(2, 3, 4)
    y = s.emit(
        "Reshape", s.emit("MatMul", s.emit("Reshape", x, shape=(6, 4)), s.weights(4, 4)), shape=(2, 3, 4)
    )
    y = s.emit("Add", s.emit("Relu", s.emit("Add", y, s.weights(4))), x)
    y = emit_standardized(s, y, 2, 1e-5)
    y = s.emit(
        "Reshape", s.emit("MatMul", s.emit("Reshape", y, shape=(6, 4)), s.weights(4, 4)), shape=(2, 3, 4)
    )
    result = check(s.graph(y), simplify_reshapes, drop_dead, share_common)
    assert counts(result)["Reshape"] == 2
    assert all(item.output.type.rank == 2 for item in result.nodes if item.op.kind is not Kind.VIEW)


def test_a_reshape_with_a_misaligned_operand_stays() -> None:
    s = Sketch()
    y = s.emit("Reshape", s.emit("Relu", s.input(6, 4)), shape=(2, 12))
    check(
        s.graph(s.emit("Add", y, s.weights(12))), simplify_reshapes, want={"Relu": 1, "Reshape": 1, "Add": 1}
    )


def test_channel_shuffle_is_one_node() -> None:
    s = Sketch()
    x = s.emit("Reshape", s.input(1, 12, 5, 5), shape=(1, 3, 4, 5, 5))
    x = s.emit("Reshape", s.emit("Transpose", x, perm=(0, 2, 1, 3, 4)), shape=(1, 12, 5, 5))
    check(s.graph(x), simplify_reshapes, drop_dead, want={"ChannelShuffle": 1})


# ---------------------------------------------------------------- norms and outputs


@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("square", ["Mul", "Pow"])
@pytest.mark.parametrize("divide", ["Div", "Reciprocal", "inverse first", "1 / root"])
def test_spelt_out_normalisation_is_recognised(square: str, divide: str, *, centred: bool) -> None:
    s = Sketch()
    x = s.input(2, 3, 8)
    distance = s.emit("Sub", x, s.emit("ReduceMean", x, axes=(2,), keepdims=True)) if centred else x
    if square == "Mul":
        squared = s.emit("Mul", distance, distance)
    else:
        squared = s.emit("Pow", distance, s.constant(np.asarray(2, np.float32)))
    spread = s.emit("ReduceMean", squared, axes=(2,), keepdims=True)
    root = s.emit("Sqrt", s.emit("Add", spread, s.constant(np.asarray([1e-3], np.float32))))
    if divide == "Div":
        y = s.emit("Div", distance, root)
    elif divide == "1 / root":
        y = s.emit("Mul", distance, s.emit("Div", s.constant(np.asarray(1, np.float32)), root))
    else:
        factors = (distance, s.emit("Reciprocal", root))
        y = s.emit("Mul", *(factors if divide == "Reciprocal" else factors[::-1]))
    result = check(s.graph(y), recognise_norms, drop_dead, want={"Standardize": 1})
    assert result.nodes[0].attrs.flag("centred") is centred


def test_a_quotient_by_other_means_is_no_normalisation() -> None:
    s = Sketch()
    x, other = s.input(2, 3, 8), s.input(2, 3, 8)
    for squared, axes in ((s.emit("Mul", other, other), (2,)), (s.emit("Mul", x, x), (1,))):
        spread = s.emit("ReduceMean", squared, axes=axes, keepdims=True)
        root = s.emit("Sqrt", s.emit("Add", spread, s.constant(np.asarray([1e-3], np.float32))))
        graph = s.graph(s.emit("Div", x, root))
        assert recognise_norms(graph) is graph


def test_outputs_get_memory_of_their_own() -> None:
    s = Sketch()
    x = s.input(2, 3)
    y = s.emit("Relu", x)
    graph = s.graph(x, y, y, s.emit("Reshape", y, shape=(6,)), s.weights(2), s.emit("Reshape", x, shape=(6,)))
    result = check(graph, separate_outputs)
    assert counts(result)["Copy"] == 5
    assert len(set(result.outputs)) == 6
    assert separate_outputs(result) is result


# ---------------------------------------------------------------- all together


def test_passes_return_the_same_graph_when_there_is_nothing_to_do() -> None:
    s = Sketch()
    graph = s.graph(s.emit("Relu", s.conv(s.input(1, 4, 6, 6), 6)))
    for step in PASSES:
        assert step.run(graph) is graph, step.name


@pytest.mark.parametrize(("count", "joins"), [(64, 1), (65, 2), (200, 5), (4097, 66)])
def test_a_join_of_very_many_is_one_of_joins(count: int, joins: int) -> None:
    s = Sketch()
    parts = [s.input(2, 1 + n % 3) for n in range(count)]
    result = check(s.graph(s.emit("Concat", *parts, axis=1)), part_concats, drop_dead, want={"Concat": joins})
    assert max(len(item.inputs) for item in result.nodes) <= MOST_OPERANDS


def test_rewriting_twice_changes_nothing_more() -> None:
    s = Sketch()
    x = batch_norm(s, s.conv(s.input(1, 4, 6, 6), 6, pad=1))
    y = s.emit("Softmax", s.emit("Flatten", s.emit("GlobalAveragePool", x), axis=1), axis=1, flatten=False)
    once = rewrite_graph(s.graph(y))
    assert str(rewrite_graph(once)) == str(once)


def test_names_of_the_model_survive() -> None:
    s = Sketch()
    s.origin = ("the_conv",)
    x = s.conv(s.input(1, 4, 6, 6), 6)
    s.origin = ("the_norm",)
    result = rewrite_graph(s.graph(batch_norm(s, x)))
    assert [item.origin for item in result.nodes] == [("the_conv", "the_norm")]


def test_a_broken_graph_is_found() -> None:
    s = Sketch()
    x = s.input(2, 3)
    graph = s.graph(s.emit("Relu", s.emit("Exp", x)))
    for broken in (
        graph.replace(nodes=graph.nodes[::-1]),
        graph.replace(nodes=graph.nodes[:1]),
        retyped(graph),
    ):
        with pytest.raises(InternalError):
            verify(broken)


def retyped(graph: Graph) -> Graph:
    first, *rest = graph.nodes
    wrong = Value(first.output.id, TensorType(F32, (9,)))
    return graph.replace(nodes=[Node(first.op, first.inputs, (wrong,), first.attrs), *rest])


def test_the_text_of_a_graph_is_stable_and_complete() -> None:
    s = Sketch()
    s.origin = ('a "name"\n',)
    text = str(s.graph(s.emit("Add", s.input(2, 3), s.constant(np.asarray(2, np.float32)))))
    assert text.splitlines() == [
        "graph",
        '  input  %0: f32[2,3]  # "x0"',
        "  const  %1: f32[] = 2.0",
        '  %2: f32[2,3] = Add(%0, %1)  # "a \\"name\\"\\n"',
        '  output %2  # "y0"',
    ]
