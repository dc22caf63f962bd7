"""Random graphs and networks of many seeds, side by side in few models."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx
import pytest

from tests.support.merged_cases import Merged, Part, join
from tests.support.onnx_models import run_onnxruntime

MOST_ERROR = 1e-4
RandomModel = Callable[[int], tuple[onnx.ModelProto, dict[str, np.ndarray]]]


def in_groups(every: range, size: int, usual: int, more: Iterable[int] = ()) -> list[object]:
    """Parameters of a test: seeds in groups; the first `usual` seeds and `more` run with every test run."""
    often = [one for one in (tuple(every[:usual]), tuple(more)) if one]
    rare = [tuple(every[at : at + size]) for at in range(usual, len(every), size)]
    return [
        *(pytest.param(one, id=_name(one)) for one in often),
        *(pytest.param(one, id=_name(one), marks=pytest.mark.slow) for one in rare),
    ]


def _name(seeds: tuple[int, ...]) -> str:
    return "-".join(str(one) for one in dict.fromkeys((seeds[0], seeds[-1])))


def together(random: RandomModel, seeds: Iterable[int]) -> Merged:
    """One model of the models that the seeds give."""
    parts = []
    for seed in seeds:
        proto, feeds = random(seed)
        want = run_onnxruntime(proto, feeds, optimise=False)
        parts.append(Part(f"seed {seed}", proto, feeds, want, MOST_ERROR))
    return join("random", parts)
