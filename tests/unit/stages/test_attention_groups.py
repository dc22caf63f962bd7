"""What of an attention is one kernel on devices, as the job's target and options ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.graph.ir import Graph
from compiler.reports import CompileOptions
from compiler.stages.groups import fused_groups
from compiler.stages.job import CompileJob
from tests.support.sketch import Sketch


def attention() -> Graph:
    s = Sketch()
    x = s.emit("MatMul", s.input(2, 32, 16), s.input(2, 16, 48))
    return s.graph(s.emit("MatMul", s.emit("Softmax", x, axis=2, flatten=False), s.input(2, 48, 16)))


@pytest.mark.parametrize(
    ("target", "without", "count"),
    [
        ("cuda:sm_80", (), 1),
        ("cuda:sm_80", ("fuse-scores",), 2),
        ("cuda:sm_80", ("fuse-attention",), 3),
        ("cpu:x86-64-v3", ("fuse-scores",), 1),
    ],
)
def test_kernels(target: str, without: tuple[str, ...], count: int, tmp_path: Path) -> None:
    options = CompileOptions(tmp_path / "m.so", target, without=without)
    job = CompileJob.of(tmp_path / "m.onnx", options)
    assert len(fused_groups(attention(), job).groups) == count
