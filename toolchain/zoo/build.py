"""From a record to a draft of its model: the table of builders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from toolchain.zoo import (
    classic,
    detection,
    exporter_files,
    forests,
    light,
    llama,
    mobile,
    modern,
    recurrent,
    resnet,
    squeeze_excite,
    transformers,
    windowed,
)
from toolchain.zoo.builder import Draft
from toolchain.zoo.record import Network

BUILDERS: Mapping[str, Callable[..., Draft]] = MappingProxyType(
    {
        "light": light.build,
        "exported": exporter_files.exported_model,
        "mnist": classic.mnist,
        "caffenet": classic.caffenet,
        "vgg": classic.vgg,
        "perceptron": classic.perceptron,
        "mobilenetv2": mobile.mobilenetv2,
        "efficientnet_lite4": mobile.efficientnet_lite4,
        "mobilenetv3": squeeze_excite.mobilenetv3,
        "efficientnet_b0": squeeze_excite.efficientnet_b0,
        "resnet": resnet.resnet,
        "transformer_encoder": modern.transformer_encoder,
        "unet": modern.unet,
        "bert": transformers.bert,
        "vit": transformers.vit,
        "gpt2": transformers.gpt2,
        "llama": llama.llama,
        "whisper_encoder": transformers.whisper_encoder,
        "swin": windowed.swin,
        "convnext": windowed.convnext,
        "lstm_tagger": recurrent.lstm_tagger,
        "gru_encoder": recurrent.gru_encoder,
        "detector": detection.detector,
        "forest": forests.forest,
    }
)


def draft(network: Network) -> Draft:
    """The network's model with its constants still to be computed. Raises HostError where onnx lacks it."""
    return BUILDERS[network.builder](network.name, logit_gain=network.logit_gain, **dict(network.arguments))
