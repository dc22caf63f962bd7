"""A library once more with values between its kernels as outputs, since it keeps none of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from compiler import compile_model
from compiler.core.precision import precision_of
from compiler.core.progress import Progress
from compiler.reports import CompileOptions
from compiler.runtime.loader import Model
from compiler.runtime.tensors import Array
from compiler.verify.device import load_anywhere
from compiler.verify.foreign import ForeignModel
from compiler.verify.report import VerifyRequest

_EMBED_LIMIT_BYTES = 1 << 30


def run_exposed(
    request: VerifyRequest,
    library: Model | ForeignModel,
    model: Path,
    feeds: Mapping[str, Array],
    progress: Progress,
) -> tuple[dict[str, Array], Mapping[str, Any]]:
    """All outputs of a model with more outputs, compiled as the library was, and the manifest.

    Most kernels come from the cache. `progress` is told of the compile, which takes most of the time.
    """
    made = library.manifest
    options = CompileOptions(
        output=model.with_suffix(".so"),
        target=str(made["target"]),
        arch=str(made["arch"]),
        precision=precision_of(made),
        shapes={one.name: feeds[one.name].shape for one in library.inputs},
        binds=request.binds,
        without=tuple(made.get("without", ())),
        conservative=tuple(made.get("conservative", ())),
        limits=made.get("limits", {}),
    )
    compile_model(model, options, progress=progress)
    progress("values between kernels", 0, 0)
    with (
        load_anywhere(options.output, device=request.device) as exposed,
        exposed.context(request.threads) as context,
    ):
        return context.run(feeds), exposed.manifest


def write_exposed(path: Path, names: Sequence[str], directory: Path) -> Path:
    """The model with these values as further outputs, in `directory`."""
    model = onnx.load(path)
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    return write_whole(model, directory / "model.onnx")


def write_whole(model: onnx.ModelProto, path: Path) -> Path:
    """Write a model; large constants beside it, as protobuf has its limit."""
    bulky = sum(len(one.raw_data) for one in model.graph.initializer) > _EMBED_LIMIT_BYTES
    onnx.save_model(model, path, save_as_external_data=bulky, location=f"{path.stem}.data")
    return path
