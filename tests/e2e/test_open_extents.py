"""Graphs with symbols as libraries: any extents in range, whatever was run before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import compiler
from compiler.graph.interpret import evaluate
from compiler.graph.ir import Extent
from compiler.runtime import standalone
from compiler.runtime.manifest import manifest_of
from compiler.verify import check
from compiler.view.collect import _shape
from tests.support import open_graphs
from tests.support.command import Result
from tests.support.emulated_models import text_only
from tests.support.open_graphs import Array, compiled, feeds_of

Tk = Callable[..., Result]
SIZES = [(7, 5), (3, 2), (1, 0), (6, 5), (7, 4), (2, 5)]
"""Values of the symbols, the largest first, so that what an earlier run left is there."""
COUNTS = [3, 1, 100, 2, 4, 3]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(open_graphs.everything(), tmp_path_factory.mktemp("open") / "everything.so")


def assert_same(got: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)


@pytest.mark.parametrize("beyond", [0.0, np.nan])
def test_as_interpreted(beyond: float) -> None:
    graph = open_graphs.everything()
    for values in SIZES:
        feeds = feeds_of(graph, values)
        assert_same(evaluate(graph, feeds, beyond=beyond), open_graphs.everything_wanted(feeds))


@pytest.mark.parametrize("threads", [1, 2])
def test_any_extents(everything: Path, threads: int) -> None:
    graph = open_graphs.everything()
    with compiler.load(everything) as model, model.context(threads) as context:
        for values in SIZES:
            feeds = feeds_of(graph, values)
            wanted = open_graphs.everything_wanted(feeds)
            assert_same(context.run(feeds), wanted)
            out = {name: np.full_like(array, np.nan) for name, array in wanted.items()}
            context.run(feeds, out=out)
            assert_same(out, wanted)


def test_samples(tmp_path: Path) -> None:
    graph = open_graphs.samples()
    with compiler.load(compiled(graph, tmp_path / "m.so")) as model:
        for values, count in zip(SIZES, COUNTS, strict=True):
            feeds = feeds_of(graph, values, count)
            assert_same(model.run(feeds), open_graphs.samples_wanted(feeds))
            one = {name: array[:1] for name, array in feeds.items()}
            assert_same(evaluate(graph, one, beyond=np.nan), open_graphs.samples_wanted(one))
        with pytest.raises(compiler.BadInputError) as caught:
            model.run({**feeds, "b": np.zeros((1, 600, 3), np.float32)})
        assert "dimension 1 ('rows') is 600, expected 1 to 7" in str(caught.value)
        assert "--dim rows=1..600" in str(caught.value)


def test_in_place(everything: Path) -> None:
    """Outputs that lie where inputs are: nothing is written before all is read."""
    graph = open_graphs.everything()
    feeds = feeds_of(graph, (3, 2))
    wanted = open_graphs.everything_wanted(feeds)
    out = {"middle": feeds["b"], "last": feeds["c"], "first": feeds["a"], "fixed": feeds["f"]}
    with compiler.load(everything) as model:
        assert_same(model.run(feeds, out=out), wanted)


def test_contexts_at_once(everything: Path) -> None:
    graph, wrong = open_graphs.everything(), []

    def work(number: int, model: compiler.Model) -> None:
        with model.context(1) as context:
            for turn in range(40):
                feeds = feeds_of(graph, SIZES[(number + turn) % len(SIZES)], seed=number)
                wanted, got = open_graphs.everything_wanted(feeds), context.run(feeds)
                wrong.extend(name for name in wanted if not np.array_equal(got[name], wanted[name]))

    with compiler.load(everything) as model:
        threads = [threading.Thread(target=work, args=(number, model)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


WRONG: dict[str, tuple[Callable[[dict[str, Array]], None], tuple[str, ...]]] = {
    "too large": (
        lambda feeds: feeds.update(b=np.zeros((2, 9, 3), np.float32)),
        ("input 'b'", "dimension 1 ('rows') is 9, expected 1 to 7", "--shape b=2,1..9,3"),
    ),
    "too small": (
        lambda feeds: feeds.update(a=np.zeros((0, 5), np.float32)),
        ("input 'a'", "dimension 0 ('rows') is 0, expected 1 to 7"),
    ),
    "not as before": (
        lambda feeds: feeds.update(b=np.zeros((2, 4, 3), np.float32)),
        ("input 'b'", "dimension 1 ('rows') is 4, and an equal dimension before is 3"),
    ),
    "not the sum": (
        lambda feeds: feeds.update(mask=np.zeros(6, np.float32)),
        ("input 'mask'", "dimension 0 is 6, expected 5, which is rows + past, where rows is 3, past is 2"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_named(everything: Path, name: str) -> None:
    change, words = WRONG[name]
    feeds = feeds_of(open_graphs.everything(), (3, 2))
    change(feeds)
    with compiler.load(everything) as model:
        with pytest.raises(compiler.BadInputError) as caught:
            model.run(feeds)
        for text in words:
            assert text in str(caught.value)
        right = feeds_of(open_graphs.everything(), (3, 2))
        assert_same(model.run(right), open_graphs.everything_wanted(right))
    with pytest.raises(compiler.UsageError):
        evaluate(open_graphs.everything(), feeds)


def test_the_library_says_what_varies(everything: Path) -> None:
    manifest = manifest_of(everything)
    assert manifest["symbols"] == [
        {"name": "rows", "minimum": 1, "maximum": 7, "step": 1, "counted": False},
        {"name": "past", "minimum": 0, "maximum": 5, "step": 1, "counted": False},
    ]
    shapes = {one["name"]: one["shape"] for one in (*manifest["inputs"], *manifest["outputs"])}
    assert "size of 0" not in shapes
    assert shapes["b"] == [2, "rows", 3]
    assert (shapes["half"], shapes["twice"], shapes["joined"]) == (
        ["(rows + 1)//2"], ["2*rows + 1"], ["rows + past"],
    )  # fmt: skip
    with compiler.load(everything) as model:
        ranges = {one.name: [str(dim) for dim in one.shape] for one in (*model.inputs, *model.outputs)}
    assert ranges["b"] == ["2", "1..7", "3"]
    assert (ranges["half"], ranges["twice"], ranges["joined"]) == (["1..4"], ["3..15"], ["1..12"])


def test_in_packages(everything: Path) -> None:
    """The loader that needs the standard library only."""
    graph = open_graphs.everything()
    with standalone.PackagedModel(everything) as model:
        for values in SIZES[:3]:
            feeds = feeds_of(graph, values)
            wanted = open_graphs.everything_wanted(feeds)
            got = {name: np.asarray(one) for name, one in model.run(feeds).items()}
            assert_same(got, wanted)


def test_verified_at_several_sizes(tmp_path: Path) -> None:
    """The largest, the least, one between; or what is asked for."""
    s = open_graphs.OpenSketch((open_graphs.ROWS,))
    rows = s.alone(0)
    s.output("y", s.editor.emit("Add", s.input("x", 2, rows, 3), s.input("z", rows, 3)), 2, rows, 3)
    types = {"x": (2, "rows", 3), "z": ("rows", 3), "y": (2, "rows", 3)}
    ends = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in types.items()
    }
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "z"], ["y"])], "g", [ends["x"], ends["z"]], [ends["y"]]
    )
    onnx.save(
        helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    library = compiled(s.graph(), tmp_path / "m.so", model=tmp_path / "m.onnx")
    request = compiler.VerifyRequest(library, tmp_path / "m.onnx")
    with patch.object(check, "compare_outputs", wraps=check.compare_outputs) as compared:
        report = check.verify_here(request)
        assert (report.passed, report.runs) == (True, 3)
        report = check.verify_here(replace(request, dims={"rows": 2}))
        assert (report.passed, report.runs) == (True, 2)
        report = check.verify_here(replace(request, shapes={"z": (6, 3)}, runs=1))
    sizes = [call.args[0]["y"].shape[1] for call in compared.call_args_list]
    assert (report.passed, sizes) == (True, [7, 1, 4, 2, 2, 6])
    bench = compiler.BenchRequest(
        library, seconds=0.02, warmup=0, baseline=tmp_path / "m.onnx", dims={"rows": 5}
    )
    assert compiler.bench_library(bench).runs > 0


def test_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of the largest extents there; the emulator finds whoever reads what was never written."""
    text_only(monkeypatch)
    graph = open_graphs.everything()
    library = compiled(graph, tmp_path / "m.so", "cuda-nvidia")
    with compiler.load(library, device="emulator") as model, model.context() as context:
        for values in SIZES[:4]:
            feeds = feeds_of(graph, values)
            assert_same(context.run(feeds), open_graphs.everything_wanted(feeds))


