"""Small networks of the zoo, compiled for CUDA and HIP, verify in the emulator; one with every test run."""

from __future__ import annotations

from pathlib import Path

import pytest

import compiler
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob
from tests.support.emulated_models import text_only
from toolchain import zoo

NETWORKS = (
    "mnist",
    "transformer-encoder",
    "transformer-encoder-decomposed",
    "squeezenet",
    "shufflenet",
    "mobilenetv2",
    "unet",
    "resnet18-v1",
    "efficientnet-lite4",
)
TARGETS = ("cuda-nvidia:sm_90", "rocm-amd:gfx90a")
"""With what older devices lack: asynchronous copies, clusters of blocks, units that multiply f32."""
MOST_ERROR = 1e-4
LIMIT_SECONDS = 3600.0


@pytest.mark.parametrize(
    "target", [TARGETS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TARGETS[1:])]
)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "mnist" else [pytest.mark.slow]) for name in NETWORKS]
)
def test_network(name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)
    model, library = tmp_path / "m.onnx", tmp_path / "m.so"
    zoo.make(name, model)
    options = compiler.CompileOptions(output=library, target=target)
    run_job(CompileJob.of(model, options))
    request = compiler.VerifyRequest(library, model, runs=1, device="emulator")
    verified = compiler.verify_library(request, timeout=LIMIT_SECONDS)
    assert verified.passed, verified.outputs
    assert verified.needed <= MOST_ERROR
