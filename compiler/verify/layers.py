"""Compare values between kernels: the model again, with every fused kernel's last value as an output.

The library keeps no intermediate values, so the same model is compiled once more with the values at the
library's fusion boundaries as extra outputs; most kernels come from the cache. A kernel that is wrong shows
as the first value that differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from compiler import compile_model
from compiler.core.files import private_directory
from compiler.core.precision import precision_of
from compiler.core.progress import Progress, silent
from compiler.frontend.proto import read_model
from compiler.reports import CompileOptions
from compiler.runtime.loader import Model
from compiler.runtime.tensors import Array
from compiler.verify.boundaries import boundaries
from compiler.verify.check import compare_outputs, reference_outputs
from compiler.verify.device import load_anywhere
from compiler.verify.foreign import ForeignModel
from compiler.verify.labels import in_numbers
from compiler.verify.reference import make_reference
from compiler.verify.report import Comparison, VerifyRequest
from compiler.verify.sizes import plan_of

_EMBED_LIMIT_BYTES = 1 << 30


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
        model = _write_exposed(request.model, names, directory)
        options = CompileOptions(
            output=directory / "layers.so",
            target=str(library.manifest["target"]),
            arch=str(library.manifest["arch"]),
            precision=precision_of(library.manifest),
            shapes={one.name: feeds[one.name].shape for one in library.inputs},
            binds=request.binds,
        )
        compile_model(model, options, progress=progress)
        progress("values between kernels", 0, 0)
        with (
            load_anywhere(options.output, device=request.device) as exposed,
            exposed.context(request.threads) as context,
        ):
            actual = context.run(feeds)
            manifest = exposed.manifest
        reference, _ = make_reference(model, request.reference)
        expected = in_numbers(reference_outputs(reference, {**feeds, **bound}, request), manifest, proto)
    kept = {name: actual[name] for name in names if name in actual}
    return tuple(compare_outputs(kept, expected, length, request.tolerance, precision=options.precision))


def _write_exposed(path: Path, names: Sequence[str], directory: Path) -> Path:
    """The model with more outputs, in `directory`; large constants beside it, as protobuf has its limit."""
    model = onnx.load(path)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    written = directory / "model.onnx"
    bulky = sum(len(one.raw_data) for one in model.graph.initializer) > _EMBED_LIMIT_BYTES
    onnx.save_model(model, written, save_as_external_data=bulky, location="model.data")
    return written
