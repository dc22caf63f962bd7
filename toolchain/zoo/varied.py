"""Records of networks that are neither convolutions nor transformers, or have more in them than these."""

from __future__ import annotations

from toolchain.zoo.record import Network

ALL = (
    Network(
        "lstm-tagger",
        "recurrent",
        "lstm_tagger",
        (("tokens", (1, 64)),),
        "arXiv:1508.01991 without its last layer: 64 words, two LSTMs of 256 in both directions",
        gflop=0.337,
        parameters=5_198_353,
        choices=(("tokens", 10_000),),
    ),
    Network(
        "gru-encoder",
        "recurrent",
        "gru_encoder",
        (("frames", (1, 100, 80)),),
        "in the manner of arXiv:1412.5567: 100 frames, two GRUs of 256 in one direction",
        gflop=0.132,
        parameters=662_046,
    ),
    Network(
        "detector",
        "detection",
        "detector",
        (("images", (1, 3, 320, 320)),),
        "layers of YOLOv8n (ultralytics, 2023) at 320 x 320, with TopK and NonMaxSuppression",
        gflop=2.19,
        parameters=3_158_204,
        logit_gain=8.0,
    ),
    Network(
        "detector-open",
        "detection",
        "detector",
        (("images", (1, 3, 320, 320)),),
        "the same as exporters write it: as many boxes as are found, at most 100",
        (("declared", False),),
        gflop=2.19,
        parameters=3_158_204,
        logit_gain=8.0,
    ),
    *(
        Network(
            f"forest-{rows}",
            "trees",
            "forest",
            (("x", (rows, 28)),),
            "500 boosted trees of at most eight levels",
            (("rows", rows),),
            gflop=0.0,
            parameters=0,
        )
        for rows in (1, 1000)
    ),
)
