"""Whether tests can run SYCL here."""

from __future__ import annotations

import pytest

from compiler.core.settings import load_settings
from compiler.runtime.vendor_runtimes import find_intel_runtime


def need_sycl() -> None:
    """Skip the test where there is no SYCL runtime."""
    found = find_intel_runtime(load_settings())
    if found is None or found.sycl is None:
        pytest.skip("no SYCL runtime: pip install dpcpp-cpp-rt, or TK_SYCL_ROOT")
