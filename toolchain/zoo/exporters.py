"""Records of the models that exporters wrote: free dimensions, and five sizes of each."""

from __future__ import annotations

from toolchain.zoo.record import Network

TORCHSCRIPT = "torch.onnx, TorchScript"
DYNAMO = "torch.onnx, torch.export"
SKL2ONNX = "skl2onnx"
ONNXMLTOOLS = "onnxmltools"
TF2ONNX = "tf2onnx"

_Inputs = tuple[tuple[str, tuple[int | str, ...]], ...]
_BATCH = ("batch", (1, 2, 3, 5, 8))
_ROWS = ("height", (32, 40, 64, 48, 96))
_COLUMNS = ("width", (32, 64, 40, 56, 80))
_TOKENS = ("tokens", (7, 1, 16, 33, 12))
_SAMPLES = ("samples", (400, 333, 512, 480, 257))


def _batched(name: str, *shape: int | str) -> _Inputs:
    return ((name, ("batch", *shape)),)


_IMAGE = _batched("image", 3, 32, 32)
_ANY_IMAGE = _batched("image", 3, "height", "width")
_IDS = _batched("input_ids", "tokens")
_BERT = (
    ("input_ids", ("batch", "tokens")), ("attention_mask", ("batch", "tokens")),
    ("token_type_ids", ("batch", "tokens")),
)  # fmt: skip
_PADDED = (("features", ("batch", "tokens", 10)), ("padding", ("batch", "tokens")))
_LLAMA = (
    ("input_ids", ("batch", "tokens")), ("attention_mask", ("batch", "total")),
    ("position_ids", ("batch", "tokens")),
    ("past_key_values.0.key", ("batch", 2, "past", 8)), ("past_key_values.0.value", ("batch", 2, "past", 8)),
)  # fmt: skip
_GPT2 = (
    ("input_ids", ("batch", "tokens")),
    ("past_key_values.0.key", ("batch", 4, "past", 8)), ("past_key_values.0.value", ("batch", 4, "past", 8)),
)  # fmt: skip
_DIFFUSION = (
    ("sample", ("batch", 4, "height", "width")), ("timestep", ("batch",)), ("text", ("batch", "tokens", 12)),
)  # fmt: skip
_CACHED = (("tokens", (4, 1, 1, 3, 1)), ("past", (3, 8, 15, 5, 20)))
_TOTAL = ("total", (7, 9, 16, 8, 21))
_EVEN = (("height", (8, 16, 12, 8, 20)), ("width", (8, 8, 16, 20, 12)))


def _network(
    name: str,
    family: str,
    exporter: str,
    inputs: _Inputs,
    *free: tuple[str, tuple[int, ...]],
    source: str = "",
    choices: tuple[tuple[str, int], ...] = (),
) -> Network:
    return Network(
        f"tiny-{name}",
        family,
        "exported",
        inputs,
        f"{source}, by {exporter}" if source else f"by {exporter}",
        choices=choices,
        exporter=exporter,
        free=(_BATCH, *free),
    )


_WORDS = (("input_ids", 50),)

_VISION = (
    _network("resnet", "cnn", TORCHSCRIPT, _ANY_IMAGE, _ROWS, _COLUMNS),
    _network("resnet-dynamo", "cnn", DYNAMO, _ANY_IMAGE, _ROWS, _COLUMNS),
    _network("mobilenet", "cnn", TORCHSCRIPT, _IMAGE),
    _network("mobilenet-dynamo", "cnn", DYNAMO, _IMAGE),
    _network("convnext", "cnn", TORCHSCRIPT, _IMAGE),
    _network("convnext-dynamo", "cnn", DYNAMO, _ANY_IMAGE, _ROWS, _COLUMNS),
    _network("vgg", "cnn", TORCHSCRIPT, _IMAGE),
    _network("inception", "cnn", TORCHSCRIPT, _IMAGE),
    _network("inception-dynamo", "cnn", DYNAMO, _IMAGE),
    _network("yolo", "detection", TORCHSCRIPT, _IMAGE),
    _network("yolo-dynamo", "detection", DYNAMO, _IMAGE),
    _network("detr", "detection", TORCHSCRIPT, _IMAGE),
    _network("detr-dynamo", "detection", DYNAMO, _IMAGE),
    _network("pyramid", "detection", TORCHSCRIPT, _ANY_IMAGE, _ROWS, _COLUMNS),
    _network("pyramid-dynamo", "detection", DYNAMO, _IMAGE),
    _network("aligned", "detection", DYNAMO, _IMAGE),
    _network("unet", "segmentation", TORCHSCRIPT, _ANY_IMAGE, _ROWS, _COLUMNS),
    _network("unet-dynamo", "segmentation", DYNAMO, _IMAGE),
    _network("deeplab", "segmentation", TORCHSCRIPT, _ANY_IMAGE, _ROWS, _COLUMNS),
    _network("deeplab-dynamo", "segmentation", DYNAMO, _IMAGE),
    _network("segformer", "segmentation", TORCHSCRIPT, _IMAGE),
    _network("segformer-dynamo", "segmentation", DYNAMO, _IMAGE),
    _network(
        "diffusion", "diffusion", TORCHSCRIPT, _DIFFUSION, *_EVEN, _TOKENS, choices=(("timestep", 1000),)
    ),
    _network(
        "diffusion-dynamo", "diffusion", DYNAMO, _DIFFUSION, *_EVEN, _TOKENS, choices=(("timestep", 1000),)
    ),
    _network("latents", "diffusion", TORCHSCRIPT, _batched("latent", 4, 8, 8)),
    _network("latents-dynamo", "diffusion", DYNAMO, _batched("latent", 4, 8, 8)),
)

