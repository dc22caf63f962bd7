"""Rows are added up by shuffles: CUDA and HIP text in the emulator, with sub-groups of 32 and 64 lanes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.core.diagnostics import TkError
from tests.support.emulated_models import emulate, text_only
from tests.support.merged_cases import merge
from tests.support.op_cases import Case, floats, i64

TARGETS = ("cuda-nvidia", "rocm-amd", pytest.param("rocm-amd:gfx1030", marks=pytest.mark.slow))
SHUFFLE = re.compile(r"tk_subgroup_shuffle_xor\((.*?), (\d+)\)")
CASES = (
    Case("Softmax", [60 * floats(3, 150)], {"axis": -1}),  # several sub-groups for a row
    Case("Softmax", [60 * floats(2, 512, 2, 64)], {"axis": -1}),  # several rows for a block
    Case("Softmax", [60 * floats(2, 70, 9)], {"axis": 1}),  # elements of a row lie apart
    Case("LogSoftmax", [floats(1, 1000)], {"axis": -1}),
    Case("LayerNormalization", [floats(2, 17, 96), floats(96), floats(96)], {"axis": -1}, known=(1, 2)),
    Case("ReduceMean", [floats(5, 8, 133)], {"axes": [2]}),
    Case("ReduceMax", [floats(7, 65)], {"axes": [1]}),
    Case("ReduceMin", [floats(640, 64)], {"axes": [1]}),
    Case("ReduceProd", [floats(4, 66, low=0.8, high=1.2)], {"axes": [1]}),
    Case("ReduceSum", [floats(9, 333), i64(1)], known=(1,)),
    Case("ReduceL2", [floats(2, 3, 8, 16)], {"axes": [2, 3]}),
    Case("GlobalAveragePool", [floats(2, 5, 9, 11)]),
    Case("Gemm", [floats(1, 400), floats(50, 400), floats(50)], {"transB": 1}, known=(1, 2)),
    Case("MatMul", [floats(1, 300), floats(300, 20)], known=(1,)),
)


@pytest.mark.parametrize("target", TARGETS)
def test_as_onnxruntime(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def kept(text: str) -> str:
        seen.append(text)
        return text

    text_only(monkeypatch, kept)
    together = merge("rows", CASES)
    got = emulate(together.proto, together.feeds, target, tmp_path)
    problems = together.problems(got)
    assert not problems, "\n".join(problems)
    widths = {int(step) for _, step in SHUFFLE.findall(seen[0])}
    assert max(widths) == (32 if target == "rocm-amd" else 16), "half of the lanes of a sub-group"


def _step(change: Callable[[int], int]) -> Callable[[str], str]:
    """Another distance of every exchange."""
    return lambda text: SHUFFLE.sub(lambda m: f"tk_subgroup_shuffle_xor({m[1]}, {change(int(m[2]))})", text)


def _half(text: str) -> str:
    """Every second thread does not take part."""
    return SHUFFLE.sub(lambda m: f"(threadIdx.x % 2 ? {m[0]} : {m[1]})", text)


def test_the_emulator_finds_lanes_that_do_not_take_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_only(monkeypatch, lambda text: _kernels(text, _half))
    together = merge("one", CASES[:1])
    with pytest.raises(TkError, match="divergent sub-group operation"):
        emulate(together.proto, together.feeds, "cuda-nvidia", tmp_path)


@pytest.mark.parametrize("change", [lambda _: 1, lambda step: 2 * step], ids=["the same", "too far"])
def test_wrong_distances_show(
    change: Callable[[int], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_only(monkeypatch, lambda text: _kernels(text, _step(change)))
    together = merge("one", CASES[:1])
    assert together.problems(emulate(together.proto, together.feeds, "cuda-nvidia", tmp_path))


def _kernels(text: str, change: Callable[[str], str]) -> str:
    """The text with the kernels changed, and the prelude as it was."""
    at = text.index('extern "C" __global__')
    assert SHUFFLE.search(text[at:])
    return text[:at] + change(text[at:])
