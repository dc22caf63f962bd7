"""Records of the networks that are there as each exporter of PyTorch spells them.

The plain name is the older exporter's spelling, which most models at hand are in. Parameters are those of
torchvision's and transformers' models of the same name, counted there; shared weights count once.
"""

from __future__ import annotations

from dataclasses import dataclass

from toolchain.zoo.record import Network

_IMAGE = ("input", (1, 3, 224, 224))
_SPELLINGS = (("", "torchscript"), ("-dynamo", "dynamo"))


@dataclass(frozen=True, slots=True)
class _Model:
    """What the records of one network have in common."""

    name: str
    family: str
    builder: str
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    source: str
    gflop: float
    parameters: int
    arguments: tuple[tuple[str, int], ...] = ()
    logit_gain: float = 1.0
    choices: tuple[tuple[str, int], ...] = ()


_PAST = tuple(
    (f"past_key_values.{layer}.{kind}", (1, 12, 64, 64)) for layer in range(12) for kind in ("key", "value")
)
_MODELS = (
    _Model(
        "bert-base",
        "bert",
        "bert",
        (("input_ids", (1, 128)), ("attention_mask", (1, 128)), ("token_type_ids", (1, 128))),
        "arXiv:1810.04805, 128 tokens",
        gflop=22.4,
        parameters=109_482_240,
        choices=(("input_ids", 30522), ("attention_mask", 2), ("token_type_ids", 2)),
    ),
    _Model(
        "vit-b-16",
        "vit",
        "vit",
        (_IMAGE,),
        "arXiv:2010.11929, patches of 16",
        gflop=35.1,
        parameters=86_567_656,
    ),
    _Model(
        "gpt2-prefill",
        "gpt2",
        "gpt2",
        (("input_ids", (1, 64)),),
        "Radford et al. 2019, the first 64 tokens; keys and values are outputs",
        gflop=15.9,
        parameters=124_439_808,
        arguments=(("tokens", 64),),
        choices=(("input_ids", 50257),),
    ),
    _Model(
        "gpt2-step",
        "gpt2",
        "gpt2",
        (("input_ids", (1, 1)), *_PAST),
        "Radford et al. 2019, one token behind 64 whose keys and values are inputs",
        gflop=0.25,
        parameters=124_439_808,
        arguments=(("tokens", 1), ("past", 64)),
        choices=(("input_ids", 50257),),
    ),
    _Model(
        "whisper-tiny-encoder",
        "whisper",
        "whisper_encoder",
        (("input_features", (1, 80, 3000)),),
        "arXiv:2212.04356",
        gflop=36.9,
        parameters=8_208_384,
    ),
    _Model(
        "swin-t",
        "swin",
        "swin",
        (_IMAGE,),
        "arXiv:2103.14030",
        gflop=8.98,
        parameters=28_288_354,
    ),
    _Model(
        "convnext-tiny",
        "convnext",
        "convnext",
        (_IMAGE,),
        "arXiv:2201.03545",
        gflop=8.91,
        parameters=28_589_128,
    ),
)


def _records(model: _Model) -> tuple[Network, ...]:
    return tuple(
        Network(
            f"{model.name}{suffix}",
            model.family,
            model.builder,
            model.inputs,
            model.source if not suffix else f"{model.source}; as torch.export spells it",
            (("spelling", spelling), *model.arguments),
            model.gflop,
            model.parameters,
            model.logit_gain,
            choices=model.choices,
        )
        for suffix, spelling in _SPELLINGS
    )


ALL = tuple(record for model in _MODELS for record in _records(model))
