"""CUDA kernels wait for the launch before in front of their first use of what it wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from tests.support.onnx_models import model

_KERNEL = re.compile(r"__global__ void [^\n]*?(tk_k\w+)\(([^)\n]*)\) \{\n(.*?)\n\}\n", re.DOTALL)
AWAIT = "tk_await_earlier();"
Kernel = tuple[dict[str, str], dict[str, str], str]
"""Declarations and numbers of elements of its parameters by name, and its body."""


def convolutions(channels: int, size: int) -> onnx.ModelProto:
    """Two of 3 x 3 with padding: the second one reads what the first one wrote."""
    numbers = np.random.default_rng(0)
    shape = (channels, channels, 3, 3)
    constants = {name: numbers.standard_normal(shape, dtype=np.float32) for name in ("v", "w")}
    pads = {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["h"], **pads),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["y"], **pads),
    ]
    return model(nodes, {"x": np.zeros((1, channels, size, size), np.float32)}, ["y"], constants)


def kernels(directory: Path, network: onnx.ModelProto, precision: str) -> Iterator[Kernel]:
    """The kernels for sm_90."""
    path = directory / "model.onnx"
    path.write_bytes(network.SerializeToString())
    options = compiler.CompileOptions(
        output=directory / "source", target="cuda:sm_90", precision=precision, emit="source"
    )
    compiler.compile_model(path, options)
    text = (directory / "source" / "kernels.cu").read_text()
    found = [(params, body) for _, params, body in _KERNEL.findall(text)]
    sizes = [dict(re.findall(r"(b\d+)\[(\d+)\]", line)) for line in re.findall(r"// tk_k.*", text)]
    for (params, body), known in zip(found, sizes, strict=True):
        yield {one.split()[-1]: one for one in params.split(", ")}, known, body


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_nothing_that_launches_make_is_used_before_the_wait(precision: str, tmp_path: Path) -> None:
    """Only constants may be read there, and compilers may take reads of nothing else to there."""
    constants = 0
    for params, sizes, body in kernels(tmp_path, convolutions(64, 14), precision):
        before, wait, _ = body.partition(AWAIT)
        assert wait
        assert body.count(AWAIT) == 1
        made = {name for name in params if sizes[name] != str(64 * 64 * 9)}
        constants += len(params) - len(made)
        for name, declared in params.items():
            restrict = name not in made or not declared.startswith("const")
            assert ("__restrict__" in declared) == restrict, declared
        for line in before.splitlines():
            pointer = re.match(r"\s*(?:const )?\w+ \* ?(?:__restrict__ )?(p\d+) = (b\d+)\b", line)
            if pointer and pointer[2] in made:
                made.add(pointer[1])
            elif not pointer:
                assert not made & set(re.findall(r"\b[bp]\d+\b", line)), line
    assert constants == 2
