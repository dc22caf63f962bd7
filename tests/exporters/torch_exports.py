"""Models by both exporters of PyTorch."""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from tests.exporters import sequences, vision
from toolchain.zoo.exporters import DYNAMO
from toolchain.zoo.record import Network

_MODULES: dict[str, Callable[[], nn.Module]] = {
    "resnet": vision.ResNet,
    "mobilenet": vision.MobileNet,
    "convnext": vision.ConvNeXt,
    "vgg": vision.Vgg,
    "inception": vision.Inception,
    "yolo": vision.Yolo,
    "detr": vision.Detr,
    "pyramid": vision.FeaturePyramid,
    "aligned": vision.Aligned,
    "unet": vision.UNet,
    "deeplab": vision.DeepLab,
    "segformer": vision.SegFormer,
    "swin": vision.Swin,
    "diffusion": vision.DiffusionBlock,
    "latents": vision.Decoder,
    "bert": sequences.Bert,
    "encoder": sequences.Encoder,
    "vit": sequences.Vit,
    "t5": sequences.T5,
    "clip": sequences.Clip,
    "llama-cache": sequences.Llama,
    "gpt2-cache": sequences.Gpt2,
    "lstm": lambda: sequences.Tagger(nn.LSTM),
    "gru": lambda: sequences.Tagger(nn.GRU),
    "rnn": lambda: sequences.Tagger(nn.RNN, 1),
    "mamba": sequences.Mamba,
    "wav2vec": sequences.Wav2Vec,
    "whisper": sequences.Whisper,
    "keywords": sequences.Keywords,
    "temporal": sequences.Temporal,
    "speech": sequences.Speech,
}
_OPSETS = {
    "resnet": 12,
    "vgg": 11,
    "unet": 13,
    "bert": 14,
    "vit": 14,
    "llama-cache": 14,
    "gpt2-cache": 14,
    "yolo": 12,
}
"""Of the older exporter where they are not 17: what files at hand have."""


def make(record: Network) -> onnx.ModelProto:
    """The model of a record, in evaluation, by the exporter that it names."""
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)  # fused operators that no exporter knows
    name = record.name.removeprefix("tiny-").removesuffix("-dynamo")
    module = _MODULES[name]().eval()
    _randomise(module)
    example = tuple(_example(record, shape, dict(record.choices).get(one)) for one, shape in record.inputs)
    names = [one for one, _ in record.inputs]
    axes = {
        one: {axis: dim for axis, dim in enumerate(shape) if isinstance(dim, str)}
        for one, shape in record.inputs
    }
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if record.exporter == DYNAMO:
            return _by_dynamo(module, example, names, axes)
        stream = io.BytesIO()
        torch.onnx.export(
            module, example, stream, input_names=names, output_names=None, dynamic_axes=axes,
            opset_version=_OPSETS.get(name, 17), dynamo=False,
        )  # fmt: skip
        return onnx.load_from_string(stream.getvalue())


def _by_dynamo(
    module: nn.Module, example: tuple[Tensor, ...], names: list[str], axes: dict[str, dict[int, str]]
) -> onnx.ModelProto:
    shapes = tuple(dict(axes[one]) for one in names)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        torch.onnx.export(
            module, example, path, input_names=names, dynamic_shapes=shapes, dynamo=True, external_data=False,
            verbose=False,
        )  # fmt: skip
        return onnx.load(path)


def _example(record: Network, shape: tuple[int | str, ...], choices: int | None) -> Tensor:
    size = record.sizes[1 if "tokens" not in record.sizes[0] else 0]
    size = {**size, "batch": 2}
    extents = [size[dim] if isinstance(dim, str) else dim for dim in shape]
    return torch.randn(extents) if choices is None else torch.randint(0, choices, extents)


def _randomise(module: nn.Module) -> None:
    """Statistics and scales as after training: none is one or zero."""
    for one in module.modules():
        if isinstance(one, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(one.running_mean, -0.3, 0.3)
            nn.init.uniform_(one.running_var, 0.6, 1.4)
        if isinstance(one, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm | nn.InstanceNorm2d):
            nn.init.uniform_(one.weight, 0.7, 1.3)
            nn.init.uniform_(one.bias, -0.2, 0.2)
