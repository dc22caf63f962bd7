"""A thin layer over `onnx.helper`: nodes with generated names, and initializers made only when written."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from toolchain.zoo import weights

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Initializer:
    """A constant tensor that is computed when the model is written, so that big models need little memory."""

    name: str
    shape: tuple[int, ...]
    data_type: int
    make: Callable[[], Array]

    @property
    def size_bytes(self) -> int:
        """Bytes of the values in row-major order."""
        return math.prod(self.shape) * int(helper.tensor_dtype_to_np_dtype(self.data_type).itemsize)


@dataclass(frozen=True, slots=True)
class Draft:
    """A model without its constants' values: the protobuf and the initializers that belong into it."""

    model: onnx.ModelProto
    initializers: tuple[Initializer, ...]


class Builder:
    """Collects nodes and constants of one network; every method returns the name of the tensor it makes.

    Tensors are NCHW float32. Channel counts are tracked so that layers need only say their output channels.
    """

    def __init__(self, network: str, *, opset: int, ir_version: int) -> None:
        self.network = network
        self.opset = opset
        self.ir_version = ir_version
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._declared: list[onnx.ValueInfoProto] = []
        self._initializers: list[Initializer] = []
        self._channels: dict[str, int] = {}
        self._given: dict[object, str] = {}
        self._count = 0

    def input(
        self,
        name: str,
        shape: Sequence[int | str],
        channels: int | None = None,
        data_type: int = onnx.TensorProto.FLOAT,
    ) -> str:
        """Declare an input; `channels` defaults to the second dimension, which then is no symbol."""
        self._inputs.append(helper.make_tensor_value_info(name, data_type, list(shape)))
        self._channels[name] = int(shape[1]) if channels is None else channels
        return name

    def output(self, name: str, shape: Sequence[int | str], data_type: int = onnx.TensorProto.FLOAT) -> None:
        """Declare an existing tensor as a result of the model."""
        self._outputs.append(helper.make_tensor_value_info(name, data_type, list(shape)))

    def add(
        self, op: str, *inputs: str, name: str = "", channels: int | None = None, **attributes: Any
    ) -> str:
        """Append a node with one output, called `name`; channels default to those of its first input."""
        result = name or f"t{self._count + 1}"
        self._append(op, inputs, [result], channels, attributes)
        return result

    def top(self, x: str, count: str) -> tuple[str, str]:
        """The greatest elements of the last axis, the greatest first, and where they are."""
        results = [f"t{self._count + 1}.{part}" for part in ("values", "places")]
        self._append("TopK", (x, count), results, None, {"axis": -1})
        return results[0], results[1]

    def declare(self, name: str, shape: Sequence[int], data_type: int) -> None:
        """Say what type a tensor inside the model has, where it does not follow from its operands."""
        self._declared.append(helper.make_tensor_value_info(name, data_type, list(shape)))

    def split(self, x: str, parts: int, *, axis: int, **attributes: int) -> tuple[str, ...]:
        """Equal parts of the channels, which lie on `axis`; `attributes` are those of the operator set."""
        results = [f"t{self._count + 1}.{part}" for part in range(parts)]
        self._append("Split", (x,), results, self._channels[x] // parts, {"axis": axis, **attributes})
        return tuple(results)

    def _append(
        self,
        op: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        channels: int | None,
        attributes: Mapping[str, Any],
    ) -> None:
        self._count += 1
        name = f"{op}_{self._count}"
        self._nodes.append(helper.make_node(op, list(inputs), list(outputs), name=name, **attributes))
        found = self._channels.get(inputs[0], 0) if channels is None else channels
        self._channels.update(dict.fromkeys(outputs, found))

    def constant(self, name: str, values: Array) -> str:
        """A constant with given values."""
        kind = int(helper.np_dtype_to_tensor_dtype(values.dtype))
        self._initializers.append(Initializer(name, values.shape, kind, lambda: values))
        return name

    def ints(self, name: str, values: Sequence[int]) -> str:
        """A one-dimensional int64 constant, as shapes and axes are given."""
        return self.constant(name, np.array(values, dtype=np.int64))

    def scalar(self, name: str, value: float) -> str:
        """A float32 constant without dimensions."""
        return self.constant(name, np.array(value, dtype=np.float32))

    def number(self, value: float) -> str:
        """A float32 constant without dimensions, the same one for the same value."""
        return self._once(("number", value), lambda name: self.scalar(name, value))

    def numbers(self, *values: int) -> str:
        """A one-dimensional int64 constant, the same one for the same values."""
        return self._once(values, lambda name: self.ints(name, values))

    def whole(self, value: int) -> str:
        """An int64 constant without dimensions, the same one for the same value."""
        return self._once(("whole", value), lambda name: self.constant(name, np.array(value, dtype=np.int64)))

    def given(self, name: str, values: Array) -> str:
        """A constant of given values, made when it is first asked for by this name."""
        return self._once(name, lambda _: self.constant(name, values))

    def _once(self, key: object, make: Callable[[str], str]) -> str:
        if key not in self._given:
            self._given[key] = make(f"given{len(self._given) + 1}")
        return self._given[key]

    def random(self, name: str, shape: Sequence[int], low: float, high: float) -> str:
        """A seeded float32 constant, uniform in [low, high)."""
        dims = tuple(shape)
        network = self.network
        self._initializers.append(
            Initializer(
                name, dims, onnx.TensorProto.FLOAT, lambda: weights.uniform(network, name, dims, low, high)
            )
        )
        return name

    def he(self, name: str, shape: Sequence[int], fan_in: int, gain: float = 2.0) -> str:
        """A seeded weight with variance gain / fan_in."""
        bound = weights.he_bound(fan_in, gain)
        return self.random(name, shape, -bound, bound)

    def conv(
        self,
        x: str,
        name: str,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        pads: Sequence[int] | int = 0,
        group: int = 1,
        bias: bool = True,
        gain: float = 2.0,
    ) -> str:
        """A square convolution `[channels, in / group, kernel, kernel]`; `pads` is one number or all four."""
        depth = self._channels[x] // group
        inputs = [x, self.he(f"{name}.weight", (channels, depth, kernel, kernel), depth * kernel**2, gain)]
        if bias:
            inputs.append(self.random(f"{name}.bias", (channels,), -0.1, 0.1))
        all_pads = [pads] * 4 if isinstance(pads, int) else list(pads)
        return self.add(
            "Conv",
            *inputs,
            channels=channels,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            pads=all_pads,
            group=group,
        )

    def batch_norm(self, x: str, name: str, *, scale: float = 1.0, epsilon: float = 1e-5) -> str:
        """BatchNormalization with statistics as after training: scale and variance about 1, mean small."""
        shape = (self._channels[x],)
        return self.add(
            "BatchNormalization",
            x,
            self.random(f"{name}.scale", shape, 0.8 * scale, 1.2 * scale),
            self.random(f"{name}.bias", shape, -0.1, 0.1),
            self.random(f"{name}.mean", shape, -0.1, 0.1),
            self.random(f"{name}.var", shape, 0.7, 1.3),
            epsilon=epsilon,
        )

    def gemm(
        self, x: str, name: str, inputs: int, outputs: int, *, gain: float = 2.0, result: str = ""
    ) -> str:
        """A dense layer `[1, inputs] -> [1, outputs]` with bias, its weight stored as [outputs, inputs]."""
        weight = self.he(f"{name}.weight", (outputs, inputs), inputs, gain)
        bias = self.random(f"{name}.bias", (outputs,), -0.1, 0.1)
        return self.add("Gemm", x, weight, bias, name=result, channels=outputs, alpha=1.0, beta=1.0, transB=1)

    def channels(self, x: str) -> int:
        """Channel count of a tensor."""
        return self._channels[x]

    def draft(self) -> Draft:
        """The model so far. Before IR version 4 a constant must also be listed as an input, and is."""
        listed = [
            helper.make_tensor_value_info(one.name, one.data_type, list(one.shape))
            for one in self._initializers
        ]
        inputs = self._inputs + (listed if self.ir_version < 4 else [])
        graph = helper.make_graph(self._nodes, self.network, inputs, self._outputs, value_info=self._declared)
        opsets = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(
            graph, producer_name="tk zoo", opset_imports=opsets, ir_version=self.ir_version
        )
        return Draft(model, tuple(self._initializers))
