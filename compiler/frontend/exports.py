"""Commands of other programs that make ONNX models: words behind `python`, and the packages they need."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ExampleInput:
    """An input with which a TorchScript program is traced: random numbers, or zeros where it takes integers.

    free: names of dimensions that stay free, by axis.
    """

    name: str
    shape: tuple[int, ...]
    is_integer: bool = False
    free: Mapping[int, str] = field(default_factory=dict)


INPUT = ExampleInput("x", (1, 3, 224, 224))
"""As most networks for images take it: an example in messages."""

EXPORT_NEEDS: Mapping[str, tuple[str, ...]] = {
    "torch-export": ("torch", "onnxscript"),
    "torchscript": ("torch", "onnxscript"),
    "tflite": ("tf2onnx", "tensorflow"),
}
"""Packages by kind of file."""

# torch.export.load falls back to unpickling anything; this variable of PyTorch's takes that from it.
_ONLY_WEIGHTS = 'import os; os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"; import torch; '


def export_words(
    kind: str,
    file: Path,
    onnx: Path,
    inputs: Sequence[ExampleInput] = (INPUT,),
    opset: int | None = None,
) -> tuple[str, ...]:
    """What follows `python` to export `file`, of this kind, to `onnx`; `inputs` are for TorchScript alone."""
    if kind == "tflite":
        version = () if opset is None else ("--opset", str(opset))
        return ("-m", "tf2onnx.convert", "--tflite", str(file), "--output", str(onnx), *version)
    version_text = "" if opset is None else f", opset_version={opset}"
    source, target = json.dumps(str(file)), json.dumps(str(onnx))
    if kind == "torch-export":
        call = f"torch.onnx.export(torch.export.load({source}), f={target}, dynamo=True{version_text})"
        return ("-c", _ONLY_WEIGHTS + call)
    values = "".join(f"{_value(one)}, " for one in inputs)
    names = json.dumps([one.name for one in inputs])
    free = {one.name: dict(one.free) for one in inputs if one.free}
    axes = f", dynamic_axes={free!r}" if free else ""
    call = (
        f"torch.onnx.export(torch.jit.load({source}), ({values.rstrip(' ')}), {target}, "
        f"input_names={names}{axes}, dynamo=False{version_text})"
    )
    return ("-c", _ONLY_WEIGHTS + call)


def _value(one: ExampleInput) -> str:
    shape = ", ".join(map(str, one.shape))
    return f"torch.zeros([{shape}], dtype=torch.int64)" if one.is_integer else f"torch.randn([{shape}])"
