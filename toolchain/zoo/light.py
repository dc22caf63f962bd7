"""The nine `light` architectures of the onnx package, with weights.

The package ships the graphs with every weight replaced by a constant fill (`ConstantOfShape` over a shape
that is an initializer and an input) or, for the small ones, as trained. Here each becomes a seeded constant
that suits the node which reads it, and the data stays as the only input.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler import HostError
from toolchain.zoo import weights
from toolchain.zoo.builder import Draft, Initializer

# Shape-only nodes between a weight and the node that gives it its meaning.
_RESHAPING = ("Reshape", "Unsqueeze", "Identity")
_POINTWISE = ("BatchNormalization", "Mul", "Add", "Dropout", "Identity")
_BATCH_NORM_RANGES = {1: (0.8, 1.2), 2: (-0.1, 0.1), 3: (-0.1, 0.1), 4: (0.7, 1.3)}
# The scale of a normalisation that feeds a residual sum: keeps the sum's variance near 1 through many blocks.
_RESIDUAL_SCALE = (0.4, 0.6)


def build(network: str, file: str, logit_gain: float) -> Draft:
    """The network in `onnx/backend/test/data/light/<file>` with seeded He-scaled weights.

    Raises HostError when the installed onnx package does not ship the file.
    """
    model = _load(file)
    graph = _Graph(model, network, logit_gain)
    initializers = graph.initializers()
    kept = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    shipped = {one.name for one in model.graph.initializer}
    for index, node in enumerate(kept):
        node.name = f"{node.op_type}_{index}"
    inputs = [one for one in model.graph.input if one.name not in shipped]
    del model.graph.node[:], model.graph.initializer[:], model.graph.input[:], model.graph.value_info[:]
    model.graph.node.extend(kept)
    model.graph.input.extend(inputs)
    model.graph.name = network
    # Since IR version 4 a constant need not be listed as an input.
    model.ir_version = 4
    model.producer_name = "tk zoo"
    return Draft(model, tuple(initializers))


def _load(file: str) -> onnx.ModelProto:
    path = Path(onnx.__file__).parent / "backend/test/data/light" / file
    if not path.is_file():
        raise HostError(
            "the installed onnx package lacks a network that it used to ship",
            where=str(path),
            why=f"onnx {onnx.__version__}",
            hint="install onnx 1.23 or another version whose wheel holds backend/test/data/light",
        )
    return onnx.load(path)


class _Graph:
    """The shipped graph with the look-ups that tell what each constant is for."""

    def __init__(self, model: onnx.ModelProto, network: str, logit_gain: float) -> None:
        self._graph = model.graph
        self._network = network
        self._logit_gain = logit_gain
        self.readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
        for node in model.graph.node:
            for position, name in enumerate(node.input):
                self.readers.setdefault(name, []).append((node, position))

    def initializers(self) -> list[Initializer]:
        """All constants that some node reads: seeded floats, and the shipped integers as they are."""
        values = {one.name: numpy_helper.to_array(one) for one in self._graph.initializer}
        filled = {
            node.output[0]: tuple(int(dim) for dim in values[node.input[0]])
            for node in self._graph.node
            if node.op_type == "ConstantOfShape"
        }
        shapes = {node.input[0] for node in self._graph.node if node.op_type == "ConstantOfShape"}
        result = [self._seeded(name, shape) for name, shape in filled.items()]
        for name, array in values.items():
            if name in shapes or name not in self.readers:
                continue
            if array.dtype == np.float32:
                result.append(self._seeded(name, array.shape))
            else:
                kind = int(helper.np_dtype_to_tensor_dtype(array.dtype))
                result.append(Initializer(name, array.shape, kind, partial(np.copy, array)))
        return result

    def _seeded(self, name: str, shape: tuple[int, ...]) -> Initializer:
        low, high = self._range(name, shape)
        return Initializer(
            name,
            shape,
            onnx.TensorProto.FLOAT,
            lambda: weights.uniform(self._network, name, shape, low, high),
        )

    def _range(self, name: str, shape: tuple[int, ...]) -> tuple[float, float]:
        node, position = self._meaning(name)
        if node.op_type in ("Conv", "Gemm") and position == 1:
            bound = weights.he_bound(math.prod(shape[1:]), self._gain(node))
            return -bound, bound
        if node.op_type == "BatchNormalization":
            if position == 1 and self._next(node.output[0]) == "Sum":
                return _RESIDUAL_SCALE
            return _BATCH_NORM_RANGES[position]
        return (0.8, 1.2) if node.op_type == "Mul" else (-0.1, 0.1)

    def _meaning(self, name: str) -> tuple[onnx.NodeProto, int]:
        node, position = self.readers[name][0]
        while node.op_type in _RESHAPING:
            node, position = self.readers[node.output[0]][0]
        return node, position

    def _next(self, tensor: str) -> str:
        """The kind of the node that first reads `tensor`, or the empty string for a result of the model."""
        readers = self.readers.get(tensor)
        return readers[0][0].op_type if readers else ""

    def _gain(self, node: onnx.NodeProto) -> float:
        """2 before a rectifier (which halves the variance), the network's own at the end, 1 elsewhere."""
        tensor = node.output[0]
        if self._is_last(tensor):
            return self._logit_gain
        while self._next(tensor) in _POINTWISE:
            tensor = self.readers[tensor][0][0].output[0]
        return 2.0 if self._next(tensor) == "Relu" else 1.0

    def _is_last(self, tensor: str) -> bool:
        """Whether no further convolution or dense layer reads from `tensor`."""
        while readers := self.readers.get(tensor):
            if readers[0][0].op_type in ("Conv", "Gemm", "Concat", "Sum"):
                return False
            tensor = readers[0][0].output[0]
        return True