def test_inspected(tk: Tk, everything: Path) -> None:
    shown = tk("inspect", str(everything)).out
    assert "rows: 1 to 7\npast: 0 to 5\n" in shown
    for shape in ("2xrowsx3", "(2*rows + 1)", "((rows + 1)//2)", "(rows + past)"):
        assert shape in shown
    done = tk("run", str(everything), "--dim", "rows=4", "--shape", "c=3,1,0", "--json")
    assert done.code == 0, done.err
    sizes = {one["name"]: one["shape"] for one in json.loads(done.out)["outputs"]}
    assert (sizes["twice"], sizes["joined"], sizes["last"]) == ([9], [4], [3, 1, 0])


def test_a_result_that_there_is_not(tmp_path: Path) -> None:
    s = open_graphs.OpenSketch((open_graphs.ROWS,))
    line = s.input("line", s.alone(0))
    s.output("some", s.editor.emit("Slice", line, begin=(3,), step=(2,), size=(2,)), Extent((1,), -3, 2))
    with compiler.load(compiled(s.graph(), tmp_path / "m.so")) as model:
        for rows in (7, 5, 3):
            given = np.arange(rows, dtype=np.float32)
            assert_same(model.run({"line": given}), {"some": given[3::2][: (rows - 3) // 2]})
        words = r"output 'some' would be -1, which is \(rows - 3\)/2, where rows is 2"
        with pytest.raises(compiler.BadInputError, match=words):
            model.run({"line": given[:2]})


def test_shapes_in_a_view() -> None:
    graph = open_graphs.everything()
    shapes = {
        name: _shape(graph, value) for name, value in zip(graph.output_names, graph.outputs, strict=True)
    }
    assert (shapes["middle"], shapes["joined"], shapes["fixed"]) == ((2, "rows", 3), ("(rows + past)",), (3,))
