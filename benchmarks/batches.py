"""Networks of the zoo for several images at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from support import model_path

from compiler.core.files import write_atomic


def batched_path(name: str, batch: int, directory: Path) -> Path:
    """The network's ONNX file for a batch, made from the one for a single image when it is older."""
    single = model_path(name, directory)
    if batch == 1:
        return single
    path = directory / f"{name}-batch{batch}.onnx"
    if not path.exists() or path.stat().st_mtime < single.stat().st_mtime:
        write_atomic(path, batched(onnx.load(single), batch).SerializeToString(deterministic=True))
    return path


def batched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """A copy for `batch` images at a time, of a network whose inputs have a batch of 1 in front.

    Shapes with 1 in front that constants give to Reshape take the batch, too. Raises ValueError where
    another batch does not come out.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.value_info[:]
    constants = {one.name for one in changed.graph.initializer}  # old models list them among the inputs
    for value in (*changed.graph.input, *changed.graph.output):
        if value.name in constants:
            continue
        value.type.tensor_type.shape.dim[0].dim_value = batch
    targets = {node.input[1] for node in changed.graph.node if node.op_type == "Reshape"}
    for constant in changed.graph.initializer:
        shape = numpy_helper.to_array(constant) if constant.name in targets else np.zeros(0)
        if shape.size and shape[0] == 1:
            constant.CopyFrom(numpy_helper.from_array(np.array([batch, *shape[1:]]), constant.name))
    try:
        onnx.shape_inference.infer_shapes(changed, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise ValueError(f"{model.graph.name} does not take a batch of {batch}: {error}") from error
    return changed
