"""The table of networks. One record per network; the rest of the zoo is written over these records.

Checksums of trained models are quoted from `ONNX_HUB_MANIFEST.json` of github.com/onnx/models at commit
06189933463e51adb5ac34a5ead67cf6a3f51e2d, and equal those in the Git LFS pointers of the files at commit
b1eeaa1ac722dcc1cd1a8284bde34393dab61c3d; where neither states one the field stays `unresolved`.
Parameter counts equal the published ones of the cited architectures (those of torchvision's model table where
it has the network); `tests/unit/zoo` counts them again in the files that the zoo writes, and the operations
too.
"""

from __future__ import annotations

from toolchain.zoo import spelled, varied
from toolchain.zoo.record import Network, Original

_VISION = "vision/classification/"
_IMAGE = (1, 3, 224, 224)


def _original(path: str, sha256: str, size_bytes: int) -> Original:
    return Original(_VISION + path, sha256, size_bytes)


def _light(
    name: str,
    family: str,
    source: str,
    *,
    gflop: float,
    parameters: int,
    logit_gain: float,
    original: Original,
    revisions: tuple[Original, ...] = (),
    file: str = "",
) -> Network:
    """One of the architectures that the onnx package ships without weights; `file` by default like `name`."""
    data = "gpu_0/data_0" if name in ("resnet50", "shufflenet", "zfnet512") else "data_0"
    return Network(
        name,
        family,
        "light",
        ((data, _IMAGE),),
        source,
        (("file", f"light_{file or name}.onnx"),),
        gflop,
        parameters,
        logit_gain,
        original,
        revisions,
    )


