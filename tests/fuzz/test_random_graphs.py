"""200 random graphs: imported, rewritten and interpreted, they compute what onnxruntime computes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from compiler.frontend.onnx import import_proto
from compiler.graph.fuse import fuse
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Graph, Value, verify
from compiler.graph.rewrites import rewrite_graph
from tests.support.onnx_models import assert_close, run_onnxruntime
from tests.support.random_graphs import random_model

SEEDS = range(200)


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_graph_means_what_onnxruntime_computes(seed: int, tmp_path: Path) -> None:
    proto, feeds = random_model(seed)
    want = run_onnxruntime(proto, feeds, optimise=False)
    graph = import_proto(proto, tmp_path, {}, {})
    verify(graph)
    canonical = rewrite_graph(graph, [lambda event: verify(event.after)])
    for stage in (graph, canonical):
        got = evaluate(stage, feeds)
        for name, array in want.items():
            assert_close(got[name], array, 1e-4, f"seed {seed}, output {name}\n{stage}")
    check_groups(canonical)


def check_groups(graph: Graph) -> None:
    """Groups run in order: what one reads exists; together with the views they make every output."""
    fused = fuse(graph)
    exists: set[Value] = {*graph.inputs, *graph.constants}
    views = list(fused.views)
    for group in fused.groups:
        settle(views, exists)
        assert set(group.inputs) <= exists, f"{group} reads what is not there yet"
        inside = set(group.inputs)
        for item in group.nodes:
            assert set(item.inputs) <= inside
            inside.update(item.outputs)
        assert len(group.outputs) == 1
        exists.update(group.outputs)
    settle(views, exists)
    assert not views
    assert set(graph.outputs) <= exists


def settle(views: list[tuple[Value, Value]], exists: set[Value]) -> None:
    for pair in list(views):
        if pair[0] in exists:
            exists.add(pair[1])
            views.remove(pair)


def test_graphs_are_varied() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        proto, _ = random_model(seed)
        seen.update({item.op_type for item in proto.graph.node})
    assert len(seen) >= 50
    assert min(seen.values()) >= 3


def test_a_seed_gives_one_graph() -> None:
    first, feeds = random_model(5)
    second, again = random_model(5)
    assert first.SerializeToString() == second.SerializeToString()
    assert all(np.array_equal(feeds[name], again[name]) for name in feeds)
