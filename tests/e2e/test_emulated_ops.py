"""Every op, compiled for CUDA and HIP, in the emulator against onnxruntime; some with every test run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.emulated_models import TARGETS, emulate, text_only
from tests.support.merged_cases import merge, merged, typical_first
from tests.support.onnx_models import assert_close, run_onnxruntime
from tests.support.op_cases import CASES
from tests.support.random_graphs import random_model
from tests.support.random_networks import random_network
from tests.test_tiny import X, expected, tiny

GROUPS = dict(merged(CASES, 24))
SEEDS = range(24)


@pytest.fixture(autouse=True)
def _text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)


@pytest.mark.parametrize("target", TARGETS)
def test_tiny(target: str, tmp_path: Path) -> None:
    got = emulate(tiny(), {"x": X}, target, tmp_path)
    assert_close(got["y"], expected().astype(np.float32), 1e-5, target)


@pytest.mark.sample(24)
@pytest.mark.parametrize("group", typical_first(GROUPS))
@pytest.mark.parametrize("target", TARGETS)
def test_ops(target: str, group: str, tmp_path: Path) -> None:
    together = merge(group, GROUPS[group])
    got = emulate(together.proto, together.feeds, target, tmp_path)
    problems = together.problems(got)
    assert not problems, "\n".join(problems)


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", TARGETS)
def test_random_networks(target: str, seed: int, tmp_path: Path) -> None:
    _assert_as_onnxruntime(*random_network(seed), target, tmp_path)


@pytest.mark.sample(24)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", TARGETS)
def test_random_graphs(target: str, seed: int, tmp_path: Path) -> None:
    _assert_as_onnxruntime(*random_model(seed), target, tmp_path)


def _assert_as_onnxruntime(
    proto: onnx.ModelProto, feeds: dict[str, np.ndarray], target: str, directory: Path
) -> None:
    want = run_onnxruntime(proto, feeds, optimise=False)
    got = emulate(proto, feeds, target, directory)
    assert got.keys() == want.keys()
    for name, array in want.items():
        assert_close(got[name], array, 1e-4, f"{target}, output {name}")
