"""Compare behind operators that select by value, where rounding may select otherwise.

TopK, ArgMax, non-maximum suppression and the like ask which of two values is larger. Of values that lie
closer together than rounding takes them, a right library may select others than the reference: rows of a
detector change places. Then each step is compared from the library's own values: what is selected from must
be within tolerance, and the outputs must be those that the reference makes of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from compiler.core.files import private_directory
from compiler.core.precision import precision_of
from compiler.core.progress import Progress
from compiler.frontend.proto import read_model
from compiler.runtime.loader import Model
from compiler.runtime.tensors import Array
from compiler.verify.check import compare_outputs, reference_outputs
from compiler.verify.exposed import run_exposed, write_exposed, write_whole
from compiler.verify.foreign import ForeignModel
from compiler.verify.labels import in_numbers
from compiler.verify.reference import make_reference
from compiler.verify.report import Comparison, VerifyRequest

SELECTS_FROM = {"TopK": 1, "ArgMax": 1, "ArgMin": 1, "Hardmax": 1, "NonMaxSuppression": 2}
"""Operators that select by value, and how many of their first operands that value is in."""
_MADE = "tk made of the values before: "


def selected_from(model: onnx.ModelProto) -> tuple[str, ...]:
    """The values that operators of a model select by, but for its inputs and constants, in order."""
    made = {name for node in model.graph.node if node.op_type != "Constant" for name in node.output}
    read = (
        name
        for node in model.graph.node
        for name in node.input[: SELECTS_FROM.get(node.op_type, 0)]
        if node.domain in ("", "ai.onnx")
    )
    return tuple(dict.fromkeys(name for name in read if name in made))


def compare_selections(
    request: VerifyRequest,
    library: Model | ForeignModel,
    feeds: Mapping[str, Array],
    bound: Mapping[str, Array],
    outputs: Mapping[str, Array],
    length: int,
    progress: Progress,
) -> tuple[Comparison, ...]:
    """What the library selects from, and its outputs, each beside the reference's from the values before.

    outputs: the library's for `feeds`. Nothing where the model selects nothing by value, or where the same
    library with these values as outputs computes other outputs, so that they say nothing about this one.
    """
    proto = read_model(request.model)
    names = selected_from(proto)
    if not names:
        return ()
    with private_directory("tk-selections") as directory:
        present = {one.name for one in proto.graph.output}
        more = [name for name in names if name not in present]
        model = write_exposed(request.model, more, directory)
        actual, manifest = run_exposed(request, library, model, feeds, progress)
        if not all(
            np.array_equal(actual[name], outputs[name], equal_nan=_may_hold_nan(outputs[name]))
            for name in outputs
        ):
            return ()
        given = {name: actual[name] for name in names}
        reference, _ = make_reference(_write_cut(request.model, given, directory), request.reference)
        found = reference_outputs(reference, {**feeds, **bound, **given}, request)
    made = {name.removeprefix(_MADE): array for name, array in found.items()}
    kept = {name: actual[name] for name in (*names, *outputs)}
    precision = precision_of(library.manifest)
    return tuple(
        compare_outputs(
            kept, in_numbers(made, manifest, proto), length, request.tolerance, precision=precision
        )
    )


def _may_hold_nan(array: Array) -> bool:
    return array.dtype.kind == "f"


def _write_cut(path: Path, given: Mapping[str, Array], directory: Path) -> Path:
    """The model with inputs in place of these values; what the model makes of them itself are outputs."""
    model = onnx.load(path)
    for node in model.graph.node:
        node.output[:] = [_MADE + name if name in given else name for name in node.output]
    outputs = [one for one in model.graph.output if one.name not in given]
    made = (onnx.helper.make_empty_tensor_value_info(_MADE + name) for name in given)
    del model.graph.output[:]
    model.graph.output.extend((*outputs, *made))
    known = [one for one in model.graph.value_info if one.name not in given]
    del model.graph.value_info[:]
    model.graph.value_info.extend(known)
    for name, array in given.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    return write_whole(model, directory / "cut.onnx")
