"""Verify a library in this process: run it and the reference on the same inputs and compare all outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from compiler.core.diagnostics import BadInputError, TkError
from compiler.core.files import sha256_file
from compiler.core.precision import EXACT, precision_of
from compiler.core.progress import Progress, Steps, silent
from compiler.frontend.functions import check_size
from compiler.frontend.proto import read_model
from compiler.runtime.specs import SMALL, TensorSpec
from compiler.runtime.tensors import numpy_dtype
from compiler.verify.compare import Array, compare, worst_of
from compiler.verify.device import load_anywhere
from compiler.verify.inputs import read_feeds
from compiler.verify.labels import in_numbers
from compiler.verify.reference import Reference, make_reference
from compiler.verify.report import Comparison, VerifyReport, VerifyRequest
from compiler.verify.sizes import sizes_of
from compiler.verify.tolerance import reduction_length, tolerance_for


def verify_here(request: VerifyRequest, progress: Progress = silent) -> VerifyReport:
    """Carry out `request`; a crash of the library is a crash of this process (see isolate.verify_library).

    `progress` is told of the runs that are done. Raises BadInputError if the library or model cannot be read
    or they do not belong together.
    """
    proto = checked_model(request.model)
    reference, notes = make_reference(request.model, request.reference)
    library, model_digest = load_anywhere(request.library, device=request.device), sha256_file(request.model)
    if library.manifest.get("model_sha256", model_digest) != model_digest:
        notes = (
            *notes,
            "the library was made from another model file, or from this one before it was changed",
        )
    context = library.context(request.threads)
    sizes = sizes_of(library.manifest, library.inputs, request.dims, request.shapes)
    count = request.runs or sizes.tries
    feeds_of = partial(read_feeds, library.inputs, request.inputs, request.seed, sizes=sizes)
    length = max(_length(proto, feeds_of(run)) for run in {0, count - 1})
    bound = bound_arrays(proto, request.binds)
    precision = precision_of(library.manifest)
    if precision != EXACT and request.tolerance is None:
        note = f"compiled with --precision {precision}: the tolerance of f32 is that of factors so rounded"
        notes = (*notes, note)
    outputs: tuple[Comparison, ...] = ()
    selections: tuple[Comparison, ...] | None = None
    done = Steps(progress, "runs", count)
    for run in range(count):
        feeds = feeds_of(run)
        found = reference_outputs(reference, {**feeds, **bound}, request)
        expected = in_numbers(found, library.manifest, proto)
        actual = context.run(feeds, out=poisoned(library.outputs, library.output_shapes(feeds)))
        compared = compare_outputs(actual, expected, length, request.tolerance, precision=precision)
        if selections != () and not all(one.passed for one in compared):
            from compiler.verify.selections import compare_selections  # the compiler, needed for this alone

            try:
                steps = compare_selections(request, library, feeds, bound, actual, length, progress)
            except TkError as error:  # that outputs differ is worth more than why
                steps, notes = (), (*notes, f"not compared from the library's own values: {error.what}")
            selections = worst_of((*(selections or ()), *steps)) if steps else ()
        outputs = worst_of((*outputs, *compared))
        done.advance()
    layers: tuple[Comparison, ...] = ()
    if request.layers:
        from compiler.verify.layers import compare_layers  # the whole compiler, needed for this alone

        layers = compare_layers(request, library, feeds_of(0), bound, length, progress)
    return VerifyReport(
        library=request.library,
        model=request.model,
        reference=reference.name,
        seed=request.seed,
        runs=count,
        threads=context.threads,
        reduction_length=length,
        outputs=outputs,
        layers=layers,
        selections=selections or (),
        notes=notes,
        device=library.device,
    )


def _length(proto: onnx.ModelProto, feeds: Mapping[str, Array]) -> int:
    return reduction_length(proto, {name: array.shape for name, array in feeds.items()})


def compare_outputs(
    actual: Mapping[str, Array],
    expected: Mapping[str, Array],
    length: int,
    tolerance: float | None,
    *,
    precision: str = EXACT,
) -> list[Comparison]:
    """Compare all outputs of the library; raises BadInputError if the reference has others.

    precision: what factors of f32 may have been rounded to.
    """
    if missing := [name for name in actual if name not in expected]:
        raise BadInputError(
            f"the model has no output `{missing[0]}`",
            why="the library was made from another model",
            hint="give the ONNX file that the library was compiled from",
        )
    return [
        compare(
            name, array, expected[name], _tolerance(expected[name], length, tolerance, precision=precision)
        )
        for name, array in actual.items()
    ]


def poisoned(
    outputs: Sequence[TensorSpec], shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})
) -> dict[str, Array]:
    """Output arrays full of values that no result has, so that an element that is never written is found.

    shapes: where they are not the largest. Memory fresh from the system is zero, and zero is often right.
    """
    arrays = {
        one.name: np.empty(shapes.get(one.name, one.largest_shape), numpy_dtype(one.dtype)) for one in outputs
    }
    for array in arrays.values():
        if array.dtype.kind == "b":
            array[...] = True
        elif array.dtype.kind in "iu":
            array.fill(np.iinfo(array.dtype).max)
        elif array.dtype.name in SMALL:
            array.view(np.uint8).fill(1)  # the least above 0 that it has; none of its values is out of place
        else:
            array.fill(np.nan)
    return arrays


def bound_arrays(proto: onnx.ModelProto, binds: Mapping[str, object]) -> dict[str, Array]:
    """Values of inputs that were fixed when compiling, in the element types that the model declares."""
    types = {one.name: one.type.tensor_type.elem_type for one in proto.graph.input}
    return {
        name: np.asarray(value, onnx.helper.tensor_dtype_to_np_dtype(types[name]))
        for name, value in binds.items()
        if name in types
    }


def checked_model(model: Path) -> onnx.ModelProto:
    """The model without its external data; raises BadInputError for a file that no reference should see."""
    proto = read_model(model)
    check_size(proto, str(model))
    return proto


def reference_outputs(
    reference: Reference, feeds: Mapping[str, Array], request: VerifyRequest
) -> dict[str, Array]:
    """Run the reference; its complaints, of whatever class, are about model or inputs."""
    try:
        return reference.run(feeds)
    except Exception as error:
        raise BadInputError(
            f"{reference.name} cannot run the model",
            where=str(request.model),
            why=str(error).strip().partition("\n")[0],
            hint="inputs fixed with `--bind` must be given here too; `--reference` chooses another reference",
        ) from error


def _tolerance(
    expected: np.ndarray[Any, np.dtype[Any]], length: int, given: float | None, *, precision: str
) -> float:
    return tolerance_for(expected.dtype, length, precision=precision) if given is None else given
