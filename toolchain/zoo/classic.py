"""Plain chains of convolution, pooling and dense layers: mnist, caffenet, rcnn-ilsvrc13, vgg, perceptron."""

from __future__ import annotations

import numpy as np

from toolchain.zoo.builder import Builder, Draft


def mnist(network: str, logit_gain: float) -> Draft:
    """The CNTK export of the model zoo: SAME_UPPER convolutions, bias as Add, dense weight reshaped.

    `Input3` [1, 1, 28, 28] -> `Plus214_Output_0` [1, 10], no softmax. IR version 3: constants are inputs too.
    """
    b = Builder(network, opset=8, ir_version=3)
    x = b.input("Input3", (1, 1, 28, 28))
    for layer, (channels, pool) in enumerate(((8, 2), (16, 3)), start=1):
        depth = b.channels(x)
        weight = b.he(f"Parameter{layer}.weight", (channels, depth, 5, 5), depth * 25)
        x = b.add(
            "Conv",
            x,
            weight,
            channels=channels,
            auto_pad="SAME_UPPER",
            dilations=[1, 1],
            group=1,
            kernel_shape=[5, 5],
            strides=[1, 1],
        )
        x = b.add("Add", x, b.random(f"Parameter{layer}.bias", (channels, 1, 1), -0.1, 0.1))
        x = b.add("Relu", x)
        x = b.add(
            "MaxPool",
            x,
            auto_pad="NOTSET",
            kernel_shape=[pool, pool],
            pads=[0, 0, 0, 0],
            strides=[pool, pool],
        )
    flat = b.add("Reshape", x, b.ints("Pooling160_Output_0_reshape0_shape", (1, 256)))
    stored = b.he("Parameter193", (16, 4, 4, 10), 256, logit_gain)
    weight = b.add("Reshape", stored, b.ints("Parameter193_reshape1_shape", (256, 10)))
    product = b.add("MatMul", flat, weight)
    result = b.add("Add", product, b.random("Parameter194", (1, 10), -0.1, 0.1), name="Plus214_Output_0")
    b.output(result, (1, 10))
    return b.draft()


def caffenet(network: str, logit_gain: float, *, classes: int, softmax: bool) -> Draft:
    """CaffeNet (arXiv:1408.5093): AlexNet in one tower of two groups, pooling before normalisation.

    `data_0` [1, 3, 224, 224] -> `prob_1` [1, classes], or `fc-rcnn_1` without softmax (R-CNN,
    arXiv:1311.2524).
    """
    b = Builder(network, opset=9, ir_version=4)
    x = b.input("data_0", (1, 3, 224, 224))
    x = b.add("Relu", b.conv(x, "conv1", 96, 11, stride=4))
    x = _normalise(b, _pool(b, x, 3, 2))
    x = b.add("Relu", b.conv(x, "conv2", 256, 5, pads=2, group=2))
    x = _normalise(b, _pool(b, x, 3, 2))
    for layer, (channels, group) in enumerate(((384, 1), (384, 2), (256, 2)), start=3):
        x = b.add("Relu", b.conv(x, f"conv{layer}", channels, 3, pads=1, group=group))
    # Caffe rounds the pooled size up; two cells of padding at the end give the same 6 x 6.
    x = _pool(b, x, 3, 2, pads=(0, 0, 1, 1))
    x = b.add("Reshape", x, b.ints("fc6.shape", (1, 9216)))
    x = _hidden(b, _hidden(b, x, "fc6", 9216, 4096), "fc7", 4096, 4096)
    last = "" if softmax else "fc-rcnn_1"
    x = b.gemm(x, "fc8", 4096, classes, gain=logit_gain, result=last)
    if softmax:
        x = b.add("Softmax", x, name="prob_1", axis=1)
    b.output(x, (1, classes))
    return b.draft()


def vgg(network: str, logit_gain: float, *, batch_norm: bool) -> Draft:
    """VGG-16, configuration D of arXiv:1409.1556, with or without batch normalisation.

    `data` [1, 3, 224, 224] -> `logits` [1, 1000].
    """
    b = Builder(network, opset=7, ir_version=4)
    x = b.input("data", (1, 3, 224, 224))
    for stage, (layers, channels) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for layer in range(1, layers + 1):
            name = f"conv{stage}_{layer}"
            x = b.conv(x, name, channels, 3, pads=1)
            x = b.batch_norm(x, f"{name}.norm") if batch_norm else x
            x = b.add("Relu", x)
        x = _pool(b, x, 2, 2)
    x = b.add("Flatten", x, axis=1)
    x = _hidden(b, _hidden(b, x, "fc6", 25088, 4096), "fc7", 4096, 4096)
    x = b.gemm(x, "fc8", 4096, 1000, gain=logit_gain, result="logits")
    b.output(x, (1, 1000))
    return b.draft()


def perceptron(network: str, logit_gain: float, *, width: int, layers: int) -> Draft:
    """Square dense layers with rectifiers between: many constants, little else.

    `x` [1, width] -> `y` [1, width].
    """
    b = Builder(network, opset=13, ir_version=8)
    x = b.input("x", (1, width))
    for layer in range(1, layers):
        x = b.add("Relu", b.gemm(x, f"dense{layer}", width, width))
    x = b.gemm(x, f"dense{layers}", width, width, gain=logit_gain, result="y")
    b.output(x, (1, width))
    return b.draft()


def _pool(b: Builder, x: str, kernel: int, stride: int, pads: tuple[int, ...] = (0, 0, 0, 0)) -> str:
    return b.add("MaxPool", x, kernel_shape=[kernel, kernel], strides=[stride, stride], pads=list(pads))


def _normalise(b: Builder, x: str) -> str:
    return b.add("LRN", x, size=5, alpha=float(np.float32(1e-4)), beta=0.75, bias=1.0)


def _hidden(b: Builder, x: str, name: str, inputs: int, outputs: int) -> str:
    x = b.add("Relu", b.gemm(x, name, inputs, outputs))
    return b.add("Dropout", x, ratio=0.5)
