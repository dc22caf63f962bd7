"""Rules that `--without` names: what is made without one, and that it is there with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

import compiler
from compiler.stages.optional import CLUSTERS, FUSED_WINOGRAD, LAST_BLOCKS
from tests.support.onnx_models import model
from tests.support.op_cases import floats


def convolution(channels: int, size: int, window: int) -> Any:
    feeds = {"x": floats(1, channels, size, size)}
    known = {"w": floats(channels, channels, window, window)}
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[window // 2] * 4)
    return model([node], feeds, ["y"], known)


@pytest.mark.parametrize(
    ("name", "arch", "sizes", "sign"),
    [
        (CLUSTERS, "sm_90", (512, 7, 1), "__cluster_dims__"),
        (LAST_BLOCKS, "sm_80", (512, 7, 1), "tk_last_block("),
        (FUSED_WINOGRAD, "sm_90", (128, 56, 3), "winograd"),
    ],
)
def test_what_is_left_out_is_not_made(
    name: str, arch: str, sizes: tuple[int, int, int], sign: str, tmp_path: Path
) -> None:
    onnx.save(convolution(*sizes), tmp_path / "m.onnx")
    for ways in ({}, {"without": (name,)}, {"limits": {name: 0}}):
        options = compiler.CompileOptions(
            tmp_path / "m.so", target="cuda", arch=arch, dump=tmp_path / "d", stop_after="render", **ways
        )
        compiler.compile_model(tmp_path / "m.onnx", options)
        text = "".join(path.read_text() for path in (tmp_path / "d").rglob("*") if path.is_file())
        assert (sign in text) == (not ways)


def test_what_nobody_counts_has_no_limit(tmp_path: Path) -> None:
    onnx.save(convolution(8, 7, 1), tmp_path / "m.onnx")
    options = compiler.CompileOptions(tmp_path / "m.so", limits={CLUSTERS: 3})
    with pytest.raises(compiler.UsageError, match="`clusters` has no limit but 0"):
        compiler.compile_model(tmp_path / "m.onnx", options)
