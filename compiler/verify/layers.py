"""Compare values between kernels: the model again, with every fused kernel's last value as an output.

The library keeps no intermediate values, so the same model is compiled once more with the values at the
library's fusion boundaries as extra outputs; most kernels come from the cache. A kernel that is wrong shows
as the first value that differs.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.core.files import private_directory
from compiler.core.precision import precision_of
from compiler.core.progress import Progress, silent
from compiler.frontend.proto import read_model
from compiler.runtime.loader import Model
from compiler.runtime.tensors import Array
from compiler.verify.boundaries import boundaries
from compiler.verify.check import compare_outputs, reference_outputs
from compiler.verify.exposed import run_exposed, write_exposed
from compiler.verify.foreign import ForeignModel
from compiler.verify.labels import in_numbers
from compiler.verify.reference import make_reference
from compiler.verify.report import Comparison, VerifyRequest
from compiler.verify.sizes import plan_of


def compare_layers(
    request: VerifyRequest,
    library: Model | ForeignModel,
    feeds: Mapping[str, Array],
    bound: Mapping[str, Array],
    length: int,
    progress: Progress = silent,
) -> tuple[Comparison, ...]:
    """One comparison for each kernel whose result has a name in the ONNX file, in order of execution.

    `progress` is told of the compile, which takes most of the time.
    """
    proto = read_model(request.model)
    outputs = {one.name for one in proto.graph.output}
    kernels = boundaries(proto, plan_of(library.manifest, library.inputs, feeds))
    names = [one.value for one in kernels if one.value not in outputs]
    with private_directory("tk-layers") as directory:
        model = write_exposed(request.model, names, directory)
        actual, manifest = run_exposed(request, library, model, feeds, progress)
        reference, _ = make_reference(model, request.reference)
        expected = in_numbers(reference_outputs(reference, {**feeds, **bound}, request), manifest, proto)
    kept = {name: actual[name] for name in names if name in actual}
    return tuple(
        compare_outputs(kept, expected, length, request.tolerance, precision=precision_of(library.manifest))
    )
