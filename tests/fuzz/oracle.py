"""What a graph's outputs should be: by onnxruntime, by ONNX's reference evaluator, and how far rounding may
move them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.fuzz.grow import BF16, F8, F16, F32, F64, Array, code, type_name

if TYPE_CHECKING:
    from tests.fuzz.graphs import FuzzGraph

Outputs = dict[str, Array]
Oracle = Callable[[onnx.ModelProto, Sequence[Mapping[str, Array]]], "list[Outputs] | str"]
_NOISY = {F32: 2.0**-23, F64: 2.0**-52, F16: 2.0**-10, BF16: 2.0**-7}
"""How much each intermediate of a type is moved: two units of roundoff, up or down."""


_CODES = {type_name(kind): kind for kind in F8}
"""Types whose elements onnxruntime gives as their codes."""


def by_onnxruntime(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Outputs] | str:
    """Outputs of each run, or why there are none."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        types = {item.name: _CODES.get(item.type) for item in session.get_outputs()}
        runs = [session.run(list(types), dict(one)) for one in feeds]
    except Exception as error:  # noqa: BLE001 - it has no common class for what it lacks
        return f"onnxruntime: {_line(error)}"
    return [
        {name: array.view(types[name] or array.dtype) for name, array in zip(types, run, strict=True)}
        for run in runs
    ]


_WRONG = {
    "Loop": "stacks results whose first extent is 1 without that axis",
    "GlobalMaxPool": "leaves axes over beyond two of space",
    "LRN": "takes other neighbours",
    "MaxPool": "takes other windows where pads differ",
}
"""Operators that ONNX's evaluator does not do as the standard says; alone, with onnxruntime, they have an
oracle."""
_WRONG_BEFORE_13 = dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), "takes one axis, not all from it on")
_CANCELS = frozenset(["BiasGelu", "FastGelu", "Gelu"])
"""Operators that add about 1 and -1 far out: what rounding makes of it is of the operand's size, not of the
result's."""


def by_reference(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Outputs] | str:
    """The same by ONNX's own evaluator."""
    opset = next(one.version for one in proto.opset_import if one.domain in ("", "ai.onnx"))
    known = _WRONG | (_WRONG_BEFORE_13 if opset < 13 else {})
    if wrong := known.keys() & {node.op_type for node in proto.graph.node}:
        return "; ".join(f"reference: {name} {known[name]}" for name in sorted(wrong))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = ReferenceEvaluator(proto)
            made = [evaluator.run(None, dict(one)) for one in feeds]
    except Exception as error:  # noqa: BLE001 - numpy's, mostly
        return f"reference: {type(error).__name__}: {_line(error)}"
    return [
        {name: np.asarray(one) for name, one in zip(evaluator.output_names, run, strict=True)} for run in made
    ]


def by_nodes(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Outputs] | str:
    """The same node by node: each by onnxruntime where it has the operator in these types, else by the
    evaluator."""
    runs = []
    for one in feeds:
        known = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer} | dict(one)
        for node in proto.graph.node:
            made = _of_node(proto, node, known)
            if isinstance(made, str):
                return f"{node.op_type}: {made}"
            known |= made
        runs.append({item.name: known[item.name] for item in proto.graph.output})
    return runs


def _of_node(proto: onnx.ModelProto, node: onnx.NodeProto, known: Mapping[str, Array]) -> Outputs | str:
    names = [name for name in dict.fromkeys((*node.input, *_captured(node))) if name in known]
    inputs = [
        helper.make_tensor_value_info(name, code(known[name].dtype), known[name].shape) for name in names
    ]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    single = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
    given = [{name: known[name] for name in names}]
    reasons = []
    for oracle in (by_onnxruntime, by_reference):
        made = oracle(single, given)
        if not isinstance(made, str):
            return made[0]
        reasons.append(made)
    return "; ".join(reasons)


def _captured(node: onnx.NodeProto) -> list[str]:
    """Names that subgraphs read."""
    graphs = [item.g for item in node.attribute if item.HasField("g")]
    return [name for graph in graphs for inner in graph.node for name in inner.input]


