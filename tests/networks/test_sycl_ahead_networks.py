"""SYCL ahead of time, every network of the zoo: what DPC++ would get passes host compilers, and to SPIR-V.

Both passes take the SYCL headers and the compiler of Intel's runtime; DPC++ itself takes no part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler import CompileOptions
from compiler.pipeline import run_job
from compiler.runtime.vendor_runtimes import IntelRuntime
from compiler.stages.job import CompileJob
from compiler.targets import get_target
from compiler.targets.sycl_tools import module_text
from tests.support import gpu_images, sycl_ahead
from tests.support.gpu_images import Row
from tests.support.sycl_ahead import HOST_COMPILERS
from toolchain import zoo

LEFT_OUT = {"perceptron-2gb"}
QUICK = ("mnist", "sycl-intel")
SEVERAL = ("mnist", "squeezenet", "transformer-encoder-decomposed")
"""Networks with every kind of kernel, tried for other vendors, too: numbers in their texts differ."""
CASES = [
    *((name, "sycl-intel") for name in zoo.networks() if name not in LEFT_OUT),
    *((name, target) for name in SEVERAL for target in ("sycl-nvidia", "sycl-amd")),
]
MODEL = "0a1b2c3d"


@pytest.mark.parametrize(
    ("name", "target"),
    [pytest.param(*case, marks=[] if case == QUICK else [pytest.mark.slow]) for case in CASES],
)
def test_both_passes(
    name: str,
    target: str,
    sycl_runtime: IntelRuntime,
    spirv_compiler: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    started = gpu_images.now()
    text, functions = module(name, target, tmp_path)
    arch = get_target(target).archs[0]
    for names in HOST_COMPILERS[:1] if (name, target) == QUICK else HOST_COMPILERS:
        cxx = sycl_ahead.host_compiler(names)
        done = sycl_ahead.host_pass(text, arch, cxx, sycl_runtime, tmp_path)
        assert done.returncode == 0, done.stderr[:3000]
    done, made = sycl_ahead.device_pass(text, arch, spirv_compiler, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
    entries = gpu_images.spirv_entries(made)
    assert [sum(f"{one}_kernel_" in entry for entry in entries) for one in functions] == [1] * len(functions)
    gpu_images.tell(
        Row(name, f"{target}:{arch} ahead", gpu_images.since(started), len(functions)), record_property
    )


def module(name: str, target: str, directory: Path) -> tuple[str, list[str]]:
    """The text of a network's kernels with what stands before it, and the names of its device functions."""
    model, sources = directory / "m.onnx", directory / "sources"
    zoo.make(name, model)
    options = CompileOptions(output=sources, target=target, emit="source")
    run_job(CompileJob.of(model, options))
    model.unlink()
    text = (sources / "kernels.cpp").read_text()
    functions = re.findall(r"^TK_KERNEL\((\w+),", text, re.MULTILINE)
    return module_text(text, MODEL, get_target(target).facts.subgroup_sizes[0]), functions
