"""What exporters write compiles with free dimensions, and is equal to onnxruntime at five sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporters.trial import attempt
from toolchain import zoo

QUICK = {"tiny-logistic", "tiny-forest", "tiny-latents-dynamo"}
"""One each of a pipeline, trees and a network, in every run of the tests; `just exporters` tries all."""
GIVEN = {
    "tiny-pyramid": "height width",
    "tiny-diffusion": "height width tokens",
    "tiny-diffusion-dynamo": "height width tokens",
}
"""Dimensions that may have to be given a value, by model: places of images become one axis, a product."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.slow]) for one in zoo.exported()]
)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    outcome = attempt(name, tmp_path)
    assert outcome.passed, outcome
    assert {*outcome.fixed} <= {*GIVEN.get(name, "").split()}, outcome.why


def test_the_tables_name_models() -> None:
    assert {*QUICK, *GIVEN} <= zoo.exported().keys()
