"""Import of a model whose batch is left free: one sample of it, after a proof that samples are separate.

How extents become symbolic: decision 021.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_model
from compiler.frontend.open_dims import OpenDimensionsError, OpenInput, batch_name
from compiler.frontend.tensors import LIMIT_BYTES
from compiler.graph.ir import Batch, Graph
from compiler.graph.rewrites import canonical
from compiler.graph.samples import NotSeparateError, check_samples
from compiler.stages.job import CompileJob

_LARGEST = 1 << 16


def import_free_batch(job: CompileJob, error: OpenDimensionsError) -> Graph:
    """One sample of the model of which `error` says what is open.

    Raises `error`, with the reason, where this is more than a batch, or where samples are not separate.
    """
    name = batch_name(error.inputs)
    if name is None:
        raise error
    if job.target.device is not None:
        raise OpenDimensionsError(
            error.inputs, error.where, "kernels of devices have fixed extents"
        ) from error
    graph_of = partial(_import, job, error.inputs)
    one = graph_of(1)
    largest = _largest(one)
    expected = canonical(one)
    try:
        for count in (2, largest):
            check_samples(expected, canonical(graph_of(count)), count)
    except NotSeparateError as found:
        raise OpenDimensionsError(error.inputs, error.where, str(found)) from found
    except BadInputError as found:  # fine for one sample
        raise OpenDimensionsError(error.inputs, error.where, f"{found.what}: {found.why}") from found
    return replace(one, batch=Batch(name, largest))


def _largest(one: Graph) -> int:
    """As many samples as no tensor becomes too large for."""
    sizes = [value.type.bytes for value in (*one.inputs, *one.producers)]
    return max(2, min(_LARGEST, LIMIT_BYTES // max(sizes, default=1)))


def _import(job: CompileJob, inputs: Sequence[OpenInput], count: int) -> Graph:
    """The model for `count` samples."""
    options = job.options
    shapes: dict[str, Sequence[int]] = dict(options.shapes)
    dims: dict[str, int] = dict(options.dims)
    for one in inputs:
        first, *others = one.declared or ()
        if first:
            dims[str(first)] = count
        else:
            shapes[one.name] = (count, *(int(extent) for extent in others))
    # Binds are objects in options, which are read without numpy.
    binds: Mapping[str, object] = options.binds
    return import_model(job.model, shapes, binds, job.external, dims)  # type: ignore[arg-type]