_LIGHT = (
    _light(
        "bvlc_alexnet",
        "alexnet",
        "Krizhevsky et al. 2012, in one tower of two groups as in Caffe's bvlc_alexnet",
        gflop=1.31,
        parameters=60_965_224,
        logit_gain=0.25,
        original=_original(
            "alexnet/model/bvlcalexnet-9.onnx",
            "ef3c82dad5c512f969dbf701fe35c0b3feb1585687d541f765eb68730c0a8af7",
            243_863_542,
        ),
    ),
    _light(
        "densenet121",
        "densenet",
        "arXiv:1608.06993, Caffe version with a scale layer after each normalisation",
        gflop=5.67,
        parameters=8_062_504,
        logit_gain=25.0,
        original=_original(
            "densenet-121/model/densenet-9.onnx",
            "875fb597a9f0f79cca8a9db610a355920b13959fbe7dc35b759dd35f4d25e291",
            32_719_461,
        ),
    ),
    _light(
        "inception_v1",
        "inception",
        "arXiv:1409.4842 (GoogLeNet)",
        gflop=2.86,
        parameters=6_998_552,
        logit_gain=150.0,
        original=_original(
            "inception_and_googlenet/inception_v1/model/inception-v1-9.onnx",
            "f8b7bb4040377b83089eef98800a15303325ed75ced468a8972a87e0bc23692e",
            28_020_356,
        ),
    ),
    _light(
        "googlenet",
        "googlenet",
        "arXiv:1409.4842 as Caffe's bvlc_googlenet: the layers of inception_v1, trained on their own",
        gflop=2.86,
        parameters=6_998_552,
        logit_gain=600.0,
        file="inception_v1",
        original=_original(
            "inception_and_googlenet/googlenet/model/googlenet-9.onnx",
            "bd979d99d10d9acf84c5a67252bcae4992bf4e1afdab046cb0ea370e6f01ee38",
            28_020_232,
        ),
        revisions=(
            _original(
                "inception_and_googlenet/googlenet/model/googlenet-3.onnx",
                "5725ccfd90845735ce5897faf7843c3f9b13acda3c4f3bff82cb21c9337c9de8",
                28_020_232,
            ),
        ),
    ),
    _light(
        "inception_v2",
        "inception",
        "arXiv:1502.03167 (GoogLeNet with batch normalisation)",
        gflop=4.04,
        parameters=11_214_888,
        logit_gain=0.1,
        original=_original(
            "inception_and_googlenet/inception_v2/model/inception-v2-9.onnx",
            "37ed4aa93f817fd0d1cc19bda045ebd70f18d0887a5f51e66ecd0ed8fd5a65c2",
            45_042_799,
        ),
    ),
    _light(
        "resnet50",
        "resnet",
        "arXiv:1512.03385, Caffe2 version",
        gflop=8.18,
        parameters=25_557_032,
        logit_gain=12.0,
        original=_original(
            "resnet/model/resnet50-caffe2-v1-9.onnx",
            "822daa93e11ecd505f282eb16e02d7fa6d7a88a4db0c9f832320798e508ba0dd",
            102_489_425,
        ),
        revisions=(
            _original(
                "resnet/model/resnet50-caffe2-v1-3.onnx",
                "22cbd5723582d9e4636c46da43732980c8a60f8fc74c37f15db522034e6ae84d",
                102_491_873,
            ),
            _original(
                "resnet/model/resnet50-caffe2-v1-6.onnx",
                "166b367d86f2afe34f7438154f2798d081b13d369df20c75b485b76763c16a0e",
                102_490_291,
            ),
        ),
    ),
    _light(
        "shufflenet",
        "shufflenet",
        "arXiv:1707.01083, 4 groups",
        gflop=0.25,
        parameters=1_393_320,
        logit_gain=0.25,
        original=_original(
            "shufflenet/model/shufflenet-9.onnx",
            "3642c54024f09d35236f325df9822e772596c394cd90fd8e98ca1d2eba309e6f",
            5_723_770,
        ),
    ),
    _light(
        "squeezenet",
        "squeezenet",
        "arXiv:1602.07360, version 1.1",
        gflop=0.70,
        parameters=1_235_496,
        logit_gain=2.5,
        original=_original(
            "squeezenet/model/squeezenet1.0-9.onnx",
            "f2d3201f013b72988109e677e9244250f4cc02394529432972f05e1f6dcc7b62",
            4_952_222,
        ),
    ),
    _light(
        "vgg19",
        "vgg",
        "arXiv:1409.1556, configuration E",
        gflop=39.3,
        parameters=143_667_240,
        logit_gain=0.6,
        original=_original(
            "vgg/model/vgg19-caffe2-9.onnx",
            "cfb97260b303ad3963999662456571b89c5f73dbdd2fd9dffd19fed7a90f766b",
            574_674_712,
        ),
        revisions=(
            _original(
                "vgg/model/vgg19-caffe2-6.onnx",
                "088ee597d84957594ded3fd44d669ed142ce2484048e1d9f7fafeb66d12913fa",
                574_674_798,
            ),
        ),
    ),
    _light(
        "zfnet512",
        "zfnet",
        "arXiv:1311.2901 with 512 channels in the last convolutions",
        gflop=2.96,
        parameters=87_250_536,
        logit_gain=2.0,
        original=_original(
            "zfnet-512/model/zfnet512-12.onnx",
            "c975ca6a24c0a2e1584c6f82667e0ac9c06084fc7769d267f71b4a154d1f1c72",
            349_005_501,
        ),
    ),
)

