"""Every op, compiled to OpenCL C and run by each driver for processors, against onnxruntime.

Schedules for GPUs run there, too: their work-groups, shared memory and barriers are the same.
"""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import compiler
from tests.support.merged_cases import merge, merged
from tests.support.onnx_models import assert_close
from tests.support.op_cases import CASES, Case

GROUPS = dict(merged(CASES, 24))


def sampled(step: int) -> list[object]:
    """The groups of ops; only every `step`-th runs with every test run."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=[] if n % step == 0 else [slow]) for n, name in enumerate(GROUPS)]


@pytest.mark.parametrize("name", sampled(3))
def test_ops_on_host_cores(name: str, opencl_driver: str, tmp_path: Path) -> None:
    assert_ops(name, GROUPS[name], "opencl-cpu", tmp_path, opencl_driver)


@pytest.mark.parametrize("target", ["opencl-nvidia", "opencl-amd", "opencl-hygon", "opencl-intel"])
@pytest.mark.parametrize("name", sampled(26))
def test_ops_as_for_gpus(name: str, target: str, opencl_driver: str, tmp_path: Path) -> None:
    assert_ops(name, GROUPS[name], target, tmp_path, f"any:{opencl_driver}")


def assert_ops(
    name: str, cases: tuple[Case, ...], target: str, directory: Path, device: str | None = None
) -> None:
    together = merge(name, cases)
    onnx.save(together.proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target=target)
    compiler.compile_model(directory / "m.onnx", options)
    with compiler.load(directory / "m.so", device=device) as model:
        got = model.run(together.feeds)
    problems = []
    for output, array in together.want.items():
        case = together.case_of(output)
        try:
            assert_close(got[output], array, max(case.tolerance, 1e-5), case.name)
        except AssertionError as error:
            problems.append(f"{case.name}: {str(error)[:600]}")
    assert not problems, "\n".join(problems)
