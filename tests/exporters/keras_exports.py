"""Models of Keras and TensorFlow Lite by tf2onnx."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import tensorflow as tf
import tf_keras as keras
from tf_keras import layers

from toolchain.zoo.record import Network

_OPSET = "17"


def _cnn(image: Any) -> Any:
    x = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.MaxPooling2D()(layers.BatchNormalization()(x))
    x = layers.Conv2D(16, 3, strides=2, padding="same", activation="elu")(x)
    return layers.Dense(10, activation="softmax")(layers.Flatten()(x))


def _separable(image: Any) -> Any:
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(image)
    x = layers.ReLU(6.0)(layers.BatchNormalization()(x))
    x = x + layers.SeparableConv2D(8, 3, padding="same", activation="swish")(x)
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


def _lstm(signal: Any) -> Any:
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(signal)
    return layers.Dense(4)(layers.GRU(8)(x))


def _attention(tokens: Any) -> Any:
    x = layers.MultiHeadAttention(2, 8)(tokens, tokens)
    x = layers.LayerNormalization()(x + tokens)
    return layers.LayerNormalization()(x + layers.Dense(16)(layers.Dense(32, activation="relu")(x)))


def _unet(image: Any) -> Any:
    first = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(12, 3, padding="same", activation="relu")(layers.AveragePooling2D()(first))
    x = layers.Conv2DTranspose(8, 3, strides=2, padding="same")(x)
    x = layers.Concatenate()(
        [x, first, layers.UpSampling2D(interpolation="bilinear")(layers.MaxPooling2D()(first))]
    )
    return layers.Conv2D(2, 1, activation="sigmoid")(x)


_NETWORKS: dict[str, Callable[[Any], Any]] = {
    "keras-cnn": _cnn,
    "keras-separable": _separable,
    "keras-lstm": _lstm,
    "keras-attention": _attention,
    "keras-unet": _unet,
    "tflite-cnn": _cnn,
}


def make(record: Network) -> onnx.ModelProto:
    """The network of a record: a saved model, or one of TensorFlow Lite, through tf2onnx's command."""
    keras.utils.set_random_seed(0)
    ((name, shape),) = record.inputs
    name = name.removeprefix("serving_default_").removesuffix(":0")  # as TensorFlow Lite spells it
    given = keras.Input([None if isinstance(dim, str) else dim for dim in shape[1:]], name=name)
    network = keras.Model(given, _NETWORKS[record.name.removeprefix("tiny-")](given))
    for layer in network.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.moving_mean.assign(tf.random.uniform(layer.moving_mean.shape, -0.3, 0.3))
            layer.moving_variance.assign(tf.random.uniform(layer.moving_variance.shape, 0.6, 1.4))
    with tempfile.TemporaryDirectory() as folder:
        saved, made = Path(folder) / "saved", Path(folder) / "m.onnx"
        network.export(saved)
        words = ["--saved-model", str(saved)]
        if record.name == "tiny-tflite-cnn":
            (Path(folder) / "m.tflite").write_bytes(
                tf.lite.TFLiteConverter.from_keras_model(network).convert()
            )
            words = ["--tflite", str(Path(folder) / "m.tflite")]
        command = [sys.executable, "-m", "tf2onnx.convert", *words, "--output", str(made), "--opset", _OPSET]
        subprocess.run(command, check=True, capture_output=True)
        return onnx.load(made)
