"""Every op, compiled to OpenCL C and run by each driver for processors, against onnxruntime.

Schedules for GPUs run there, too: their work-groups, shared memory and barriers are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.merged_cases import assert_computes, merge, merged
from tests.support.op_cases import CASES

GROUPS = dict(merged(CASES, 24))


GPUS = ("opencl-nvidia", "opencl-amd", "opencl-hygon", "opencl-intel")


def sampled(cases: Iterable[object], step: int) -> list[object]:
    """All cases; only every `step`-th runs with every test run."""
    slow = pytest.mark.slow
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=[] if n % step == 0 else [slow])
        for n, case in enumerate(cases)
    ]


@pytest.mark.parametrize("name", sampled(GROUPS, 6))
def test_ops_on_host_cores(name: str, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), "opencl-cpu", tmp_path, opencl_driver)


@pytest.mark.parametrize(("name", "target"), sampled(itertools.product(GROUPS, GPUS), 29))
def test_ops_as_for_gpus(name: str, target: str, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), target, tmp_path, f"any:{opencl_driver}")
