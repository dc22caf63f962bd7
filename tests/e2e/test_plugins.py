"""`tk compile --plugin`: what plugins add is in the library, in its manifest, and in the key of the cache."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.loops.build import Builder
from compiler.stages.plugins import load_plugins
from compiler.stages.workload import Workload
from compiler.targets import get_target
from compiler.tune.candidate import KernelCandidate
from compiler.tune.record import OK, Measured
from compiler.tune.strategies.evolution import Evolution
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import RandomSearch
from tests.support.command import ROOT, tk
from tests.support.onnx_models import model

EXAMPLES = ROOT / "examples" / "plugins"
X = np.linspace(-1, 1, 64 * 256, dtype=np.float32).reshape(64, 256)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    axes = {"axes": np.array([1])}
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    onnx.save(model([node], {"x": X}, ["y"], axes), tmp_path / "rows.onnx")
    return tmp_path / "rows.onnx"


@pytest.fixture
def cubes(tmp_path: Path) -> Path:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Cube", ["r"], ["c"], domain="com.example", factor=0.5),
        helper.make_node("Add", ["c", "x"], ["y"]),
    ]
    imports = [helper.make_opsetid("com.example", 1)]
    onnx.save(model(nodes, {"x": X}, ["y"], imports=imports), tmp_path / "cubes.onnx")
    return tmp_path / "cubes.onnx"


def outputs(library: Path) -> np.ndarray:
    found = compiler.load(library).run({"x": X})["y"]
    return np.asarray(found)


def test_a_rule_that_the_compile_uses(rows: Path) -> None:
    library = rows.with_suffix(".so")
    done = tk("compile", rows, "-o", library, "--plugin", EXAMPLES / "rows_rule.py")
    assert done.code == 0, done.err
    manifest = compiler.manifest_of(library)
    (kernel,) = manifest["kernels"]
    assert kernel["decisions"] == {"sum_rows.vectors": [8], "rule.sum_rows": [1]}
    assert any(step["do"] == "rfactor" for step in json.loads(kernel["trace"])["instructions"])
    assert [one["name"] for one in manifest["plugins"]] == ["rows_rule.py"]
    np.testing.assert_allclose(outputs(library), X.sum(axis=1), rtol=1e-4, atol=1e-4)


def test_a_library_is_in_the_cache_by_its_plugins(rows: Path, tmp_path: Path) -> None:
    """With it, without it, with another text: none of these is handed out for another one."""
    plugin = tmp_path / "mine.py"
    text = (EXAMPLES / "rows_rule.py").read_text()

    def compiled(*plugins: Path) -> tuple[bool, bool]:
        options = compiler.CompileOptions(output=rows.with_suffix(".so"), plugins=plugins)
        report = compiler.compile_model(rows, options)
        (kernel,) = compiler.manifest_of(report.path)["kernels"]
        return report.cached, "rule.sum_rows" in kernel["decisions"]

    plugin.write_text(text)
    assert compiled(plugin) == (False, True)
    assert compiled() == (False, False)
    assert compiled(plugin) == (True, True)
    assert compiled() == (True, False)
    plugin.write_text(text.replace("return True", "return False"))
    assert compiled(plugin) == (False, False)


def test_an_operator(cubes: Path) -> None:
    library = cubes.with_suffix(".so")
    refused = tk("compile", cubes, "-o", library)
    assert (refused.code, "com.example" in refused.err) == (3, True)
    done = tk("compile", cubes, "-o", library, "--plugin", EXAMPLES / "cube_operator.py")
    assert done.code == 0, done.err
    (kernel,) = compiler.manifest_of(library)["kernels"]
    assert kernel["ops"] == ["Relu", "Cube", "Add"]
    np.testing.assert_allclose(outputs(library), 0.5 * np.maximum(X, 0) ** 3 + X, rtol=1e-5, atol=1e-6)
    assert tk("compile", cubes, "-o", library).code == 3


def test_an_operator_of_a_name_that_is_taken(cubes: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "relu.py"
    plugin.write_text((EXAMPLES / "cube_operator.py").read_text().replace('name="Cube"', 'name="Relu"'))
    done = tk("compile", cubes, "-o", tmp_path / "m.so", "--plugin", plugin)
    assert done.code == 3
    assert "the operator `Relu`, and there is one of that name" in done.err


def test_an_operator_that_fails(cubes: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "cube.py"
    text = (EXAMPLES / "cube_operator.py").read_text()
    plugin.write_text(text.replace("(types[0],)", "(types[7],)"))
    done = tk("compile", cubes, "-o", tmp_path / "m.so", "--plugin", plugin)
    line = 1 + text[: text.index("(types[0],)")].count("\n")
    assert (done.code, f"cube.py:{line}" in done.err, "IndexError" in done.err) == (3, True, True), done.err


def test_a_pass_is_one_of_the_stages(rows: Path, tmp_path: Path) -> None:
    options = ("--plugin", EXAMPLES / "unroll_pass.py", "--dump", tmp_path / "dump")
    turned = helper.make_node("Transpose", ["x"], ["y"], perm=[0, 2, 1])
    data = np.arange(3 * 5 * 8, dtype=np.float32).reshape(3, 5, 8)
    onnx.save(model([turned], {"x": data}, ["y"]), tmp_path / "turned.onnx")
    done = tk("compile", tmp_path / "turned.onnx", "-o", tmp_path / "m.so", *options)
    assert done.code == 0, done.err
    (stage,) = (tmp_path / "dump").rglob("*-unroll_short")
    assert "unrolled" in next(stage.iterdir()).read_text()
    found = compiler.load(tmp_path / "m.so").run({"x": data})["y"]
    np.testing.assert_array_equal(found, data.transpose(0, 2, 1))


@pytest.mark.parametrize(
    ("body", "said"),
    [("s.nothing()", "bad.py:4"), ("return None", "gave None"), ("s.split('q', (None, 2))", "no loop 'q'")],
)
def test_an_error_is_one_message(rows: Path, tmp_path: Path, body: str, said: str) -> None:
    plugin = tmp_path / "bad.py"
    plugin.write_text(
        "from compiler.plugin import Plugin, ScheduleRule\n\n"
        f"def rule(s, facts, chooser):\n    {body}\n    return True\n\n"
        "PLUGIN = Plugin(rules=(ScheduleRule('r', rule),))\n"
    )
    done = tk("compile", rows, "-o", tmp_path / "m.so", "--plugin", plugin)
    assert done.code == 3
    assert said in done.err
    assert "Traceback" not in done.err


# ---------------------------------------------------------------- search


@pytest.mark.parametrize(("factor", "wanted"), [(1.0, (1,)), (4.0, (0,))])
@pytest.mark.parametrize("kind", [RandomSearch, Evolution])
def test_search_takes_the_rule_where_it_is_faster(
    kind: type[RandomSearch | Evolution], factor: float, wanted: tuple[int, ...]
) -> None:
    """Times that were made up, either way round: what is best is what is fastest."""
    plugins = load_plugins([EXAMPLES / "rows_rule.py"], installed=False)
    target = replace(get_target("cpu:x86-64-v3"), plugins=plugins)
    b = Builder("rows")
    x = b.input("x", (8, 4096))
    func = b.finish([b.reduce("y", (8,), (4096,), lambda i, k: x[i, k])])

    def seconds(one: KernelCandidate) -> float:
        taken = one.decisions["rule.sum_rows"] == (1,)
        return 1e-3 * factor / one.decisions["sum_rows.vectors"][0] if taken else 1e-3 / 4

    search, tried = kind(Space(Workload.of(func, {}), target), 3), list[KernelCandidate]()
    while len(tried) < 40 and (proposed := search.propose(4)):
        for one in proposed:
            search.learn(one, Measured(OK, (seconds(one),)))
        tried += proposed
    assert min(tried, key=seconds).decisions["rule.sum_rows"] == wanted
    assert {one.decisions["rule.sum_rows"] for one in tried} == {(0,), (1,)}
