"""Indices that are loaded themselves: under a mask, no lane beyond it reads memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

import compiler
from tests.support.onnx_models import model


def test_indices_behind_the_end_are_not_read(tmp_path: Path) -> None:
    given = {"x": np.zeros((1, 13), np.float32), "i": np.zeros((1, 13), np.int64)}
    node = helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1)
    onnx.save(model([node], given, ["y"]), tmp_path / "m.onnx")
    options = compiler.CompileOptions(
        output=tmp_path / "m.so", arch="x86-64-v3", dump=tmp_path / "dump", stop_after="render"
    )
    compiler.compile_model(tmp_path / "m.onnx", options)
    (text,) = ((tmp_path / "dump" / "50-render" / "k000.cpp").read_text(),)
    assert "tk_load<tk_i64x4>(b1 + 8)" in text
    assert "tk_load<tk_i64x4>(b1 + 12)" not in text
