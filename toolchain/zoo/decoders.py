"""Records of decoders with free lengths: a prompt, then a token at a time after what is kept."""

from __future__ import annotations

from toolchain.zoo.record import Network

_LAYERS, _SHARED, _DEPTH = 6, 4, 64

ALL: tuple[Network, ...] = (
    Network(
        "llama-decoder",
        "decoder",
        "llama",
        (
            ("input_ids", ("batch", "tokens")),
            ("attention_mask", ("batch", "total")),
            ("position_ids", ("batch", "tokens")),
            *(
                (f"past_key_values.{layer}.{kind}", ("batch", _SHARED, "past", _DEPTH))
                for layer in range(_LAYERS)
                for kind in ("key", "value")
            ),
        ),
        "layers of arXiv:2307.09288 as optimum exports them: six of 512, 8 heads, 4 of keys and values",
        (("layers", _LAYERS), ("shared", _SHARED), ("depth", _DEPTH)),
        parameters=26_089_984,
        logit_gain=1.0,
        choices=(("input_ids", 8192), ("attention_mask", 2), ("position_ids", 512)),
        free=(
            ("batch", (1, 2, 1, 1, 1)),
            ("tokens", (4, 1, 1, 3, 1)),
            ("past", (0, 8, 15, 5, 20)),
            ("total", (4, 9, 16, 8, 21)),
        ),
    ),
)
