"""Ops, compiled for the host's cores behind SYCL, against onnxruntime: a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.merged_cases import assert_computes, merge, merged, typical_first
from tests.support.op_cases import CASES
from tests.support.sycl_fixtures import need_sycl

GROUPS = dict(merged(CASES, 16))
SAMPLE = list(GROUPS)[3::9]
"""Each group takes SYCL's compiler ten seconds: every ninth is run."""


@pytest.mark.parametrize("name", typical_first(SAMPLE))
def test_ops(name: str, tmp_path: Path) -> None:
    need_sycl()
    assert_computes(merge(name, GROUPS[name]), "sycl-cpu", tmp_path)