_CLASSIC = (
    Network(
        "mnist",
        "mnist",
        "mnist",
        (("Input3", (1, 1, 28, 28)),),
        "the CNTK example network of the ONNX model zoo",
        gflop=0.00157,
        parameters=5_994,
        logit_gain=0.4,
        original=_original(
            "mnist/model/mnist-8.onnx",
            "2f06e72de813a8635c9bc0397ac447a601bdbfa7df4bebc278723b958831c9bf",
            26_454,
        ),
        revisions=(
            _original(
                "mnist/model/mnist-1.onnx",
                "22239f3fcc38f34d02eecd6869aed15b93f8e3e1125dda48990d244a5e113d49",
                27_266,
            ),
        ),
    ),
    Network(
        "caffenet",
        "caffenet",
        "caffenet",
        (("data_0", _IMAGE),),
        "arXiv:1408.5093 (Caffe's reference network)",
        (("classes", 1000), ("softmax", True)),
        gflop=1.31,
        parameters=60_965_224,
        logit_gain=0.4,
        original=_original(
            "caffenet/model/caffenet-9.onnx",
            "802138332cf3e423c82a9a80c76e4f9227dd4effb3aba55413601fa4345cfd36",
            243_863_553,
        ),
        revisions=(
            _original(
                "caffenet/model/caffenet-3.onnx",
                "e362cbd353e7a0432d46ec608bfc38646aa8d70207ddb92788008816603ce835",
                243_863_525,
            ),
        ),
    ),
    Network(
        "rcnn-ilsvrc13",
        "rcnn",
        "caffenet",
        (("data_0", _IMAGE),),
        "arXiv:1311.2524, the CaffeNet with 200 detection classes and no softmax",
        (("classes", 200), ("softmax", False)),
        gflop=1.30,
        parameters=57_687_624,
        logit_gain=0.25,
        original=_original(
            "rcnn_ilsvrc13/model/rcnn-ilsvrc13-9.onnx",
            "4aadb5ac806e82f89bac7dea77c838ba828dccbe5d624d8a44ebd513953571d9",
            230_753_161,
        ),
    ),
    Network(
        "vgg16",
        "vgg",
        "vgg",
        (("data", _IMAGE),),
        "arXiv:1409.1556, configuration D",
        (("batch_norm", False),),
        gflop=30.9,
        parameters=138_357_544,
        logit_gain=0.4,
        original=_original(
            "vgg/model/vgg16-7.onnx",
            "f20805a3ecccaa88647bbab4ad011ff2412a9838485ea844de0fcbce349820b9",
            553_437_328,
        ),
    ),
    Network(
        "vgg16-bn",
        "vgg",
        "vgg",
        (("data", _IMAGE),),
        "arXiv:1409.1556, configuration D with batch normalisation",
        (("batch_norm", True),),
        gflop=30.9,
        parameters=138_365_992,
        logit_gain=0.35,
        original=_original(
            "vgg/model/vgg16-bn-7.onnx",
            "4fdceabf1ef715c9ed3020fa2eac1cb2a448296c086b03633c80cf47e1c5afce",
            553_512_191,
        ),
    ),
)

_MOBILE = (
    Network(
        "mobilenetv2",
        "mobilenet",
        "mobilenetv2",
        (("input", _IMAGE),),
        "arXiv:1801.04381, width 1.0",
        gflop=0.60,
        parameters=3_504_872,
        logit_gain=3.0,
        original=_original(
            "mobilenet/model/mobilenetv2-12.onnx",
            "c0c3f76d93fa3fd6580652a45618618a220fced18babf65774ed169de0432ad5",
            13_964_571,
        ),
    ),
    Network(
        "efficientnet-lite4",
        "efficientnet",
        "efficientnet_lite4",
        (("images:0", (1, 224, 224, 3)),),
        "arXiv:1905.11946, the Lite4 variant of TensorFlow's TPU models (no squeeze-excite, ReLU6)",
        gflop=2.70,
        parameters=13_006_568,
        logit_gain=1.7,
        original=_original(
            "efficientnet-lite4/model/efficientnet-lite4-11.onnx",
            "d111689907c06eea7c82e4833ddef758da6453b9d4cf60b7e99ca05c7cbd9c12",
            51_946_641,
        ),
    ),
)

