"""Every op, compiled to OpenCL C and run by each driver for processors, against onnxruntime.

Schedules for GPUs run there, too: their work-groups, shared memory and barriers are the same. With every run
of the tests each group of typical cases is on some driver, and each kind of GPU is there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.merged_cases import assert_computes, merge, merged, typical_first
from tests.support.op_cases import CASES

GROUPS = dict(merged(CASES, 24))
GPUS = ("opencl-nvidia", "opencl-amd", "opencl-hygon", "opencl-intel")


@pytest.mark.sample(8, each=("name",))
@pytest.mark.parametrize("name", typical_first(GROUPS))
def test_ops_on_host_cores(name: str, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), "opencl-cpu", tmp_path, opencl_driver)


@pytest.mark.sample(16, each=("name", "target"))
@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("name", typical_first(GROUPS))
def test_ops_as_for_gpus(name: str, target: str, opencl_driver: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), target, tmp_path, f"any:{opencl_driver}")
