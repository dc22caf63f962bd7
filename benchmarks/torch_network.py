"""An ONNX network of plain convolutions as a module of PyTorch, for measurements beside it.

Takes the operators of ResNet-50, VGG-19 and SqueezeNet and refuses others by name. The module is a graph of
`torch.fx`, so that `torch.compile` sees each operator and no Python around it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional

Attributes = Mapping[str, Any]
Emit = Callable[[Any, Sequence[Any], Attributes], Any]


def torch_network(path: Path, *, half: bool = False) -> torch.fx.GraphModule:
    """The network as a module on the CPU; a dictionary of outputs by name comes out.

    Inputs are positional, in the model's order. `half`: everything between them and the outputs is float16.
    Raises ValueError for an operator or a form of one that the
    table lacks.
    """
    model = onnx.load(path)
    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    graph, root, values = torch.fx.Graph(), torch.nn.Module(), {"": None}
    constants = {one.name for one in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in constants]
    for index, value in enumerate(inputs):
        given = graph.placeholder(f"x{index}")
        values[value.name] = graph.call_method("half", (given,)) if half else given
    for index, constant in enumerate(model.graph.initializer):
        array = np.array(numpy_helper.to_array(constant))
        if array.dtype == np.int64:  # a shape
            values[constant.name] = array.tolist()
            continue
        kept = torch.from_numpy(array)
        root.register_buffer(f"c{index}", kept.half() if half else kept)
        values[constant.name] = graph.get_attr(f"c{index}")
    for node in model.graph.node:
        if node.op_type not in _EMITTERS:
            raise ValueError(f"no {node.op_type} among the operators of benchmarks/torch_network.py")
        attributes = {"opset": opset, **{one.name: helper.get_attribute_value(one) for one in node.attribute}}
        operands = [values[name] for name in node.input]
        values[node.output[0]] = _EMITTERS[node.op_type](graph, operands, attributes)
    outputs = {value.name: values[value.name] for value in model.graph.output}
    if half:
        outputs = {name: graph.call_method("float", (value,)) for name, value in outputs.items()}
    graph.output(outputs)
    return torch.fx.GraphModule(root, graph).eval()


def search_by_threads() -> None:
    """Let `torch.compile` compile the candidates of its search in threads of this process.

    Processes are the default. With them a search timed its candidates for 7 to 30 seconds a product, with
    threads for one (PyTorch 2.11): as if what the processes compiled were compiled again, one by one.
    """
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.use_process_pool = classmethod(lambda _: False)


def _pads(attributes: Attributes) -> tuple[int, int]:
    """Padding in front and behind, equal in each direction."""
    auto = attributes.get("auto_pad", b"NOTSET")
    top, left, bottom, right = attributes.get("pads", (0, 0, 0, 0))
    if auto != b"NOTSET" or (top, left) != (bottom, right):
        raise ValueError("padding that differs in front and behind is not in benchmarks/torch_network.py")
    return top, left


def _window(attributes: Attributes) -> dict[str, Any]:
    return {"stride": tuple(attributes.get("strides", (1, 1))), "padding": _pads(attributes)}


def _conv(graph: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    bias = inputs[2] if len(inputs) > 2 else None
    more = {
        **_window(attributes),
        "dilation": tuple(attributes.get("dilations", (1, 1))),
        "groups": attributes.get("group", 1),
    }
    return graph.call_function(functional.conv2d, (inputs[0], inputs[1], bias), more)


def _normalise(graph: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    data, scale, shift, mean, variance = inputs
    more = {"weight": scale, "bias": shift, "eps": attributes.get("epsilon", 1e-5)}
    return graph.call_function(functional.batch_norm, (data, mean, variance), more)


def _max_pool(graph: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    kernel = tuple(attributes["kernel_shape"])
    more = {**_window(attributes), "ceil_mode": bool(attributes.get("ceil_mode", 0))}
    return graph.call_function(functional.max_pool2d, (inputs[0], kernel), more)


def _average_pool(graph: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    kernel = tuple(attributes["kernel_shape"])
    more = {
        **_window(attributes),
        "ceil_mode": bool(attributes.get("ceil_mode", 0)),
        "count_include_pad": bool(attributes.get("count_include_pad", 0)),
    }
    return graph.call_function(functional.avg_pool2d, (inputs[0], kernel), more)


def _gemm(graph: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    plain = attributes.get("alpha", 1.0) == attributes.get("beta", 1.0) == 1.0
    if not plain or attributes.get("transA", 0) or not attributes.get("transB", 0):
        raise ValueError("only Gemm with a transposed matrix of weights is in benchmarks/torch_network.py")
    return graph.call_function(functional.linear, tuple(inputs))


def _softmax(graph: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    axis = attributes.get("axis", -1 if attributes["opset"] >= 13 else 1)
    if attributes["opset"] >= 13:
        return graph.call_function(torch.softmax, (inputs[0], axis))
    # Before opset 13: over all dimensions from the axis on.
    flat = graph.call_function(torch.flatten, (inputs[0], axis))
    return graph.call_method("view_as", (graph.call_function(torch.softmax, (flat, axis)), inputs[0]))


def _total(graph: Any, inputs: Sequence[Any], _: Attributes) -> Any:
    result = inputs[0]
    for one in inputs[1:]:
        result = graph.call_function(operator.add, (result, one))
    return result


# For each operator what puts it into a graph.
_EMITTERS: Mapping[str, Emit] = MappingProxyType(
    {
        "Conv": _conv,
        "BatchNormalization": _normalise,
        "MaxPool": _max_pool,
        "AveragePool": _average_pool,
        "Gemm": _gemm,
        "Softmax": _softmax,
        "Sum": _total,
        "Add": _total,
        "Dropout": lambda _graph, inputs, _attributes: inputs[0],
        "Relu": lambda graph, inputs, _: graph.call_function(functional.relu, (inputs[0],)),
        "Concat": lambda graph, inputs, attributes: graph.call_function(
            torch.cat, (list(inputs), attributes["axis"])
        ),
        "Reshape": lambda graph, inputs, _: graph.call_function(torch.reshape, tuple(inputs)),
        "GlobalAveragePool": lambda graph, inputs, _: graph.call_function(
            functional.adaptive_avg_pool2d, (inputs[0], 1)
        ),
    }
)
