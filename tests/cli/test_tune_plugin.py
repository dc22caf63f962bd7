"""A rule of a plugin wins a search, and what was found is compiled with where the plugin is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.runtime.manifest import manifest_of
from tests.support.command import tk
from tests.support.onnx_models import model

PLUGIN = Path(__file__).parents[2] / "examples" / "plugins" / "scan_rule.py"
X = np.random.default_rng(0).standard_normal((512, 256)).astype(np.float32)
VECTORS = "scan_columns.vectors"
pytestmark = pytest.mark.slow
"""A search as typed; that searches take a plugin's rule: tests/e2e/test_plugins.py."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one running sum down columns, for which the built-in rules walk one column at a time."""
    directory = tmp_path_factory.mktemp("plugin")
    node = helper.make_node("CumSum", ["x", "axis"], ["y"], name="down")
    onnx.save(model([node], {"x": X}, ["y"], {"axis": np.array(0, np.int64)}), directory / "m.onnx")
    return directory


@pytest.fixture(scope="module")
def found(folder: Path) -> Any:
    """What a search found with the plugin."""
    words = ("tune", "m.onnx", "--threads", 1, "--time", "5m", "--min-gain", 0, "--trials", 8, "--db", "t.db")
    done = tk(*words, "--plugin", PLUGIN, "--json", cwd=folder)
    assert done.code == 0, done.err
    return done.json


def test_the_rule_wins(folder: Path, found: Any) -> None:
    """It takes a sixth of the time of the built-in rules; half of it is asked for."""
    (kernel,) = found["kernels"]
    before, after = kernel["changed"][VECTORS]
    assert (before, kernel["kept"], kernel["failures"]) == ([0], True, {}), kernel
    assert after != [0]
    assert kernel["changed"]["rule.scan_columns"] == [None, [1]]
    assert kernel["best_ms"] < 0.5 * kernel["default_ms"]
    got = compiler.load(folder / "m.so").run({"x": X})["y"]
    np.testing.assert_allclose(got, X.cumsum(axis=0), rtol=1e-4, atol=1e-4)


def test_a_compile_takes_it_with_the_plugin_only(folder: Path, found: Any) -> None:
    words = ("compile", "m.onnx", "--threads", 1, "--db", "t.db", "--no-db")
    done = tk(*words, "-o", "with.so", "--plugin", PLUGIN, cwd=folder)
    assert done.code == 0, done.err
    (kernel,) = manifest_of(folder / "with.so")["kernels"]
    assert kernel["record"] == found["kernels"][0]["record"]
    assert kernel["decisions"][VECTORS] == found["kernels"][0]["changed"][VECTORS][1]
    done = tk(*words, "-o", "without.so", cwd=folder)
    assert done.code == 0, done.err
    (kernel,) = manifest_of(folder / "without.so")["kernels"]
    assert not kernel.get("record")
    assert VECTORS not in kernel["decisions"]