def by_wider(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> list[Outputs] | str:
    """A model with bf16, computed in f32: other runtimes lack it, and numpy keeps sums in it."""
    wide = [{name: _widened(array) for name, array in one.items()} for one in feeds]
    reasons = []
    for oracle in (by_onnxruntime, by_reference, by_nodes):
        made = oracle(_in_f32(proto), wide)
        if not isinstance(made, str):
            kinds = types_of(proto)
            return [
                {
                    name: array.astype(BF16) if kinds.get(name) == BF16 else array
                    for name, array in run.items()
                }
                for run in made
            ]
        reasons.append(made)
    return "; ".join(reasons)


def runs_at_all(proto: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> bool:
    """Whether onnxruntime, which looks at all shapes, runs a model; with f32 for bf16, as it lacks that."""
    if has_bf16(proto):
        proto, feeds = _in_f32(proto), [{name: _widened(one) for name, one in run.items()} for run in feeds]
    return not isinstance(by_onnxruntime(proto, feeds), str)


def has_bf16(proto: onnx.ModelProto) -> bool:
    return BF16 in types_of(proto).values()


def types_of(proto: onnx.ModelProto) -> dict[str, np.dtype[Any]]:
    """Element types of all values, as far as onnx infers them."""
    graph = onnx.shape_inference.infer_shapes(proto).graph
    kinds = {one.name: one.data_type for one in graph.initializer}
    for one in (*graph.input, *graph.value_info, *graph.output):
        kinds[one.name] = one.type.tensor_type.elem_type
    return {name: np.dtype(helper.tensor_dtype_to_np_dtype(kind)) for name, kind in kinds.items() if kind}


def _widened(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype == BF16 else array


def _in_f32(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with f32 in place of bf16; what each node makes is rounded to it still."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for kind in ("node", "initializer", "value_info"):
        made.graph.ClearField(kind)
    made.graph.initializer.extend(
        numpy_helper.from_array(_widened(numpy_helper.to_array(one)), one.name)
        for one in proto.graph.initializer
    )
    for one in (*made.graph.input, *made.graph.output):
        if one.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
            one.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    kinds = types_of(proto)
    for node in proto.graph.node:
        copy = made.graph.node.add()
        copy.CopyFrom(node)
        for at, name in enumerate(node.output):
            if kinds.get(name) == BF16:
                made.graph.node.extend(_rounded(copy, at, name))
    return made


def _rounded(node: onnx.NodeProto, at: int, name: str) -> list[onnx.NodeProto]:
    """Nodes after one, which round a result of it to bf16; its name is that of the last one."""
    casts = node.op_type == "Cast"  # from any type in one step
    node.output[at] = f"{name}_{'rounded' if casts else 'wide'}"
    back = helper.make_node("Cast", [f"{name}_rounded"], [name], to=onnx.TensorProto.FLOAT)
    if casts:
        return [back]
    to = onnx.TensorProto.BFLOAT16
    return [helper.make_node("Cast", [f"{name}_wide"], [f"{name}_rounded"], to=to), back]


@dataclass(frozen=True)
class Expected:
    """What each oracle that can run a graph makes of it, in each run."""

    made: Mapping[Oracle, Sequence[Outputs]]


def expected_of(graph: FuzzGraph) -> Expected | str:
    """What oracles say of a graph; without any, why."""
    oracles = (by_wider,) if has_bf16(graph.proto) else (by_onnxruntime, by_reference)
    asked: dict[Oracle, list[Outputs] | str] = {one: one(graph.proto, graph.feeds) for one in oracles}
    made: dict[Oracle, Sequence[Outputs]] = {
        oracle: one for oracle, one in asked.items() if not isinstance(one, str)
    }
    if made:
        return Expected(made)
    by_parts = by_nodes(graph.proto, graph.feeds)
    return f"no oracle: {by_parts}" if isinstance(by_parts, str) else Expected({by_nodes: by_parts})


def moved(proto: onnx.ModelProto, feeds: Mapping[str, Array], seed: int) -> onnx.ModelProto | None:
    """The model with every float between nodes moved by about a rounding error; None where types are not
    known."""
    try:
        typed = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    except Exception:  # noqa: BLE001 - whatever onnx says of a model
        return None
    rng = np.random.default_rng([seed, 0x6E])
    outputs = {one.name for one in proto.graph.output}
    kinds = {
        one.name: np.dtype(helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type))
        for one in (*typed.value_info, *typed.output, *typed.input)
        if one.type.tensor_type.elem_type
    }
    shapes = {
        one.name: tuple(dim.dim_value for dim in one.type.tensor_type.shape.dim)
        for one in (*typed.value_info, *typed.output)
    }
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:]
    names: dict[str, str] = {}

    def move(name: str, kind: np.dtype[Any], shape: tuple[int, ...]) -> None:
        signs = rng.choice((-1.0, 0.0, 1.0), shape)
        factor = f"{name}_by"
        made.graph.initializer.append(
            numpy_helper.from_array((1 + signs * _NOISY[kind]).astype(kind), factor)
        )
        names[name] = f"{name}_moved"
        made.graph.node.append(helper.make_node("Mul", [name, factor], [names[name]]))

    def shift(node: onnx.NodeProto, kind: np.dtype[Any]) -> None:
        name, by = node.output[0], f"{node.output[0]}_shift"
        shape = tuple(n or 1 for n in shapes.get(name, ()))
        signs = rng.choice((-1.0, 0.0, 1.0), shape)
        made.graph.initializer.append(numpy_helper.from_array((signs * _NOISY[kind]).astype(kind), by))
        node.output[0] = f"{name}_far"
        made.graph.node.append(helper.make_node("Mul", [node.input[0], by], [f"{name}_off"]))
        made.graph.node.append(helper.make_node("Add", [f"{name}_far", f"{name}_off"], [name]))

    for name, array in feeds.items():
        if array.dtype in _NOISY:
            move(name, array.dtype, array.shape)
    for node in proto.graph.node:
        copy = made.graph.node.add()
        copy.CopyFrom(node)
        copy.input[:] = [names.get(name, name) for name in node.input]
        if node.op_type in _CANCELS and kinds.get(node.output[0]) in _NOISY:
            shift(copy, kinds[node.output[0]])
        for name in node.output:
            if kinds.get(name) in _NOISY and name not in outputs:
                # Of an open dimension, which counts 0 here, all have the same factors.
                move(name, kinds[name], tuple(n or 1 for n in shapes.get(name, ())))
    return made


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
