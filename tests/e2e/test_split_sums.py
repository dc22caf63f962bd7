"""Long sums with few results are cut into chunks: CUDA and HIP text in the emulator, and its replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from onnx import helper

import compiler
from compiler.library_inspection import inspect_library
from compiler.reports import LibraryReport
from tests.support.emulated_models import TARGETS, emulate, text_only
from tests.support.merged_cases import merge
from tests.support.onnx_models import assert_close, model, run_onnxruntime
from tests.support.op_cases import Case, floats

WINDOW = {"pads": [1, 1, 1, 1]}
CASES = (
    Case(
        "Conv",
        [floats(1, 512, 5, 5), floats(40, 512, 3, 3), floats(40)],
        WINDOW,
        known=(1, 2),
        tolerance=1e-4,
    ),
    Case(
        "Conv", [floats(1, 768, 7, 7), floats(24, 768, 1, 1)], {"strides": [2, 2]}, known=(1,), tolerance=1e-4
    ),
    Case(
        "Conv",
        [floats(2, 1024, 4, 4), floats(16, 512, 3, 3)],
        {"group": 2, **WINDOW},
        known=(1,),
        tolerance=1e-4,
    ),
    Case(
        "Gemm", [floats(5, 1500), floats(30, 1500), floats(30)], {"transB": 1}, known=(1, 2), tolerance=1e-4
    ),
    Case("MatMul", [floats(2, 6, 1024), floats(2, 1024, 20)], tolerance=1e-4),
)
ONE_QUICK = [TARGETS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TARGETS[1:])]


@pytest.fixture(autouse=True)
def _text_only(monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)


def launches(library: Path) -> tuple[LibraryReport, list[int]]:
    """What is in a library, and how many launches its kernels take."""
    report = inspect_library(library, check=True)
    return report, [len(item.launches) for item in report.kernels]


@pytest.mark.parametrize(
    "cases", [CASES[2:4], pytest.param(CASES, marks=pytest.mark.slow)], ids=["few", "all"]
)
@pytest.mark.parametrize("target", ONE_QUICK)
def test_as_onnxruntime(target: str, cases: Sequence[Case], tmp_path: Path) -> None:
    together = merge("sums", cases)
    got = emulate(together.proto, together.feeds, target, tmp_path)
    problems = together.problems(got)
    assert not problems, "\n".join(problems)
    report, counts = launches(tmp_path / f"{target}.so")
    several = [item.op == "MatMul" or item.attrs.get("group", 1) > 1 for item in cases]
    assert counts == [1 + one for one in several], "the last block adds up, but for sums side by side"
    assert all(item.replays for item in report.kernels)
    assert report.module_replays
    assert all(item.launches[0].grid[2] > 1 for item in report.kernels), "the chunks lie along z"
    assert report.arena_bytes > 0, "the parts have a place among the intermediates"


@pytest.mark.parametrize("target", ONE_QUICK)
def test_what_follows_is_done_by_the_last_block(target: str, tmp_path: Path) -> None:
    feeds = {"x": floats(1, 512, 5, 5), "other": floats(1, 40, 5, 5)}
    known = {"w": floats(40, 512, 3, 3), "bias": floats(40)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "bias"], ["c"], **WINDOW),
        helper.make_node("Add", ["c", "other"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    proto = model(nodes, feeds, ["y"], known)
    got = emulate(proto, feeds, target, tmp_path)
    assert_close(got["y"], run_onnxruntime(proto, feeds)["y"], 1e-4, target)
    assert launches(tmp_path / f"{target}.so")[1] == [1]


@pytest.mark.parametrize("target", ["cuda-nvidia:sm_80", "rocm-amd:gfx90a"])
def test_runs_of_one_context_begin_at_zero(target: str, tmp_path: Path) -> None:
    """Each launch leaves its counters as they were, and each sample of a free batch has its own."""
    feeds = [{"x": floats(count, 512, 5, 5)} for count in (1, 3, 3, 2, 1)]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], **WINDOW),
        helper.make_node("Conv", ["c", "v"], ["y"], **WINDOW),
    ]
    proto = model(nodes, feeds[0], ["y"], {"w": floats(256, 512, 3, 3), "v": floats(24, 256, 3, 3)})
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    emulate(proto, feeds[0], target, tmp_path)
    assert 1 in launches(tmp_path / f"{target}.so")[1], "at least the second sum"
    with compiler.load(tmp_path / f"{target}.so", device="emulator") as loaded:
        for feed in feeds:
            assert_close(loaded.run(feed)["y"], run_onnxruntime(proto, feed)["y"], 1e-3, target)


def test_clusters_add_chunks_up_in_one_launch(tmp_path: Path) -> None:
    """But for several sums of products side by side, whose number lies along the axis of a cluster."""
    together = merge("sums", CASES[1:3])
    got = emulate(together.proto, together.feeds, "cuda-nvidia:sm_90", tmp_path)
    problems = together.problems(got)
    assert not problems, "\n".join(problems)
    report, counts = launches(tmp_path / "cuda-nvidia:sm_90.so")
    assert counts == [1, 2]
    assert all(item.replays for item in report.kernels)
    assert report.module_replays


def test_many_results_are_not_cut(tmp_path: Path) -> None:
    case = Case("Conv", [floats(1, 64, 40, 40), floats(64, 64, 1, 1)], known=(1,))
    together = merge("wide", [case])
    emulate(together.proto, together.feeds, "cuda-nvidia", tmp_path)
    assert launches(tmp_path / "cuda-nvidia.so")[1] == [1]
