"""Dimensions that a run decides by what it finds: their graph, interpreted, beside onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from compiler.graph.interpret import evaluate
from compiler.graph.rewrites import rewrite_graph
from tests.support.counted_models import COUNTED, RATES, feeds
from tests.unit.stages.test_free_sizes import imported

SIZES = {"batched": {"B": 3}}


@pytest.mark.parametrize("name", COUNTED)
def test_results_are_as_long_as_those_of_onnxruntime(name: str, tmp_path: Path) -> None:
    proto = COUNTED[name]()
    graph = imported(proto, tmp_path)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for one in (graph, rewrite_graph(graph)):
        for rate in RATES:
            given = feeds(proto, rate, SIZES.get(name))
            got = evaluate(one, given)
            for item, want in zip(session.get_outputs(), session.run(None, given), strict=True):
                np.testing.assert_allclose(got[item.name], want, rtol=1e-5, err_msg=f"{item.name}, {rate}")
