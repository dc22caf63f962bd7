"""What exporters write compiles with free dimensions, and is equal to onnxruntime at five sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporters.trial import attempt
from toolchain import zoo

QUICK = {"tiny-logistic", "tiny-forest", "tiny-latents-dynamo"}
"""One each of a pipeline, trees and a network, in every run of the tests; `just exporters` tries all."""
GIVEN = {
    "tiny-detr": "batch",
    "tiny-detr-dynamo": "batch",
    "tiny-vit": "batch",
    "tiny-vit-dynamo": "batch",
    "tiny-swin-dynamo": "batch",
    "tiny-clip": "batch",
    "tiny-lstm-dynamo": "batch",
    "tiny-rnn": "batch",
    "tiny-mamba": "batch",
    "tiny-wav2vec-dynamo": "batch",
    "tiny-keras-lstm": "batch",
    "tiny-pyramid": "height width",
    "tiny-unet": "height width",
    "tiny-deeplab": "height width",
    "tiny-diffusion": "height width tokens",
    "tiny-diffusion-dynamo": "height width tokens",
    "tiny-lstm": "batch tokens",
    "tiny-gru": "batch tokens",
    "tiny-encoder-dynamo": "batch tokens",
    "tiny-t5-dynamo": "batch tokens",
    "tiny-keras-attention": "batch tokens",
    "tiny-keras-separable": "batch height width",
    "tiny-llama-cache": "batch tokens past total",
    "tiny-gpt2-cache": "batch tokens past",
    "tiny-gpt2-cache-dynamo": "batch tokens past",
    "tiny-keywords": "samples",
    "tiny-temporal": "samples",
    "tiny-speech": "batch samples",
}
"""Dimensions that may have to be given a value, by model: a list that shrinks."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.slow]) for one in zoo.exported()]
)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    outcome = attempt(name, tmp_path)
    assert outcome.passed, outcome
    assert {*outcome.fixed} <= {*GIVEN.get(name, "").split()}, outcome.why


def test_the_tables_name_models() -> None:
    assert {*QUICK, *GIVEN} <= zoo.exported().keys()