_BERT_CHOICES = (("input_ids", 60), ("attention_mask", 2), ("token_type_ids", 2))
_LLAMA_CHOICES = (("input_ids", 50), ("attention_mask", 2), ("position_ids", 64))

_SEQUENCES = (
    _network("bert", "transformer", TORCHSCRIPT, _BERT, _TOKENS, choices=_BERT_CHOICES),
    _network("bert-dynamo", "transformer", DYNAMO, _BERT, _TOKENS, choices=_BERT_CHOICES),
    _network("encoder-dynamo", "transformer", DYNAMO, _PADDED, _TOKENS, choices=(("padding", 2),)),
    _network("vit", "transformer", TORCHSCRIPT, _IMAGE),
    _network("vit-dynamo", "transformer", DYNAMO, _IMAGE),
    _network("swin", "transformer", TORCHSCRIPT, _IMAGE),
    _network("swin-dynamo", "transformer", DYNAMO, _IMAGE),
    _network("t5", "transformer", TORCHSCRIPT, _IDS, _TOKENS, choices=_WORDS),
    _network("t5-dynamo", "transformer", DYNAMO, _IDS, _TOKENS, choices=_WORDS),
    _network("clip", "transformer", DYNAMO, (*_IMAGE, ("input_ids", ("batch", 7))), choices=_WORDS),
    _network("llama-cache", "decoder", TORCHSCRIPT, _LLAMA, *_CACHED, _TOTAL, choices=_LLAMA_CHOICES),
    _network("gpt2-cache", "decoder", TORCHSCRIPT, _GPT2, *_CACHED, choices=_WORDS),
    _network("gpt2-cache-dynamo", "decoder", DYNAMO, _GPT2, *_CACHED, choices=_WORDS),
    _network("lstm", "recurrent", TORCHSCRIPT, _IDS, _TOKENS, choices=_WORDS),
    _network("lstm-dynamo", "recurrent", DYNAMO, _batched("input_ids", 9), choices=_WORDS),
    _network("gru", "recurrent", TORCHSCRIPT, _IDS, _TOKENS, choices=_WORDS),
    _network("rnn", "recurrent", TORCHSCRIPT, _batched("input_ids", 9), choices=_WORDS),
    _network("mamba", "recurrent", DYNAMO, _batched("x", 6, 8)),
    _network("wav2vec-dynamo", "audio", DYNAMO, _batched("samples", 400)),
    _network("whisper", "audio", DYNAMO, _batched("input_features", 20, 24)),
    _network("keywords", "audio", DYNAMO, _batched("samples", "samples"), _SAMPLES),
    _network("temporal", "audio", TORCHSCRIPT, _batched("signal", 4, "samples"), _SAMPLES),
    _network(
        "speech",
        "audio",
        TORCHSCRIPT,
        (("samples", ("batch", "samples")), ("state", ("batch", 1, 16))),
        _SAMPLES,
    ),
)

_TREES = tuple(
    _network(name, "trees", exporter, _batched("X", 10))
    for name, exporter in (
        ("forest", SKL2ONNX),
        ("boosting", SKL2ONNX),
        ("extra-trees", SKL2ONNX),
        ("adaboost", SKL2ONNX),
        ("logistic", SKL2ONNX),
        ("perceptron", SKL2ONNX),
        ("clusters", SKL2ONNX),
        ("voting", SKL2ONNX),
        ("xgboost", ONNXMLTOOLS),
        ("xgboost-classes", ONNXMLTOOLS),
        ("lightgbm", ONNXMLTOOLS),
        ("lightgbm-classes", ONNXMLTOOLS),
    )
)

_KERAS = (
    _network("keras-cnn", "cnn", TF2ONNX, _batched("image", 32, 32, 3)),
    _network("keras-separable", "cnn", TF2ONNX, _batched("image", "height", "width", 3), _ROWS, _COLUMNS),
    _network("keras-lstm", "recurrent", TF2ONNX, _batched("signal", 9, 6)),
    _network("keras-attention", "transformer", TF2ONNX, _batched("tokens", "tokens", 16), _TOKENS),
    _network("keras-unet", "segmentation", TF2ONNX, _batched("image", 32, 32, 3)),
    _network("tflite-cnn", "cnn", TF2ONNX, _batched("serving_default_image:0", 32, 32, 3)),
)

ALL: tuple[Network, ...] = (*_VISION, *_SEQUENCES, *_TREES, *_KERAS)
