"""Results as long as what a run finds: compiled without options, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler import CompileOptions
from tests.support.counted_models import COUNTED, RATES, feeds

SIZES = {"batched": ({"B": 2}, {"B": 1}, {"B": 5})}


def check(proto: onnx.ModelProto, library: Path, name: str, device: str | None = None) -> None:
    """Run after run with as many threads, each with another part of its inputs picked."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with compiler.load(library, device=device) as loaded:
        for threads in (1, 2):
            with loaded.context(threads) as context:
                for number, rate in enumerate(RATES):
                    sizes = SIZES.get(name, ({},))
                    given = feeds(proto, rate, sizes[number % len(sizes)])
                    got = context.run(given)
                    for item, want in zip(session.get_outputs(), session.run(None, given), strict=True):
                        assert got[item.name].shape == want.shape, f"{item.name}, {rate}"
                        np.testing.assert_allclose(got[item.name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", COUNTED)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    proto, library = COUNTED[name](), tmp_path / "m.so"
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", CompileOptions(output=library, target="cpu"))
    check(proto, library, name)
