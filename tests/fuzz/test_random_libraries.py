"""200 random graphs: compiled, they compute what onnxruntime computes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import compiler
from tests.support.onnx_models import assert_close, run_onnxruntime
from tests.support.random_graphs import random_model

ALL = range(200)
USUAL = 20
"""These run with every test run, the others are slow together."""
ONCE_BROKEN = (543, 555)
SEEDS = [
    *(pytest.param(seed, marks=[pytest.mark.slow] if seed >= USUAL and seed != 32 else []) for seed in ALL),
    *ONCE_BROKEN,
]


@pytest.mark.parametrize("seed", SEEDS)
def test_library_computes_what_onnxruntime_computes(seed: int, tmp_path: Path) -> None:
    proto, feeds = random_model(seed)
    want = run_onnxruntime(proto, feeds, optimise=False)
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", compiler.CompileOptions(output=tmp_path / "m.so"))
    for threads in (1, 3):
        with compiler.load(tmp_path / "m.so", threads=threads) as model:
            got = model.run(feeds)
        assert got.keys() == want.keys()
        for name, array in want.items():
            assert_close(got[name], array, 1e-4, f"seed {seed}, {threads} threads, output {name}")
    report = compiler.inspect_library(tmp_path / "m.so", check=True)
    assert [one.index for one in report.kernels if not one.replays] == []
