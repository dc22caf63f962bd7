"""The compilers of CUDA and HIP accept the kernels of every op; running them is what the emulator is for."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import compiler
from compiler.core.diagnostics import HostError
from compiler.core.settings import load_settings
from compiler.targets import get_target
from compiler.targets.device import Images, Module
from tests.support.merged_cases import merge, merged, typical_first
from tests.support.op_cases import CASES, Case, floats

GROUPS = dict(merged(CASES, 24))
TARGETS = ("cuda:sm_70", "rocm:gfx906")


def build(name: str, cases: tuple[Case, ...], target: str, directory: Path) -> tuple[str, Images]:
    """The module of some ops and what its compiler made of it; skips where there is no compiler."""
    onnx.save(merge(name, cases).proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "source", target=target, emit="source")
    compiler.compile_model(directory / "m.onnx", options)
    made = get_target(target)
    assert made.device is not None
    text = (directory / "source" / f"kernels{made.device.suffix}").read_text()
    settings = load_settings({"HOME": str(directory), "TK_CACHE_DIR": str(directory / "cache")})
    try:
        return text, made.device.build(Module(text, (), "0"), made, settings)
    except HostError as error:
        pytest.skip(str(error))


@pytest.mark.sample(20, each=("target",))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", typical_first(GROUPS))
def test_ops(name: str, target: str, tmp_path: Path) -> None:
    text, images = build(name, GROUPS[name], target, tmp_path)
    assert len(images.resources) == text.count('extern "C" __global__')
    assert all(row.registers for row in images.resources)


def test_kernels_whose_shared_memory_copies_alone_fill(tmp_path: Path) -> None:
    case = Case("MatMul", [floats(256, 128), floats(128, 256)], known=(1,))
    text, images = build("copies", (case,), "cuda:sm_80", tmp_path)
    assert "tk_async_wait<" in text[text.index("// tk_k0_0") :]
    assert all(row.registers and not row.spills for row in images.resources)
