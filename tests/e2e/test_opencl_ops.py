"""Every op, compiled for the host's cores behind OpenCL, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import compiler
from compiler.core.diagnostics import HostError
from tests.support.merged_cases import merge, merged
from tests.support.onnx_models import assert_close
from tests.support.op_cases import CASES, Case

GROUPS = dict(merged(CASES, 24))


@pytest.mark.parametrize("name", GROUPS)
def test_ops(name: str, tmp_path: Path) -> None:
    assert_ops(name, GROUPS[name], "opencl-cpu", tmp_path)


def assert_ops(name: str, cases: tuple[Case, ...], target: str, directory: Path) -> None:
    together = merge(name, cases)
    onnx.save(together.proto, directory / "m.onnx")
    compiler.compile_model(
        directory / "m.onnx", compiler.CompileOptions(output=directory / "m.so", target=target)
    )
    try:
        model = compiler.load(directory / "m.so")
    except HostError as error:
        pytest.skip(str(error))
    with model:
        got = model.run(together.feeds)
    problems = []
    for output, array in together.want.items():
        case = together.case_of(output)
        try:
            assert_close(got[output], array, max(case.tolerance, 1e-5), case.name)
        except AssertionError as error:
            problems.append(f"{case.name}: {str(error)[:600]}")
    assert not problems, "\n".join(problems)
