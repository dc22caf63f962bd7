"""Ops, compiled for the host's cores behind SYCL, against onnxruntime: a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler.core.settings import load_settings
from compiler.runtime.vendor_runtimes import find_intel_runtime
from tests.support.merged_cases import assert_computes, merge, merged
from tests.support.op_cases import CASES

GROUPS = dict(merged(CASES, 16))
SAMPLE = list(GROUPS)[::9]
"""Each group takes SYCL's compiler ten seconds: every ninth is run."""


@pytest.fixture(scope="module", autouse=True)
def sycl_runtime() -> None:
    found = find_intel_runtime(load_settings())
    if found is None or found.sycl is None:
        pytest.skip("no SYCL runtime: pip install dpcpp-cpp-rt, or TK_SYCL_ROOT")


@pytest.mark.parametrize("name", SAMPLE)
def test_ops(name: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), "sycl-cpu", tmp_path)
