"""Spectra: what is exact in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compiler.frontend.onnx import import_proto
from compiler.graph.interpret import evaluate
from compiler.graph.rewrites import rewrite_graph
from tests.support.onnx_models import single


def test_twiddle_factors_of_zero_are_exact(tmp_path: Path) -> None:
    """Real signals have no imaginary part at frequency 0 and at the middle, not a small one."""
    x = np.stack([np.linspace(1, 99, 10), np.zeros(10)], -1)[None].astype(np.float32)
    proto, feeds = single("DFT", [x], {"axis": 1, "inverse": 1}, 17)
    (found,) = evaluate(rewrite_graph(import_proto(proto, tmp_path, {}, {})), feeds).values()
    assert found[0, [0, 5], 1].tolist() == [0, 0]
