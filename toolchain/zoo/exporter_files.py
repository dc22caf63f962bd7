"""Models that exporters wrote: the networks are tiny, but their nodes are what users bring.

The files in `files/` were made by `tests/exporters/make.py`. Weights of more than a few elements are not in
them: their `doc_string` holds a range, from which a seeded generator draws them. Trees are whole.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from compiler import InternalError
from toolchain.zoo import weights
from toolchain.zoo.builder import Draft, Initializer

FOLDER = Path(__file__).parent / "files"
RANGE = "uniform"
"""First word of the text of a tensor without values, before the two ends of its range."""


def exported_model(network: str, logit_gain: float) -> Draft:
    """The exported model of this name with its weights; `logit_gain` changes none of them."""
    del logit_gain
    path = FOLDER / f"{network}.onnx"
    if not path.is_file():
        raise InternalError("an exported model is not in the package", where=str(path))
    model = onnx.load(path)
    initializers = tuple(_initializer(network, one) for one in model.graph.initializer)
    del model.graph.initializer[:]
    return Draft(model, initializers)


def _initializer(network: str, tensor: onnx.TensorProto) -> Initializer:
    shape = tuple(tensor.dims)
    words = tensor.doc_string.split()
    if words[:1] != [RANGE]:
        values = np.array(numpy_helper.to_array(tensor))
        return Initializer(tensor.name, shape, tensor.data_type, lambda: values)
    name, low, high = tensor.name, float(words[1]), float(words[2])
    return Initializer(
        name, shape, tensor.data_type, lambda: weights.uniform(network, name, shape, low, high)
    )