# depth -> (GFLOP of version 1, of version 2, parameters of version 1, of version 2)
_RESNET_FACTS = {
    18: (3.63, 3.63, 11_689_512, 11_687_854),
    34: (7.33, 7.33, 21_797_672, 21_796_014),
    50: (7.72, 8.18, 25_557_032, 25_549_486),
    101: (15.1, 15.6, 44_549_160, 44_541_614),
    152: (22.6, 23.0, 60_192_808, 60_185_262),
}
_RESNET_ORIGINALS = {
    (18, 1): ("4e8f8653e7a2222b3904cc3fe8e304cd8b339ce1d05fd24688162f86fb6df52c", 46_820_737),
    (18, 2): ("3b4d048057854022232aa20bf68262e31718ab7119a17f920b8a2dc1433f824b", 46_806_737),
    (34, 1): ("883a41b2e30ddc2e422c108b091b5e70b92d37dc5c345a2c563dcae27971e2cc", 87_302_588),
    (34, 2): ("3d3815e25f4b1ea967e2a526a3b27ef2a03af1725bdc199a63a271c26862d914", 87_288_587),
    (50, 1): ("af16a04a6ec48ac494065d4439fe9dea590d337b9ca6dc328160ccf04a217b9c", 102_583_340),
    (50, 2): ("79102261eb6e5fd7af5d27f41316293e388c5cb691e5d25bfb035c4f64fefe31", 102_442_452),
    (101, 1): ("760702f6ec0138f71ebac66f4e95d1c72dc9267a8544f4d4667a53075fd0497c", 178_914_043),
    (101, 2): ("3a0a819ea0953fb4700b0d98e43540aeee253e5b4c503c552b0c7979fc67767d", 178_682_301),
    (152, 1): ("b0ec92437bf8c9d0739bf9bafdea9638e13f9e3c1e2fb766ad546cc182fd3f6d", 241_816_206),
    (152, 2): ("40fb3f6dd313ba786a2c8077a0ef7d7b4afeda5d037365400d3a7fbc2b1bee64", 241_503_848),
}
_RESNET_SOURCES = {1: "arXiv:1512.03385", 2: "arXiv:1603.05027 (pre-activation)"}


def _resnet(depth: int, version: int) -> Network:
    gflop_1, gflop_2, parameters_1, parameters_2 = _RESNET_FACTS[depth]
    sha256, size_bytes = _RESNET_ORIGINALS[depth, version]
    return Network(
        f"resnet{depth}-v{version}",
        "resnet",
        "resnet",
        (("data", _IMAGE),),
        _RESNET_SOURCES[version],
        (("depth", depth), ("version", version)),
        gflop=gflop_1 if version == 1 else gflop_2,
        parameters=parameters_1 if version == 1 else parameters_2,
        original=_original(f"resnet/model/resnet{depth}-v{version}-7.onnx", sha256, size_bytes),
    )


_RESNETS = tuple(_resnet(depth, version) for depth in _RESNET_FACTS for version in (1, 2))

_GATED = (
    Network(
        "mobilenetv3-large",
        "mobilenet",
        "mobilenetv3",
        (("input", _IMAGE),),
        "arXiv:1905.02244, width 1.0",
        gflop=0.433,
        parameters=5_483_032,
    ),
    Network(
        "efficientnet-b0",
        "efficientnet",
        "efficientnet_b0",
        (("input", _IMAGE),),
        "arXiv:1905.11946",
        gflop=0.77,
        parameters=5_288_548,
    ),
)

_MODERN = (
    Network(
        "transformer-encoder",
        "transformer",
        "transformer_encoder",
        (("hidden_states", (1, 128, 256)),),
        "arXiv:1706.03762 with GELU; LayerNormalization as one operator",
        (("fused_norm", True),),
        gflop=0.436,
        parameters=1_579_520,
    ),
    Network(
        "transformer-encoder-decomposed",
        "transformer",
        "transformer_encoder",
        (("hidden_states", (1, 128, 256)),),
        "arXiv:1706.03762 with GELU; layer normalisation spelt out",
        (("fused_norm", False),),
        gflop=0.436,
        parameters=1_579_520,
    ),
    Network(
        "unet",
        "unet",
        "unet",
        (("image", (1, 3, 128, 128)),),
        "arXiv:1505.04597, four levels from 16 channels",
        gflop=1.84,
        parameters=2_010_690,
        logit_gain=3.0,
    ),
)

_LIMITS = (
    Network(
        "perceptron-2gb",
        "limits",
        "perceptron",
        (("x", (1, 8192)),),
        "nine square dense layers: more constants than one protobuf message can hold",
        (("width", 8192), ("layers", 9)),
        gflop=1.21,
        parameters=9 * 8192 * 8193,
    ),
)

ALL: tuple[Network, ...] = (
    *_LIGHT, *_CLASSIC, *_MOBILE, *_GATED, *_RESNETS, *_MODERN, *spelled.ALL, *varied.ALL, *_LIMITS,
)  # fmt: skip
