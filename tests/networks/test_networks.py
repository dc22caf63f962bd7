"""Every network of the zoo compiles, runs and verifies, at one and at two threads."""

from __future__ import annotations

from pathlib import Path

import pytest

import compiler
from toolchain import zoo

# Larger than one protobuf message: tests/runtime covers such constants with less work.
LEFT_OUT = {"perceptron-2gb"}
MOST_ERROR = 1e-4


NETWORKS = [name for name in zoo.networks() if name not in LEFT_OUT]


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, tmp_path: Path) -> None:
    model, library = tmp_path / f"{name}.onnx", tmp_path / f"{name}.so"
    zoo.make(name, model)
    report = compiler.compile_model(model, compiler.CompileOptions(output=library))
    assert report.library_bytes <= report.constant_bytes + 2_000_000
    for threads in (1, 2):
        verified = compiler.verify_library(compiler.VerifyRequest(library, model, threads=threads))
        assert verified.passed, verified.outputs
        assert verified.needed <= MOST_ERROR
        assert verified.reference.startswith("onnxruntime")
    model.unlink()
    library.unlink()
