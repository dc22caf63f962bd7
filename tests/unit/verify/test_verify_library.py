"""Verification end to end on a library written by hand: right, wrong, crashing, hanging, of another model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import compiler
from compiler import BadInputError, BenchRequest, CrashError, UsageError, VerifyRequest
from compiler.core.cache import ContentCache
from compiler.runtime.library import Contents, link_library
from tests.support.command import Result
from tests.support.model_library import COMPILERS, CONSTANTS, WEIGHTS, Builder
from toolchain.records.store import read_record

Tk = Callable[..., Result]
ROWS = 3  # random inputs of the second run have so many, where a symbolic dimension is from 1 on
FIXTURES = Path(__file__).parent / "fixtures"


def tensor(name: str, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def scale_add() -> onnx.ModelProto:
    """What tests/runtime/fixtures/scale_add.cpp computes."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["scaled"]),
        helper.make_node("Add", ["scaled", "z"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [tensor("x", ["n", 8]), tensor("z", ["n", 8])],
        [tensor("y", ["n", 8]), tensor("total", [])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def identity() -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", [tensor("x", [8])], [tensor("y", [8])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def builder(own_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    directory = tmp_path_factory.mktemp("verify")
    return Builder(COMPILERS[0], ContentCache(own_cache / "objects"), directory)


@pytest.fixture(scope="module")
def library(builder: Builder) -> Path:
    return builder.library(builder.directory / "right.so")


@pytest.fixture(scope="module")
def wrong(builder: Builder) -> Path:
    """One of the eight weights is off by 2^-10."""
    weights = WEIGHTS.copy()
    weights[3] += 2.0**-10
    constants = CONSTANTS[:64] + weights.tobytes()
    return builder.library(builder.directory / "wrong.so", constants=constants)


@pytest.fixture(scope="module")
def model(builder: Builder) -> Path:
    onnx.save(scale_add(), builder.directory / "model.onnx")
    return builder.directory / "model.onnx"


def misbehaving(builder: Builder, *defines: str) -> VerifyRequest:
    name = "".join(defines) or "crash"
    kernels = builder.compile(FIXTURES / "misbehave.cpp", *defines)
    contents = Contents(b'{"kernels": []}', ("x",), ("y",), lambda _: None)
    link_library([kernels], contents, builder.directory / f"{name}.so", builder.toolchain(), builder.cache)
    onnx.save(identity(), builder.directory / "identity.onnx")
    return VerifyRequest(builder.directory / f"{name}.so", builder.directory / "identity.onnx")


@pytest.mark.parametrize("reference", ["onnxruntime", "onnx"])
@pytest.mark.parametrize("threads", [1, 2])
def test_right(library: Path, model: Path, reference: str, threads: int) -> None:
    request = VerifyRequest(library, model, reference=reference, threads=threads)
    report = compiler.verify_library(request)
    assert report.passed
    assert [one.name for one in report.outputs] == ["y", "total"]
    assert (report.threads, report.runs, report.seed) == (threads, 2, 0)
    assert reference in report.reference
    assert report.outputs[0].shape == (ROWS, 8)
    assert report.needed < 3e-6


def test_wrong_is_found_at_the_right_place(wrong: Path, model: Path) -> None:
    report = compiler.verify_library(VerifyRequest(wrong, model))
    assert not report.passed
    y = report.outputs[0]
    assert y.where[1] == 3
    assert y.max_error == pytest.approx(abs(y.actual - y.expected), rel=1e-3)
    assert y.needed > y.tolerance
    loose = compiler.verify_library(VerifyRequest(wrong, model, tolerance=report.needed * 1.01))
    assert loose.passed


def test_progress_comes_through_the_process(library: Path, model: Path) -> None:
    told: list[tuple[str, float, float]] = []
    request = VerifyRequest(library, model, runs=3)
    assert compiler.verify_library(request, progress=lambda *one: told.append(one)).passed
    assert told == [("runs", done, 3) for done in range(4)]


def test_given_inputs_are_used(library: Path, model: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((5, 8), 2, np.float32))
    np.save(tmp_path / "z.npy", np.full((5, 8), 1, np.float32))
    inputs = (f"x={tmp_path}/x.npy", f"z={tmp_path}/z.npy")
    report = compiler.verify_library(VerifyRequest(library, model, inputs=inputs))
    assert report.passed
    assert report.outputs[0].shape == (5, 8)
    assert report.outputs[0].scale == 5.0


def test_crash(builder: Builder) -> None:
    with pytest.raises(CrashError, match="crashed with SIGSEGV"):
        compiler.verify_library(misbehaving(builder))


def test_an_element_that_is_never_written(builder: Builder) -> None:
    """Also where the right value is zero, which fresh memory holds."""
    request = misbehaving(builder, "-DTEST_FORGET")
    np.save(builder.directory / "zeros.npy", np.zeros(8, np.float32))
    for inputs in ((), (f"x={builder.directory}/zeros.npy",)):
        report = compiler.verify_library(dataclasses.replace(request, inputs=inputs))
        assert not report.passed
        assert report.outputs[0].where == (7,)


def test_hang(builder: Builder) -> None:
    with pytest.raises(CrashError, match="did not end within 3 s"):
        compiler.verify_library(misbehaving(builder, "-DTEST_HANG"), timeout=3)


def test_errors_come_through_the_process(library: Path, model: Path, tmp_path: Path) -> None:
    request = VerifyRequest(library, model)
    with pytest.raises(UsageError, match="no input `q`"):
        compiler.verify_library(dataclasses.replace(request, inputs=("q=x.npy",)))
    onnx.save(identity(), tmp_path / "other.onnx")
    with pytest.raises(BadInputError):
        compiler.verify_library(dataclasses.replace(request, model=tmp_path / "other.onnx"))
    with pytest.raises(BadInputError, match="no model library"):
        compiler.verify_library(dataclasses.replace(request, library=model))


def test_command(tk: Tk, library: Path, wrong: Path, model: Path, builder: Builder) -> None:
    right = tk("verify", library, "--model", model, "--json")
    assert (right.code, right.json["passed"], right.err) == (0, True, "")
    failed = tk("verify", wrong, "--model", model)
    assert failed.code == 6
    assert "NOT within tolerance" in failed.out
    assert "hint: `--tolerance" in failed.err
    needed = failed.err.split("--tolerance ")[1].split("`")[0]
    assert tk("verify", wrong, "--model", model, "--tolerance", needed).code == 0
    crash = misbehaving(builder)
    crashed = tk("verify", crash.library, "--model", crash.model)
    assert crashed.code == 7
    assert crashed.err.startswith("error: the library crashed with SIGSEGV")
    assert "Traceback" not in crashed.err


def test_run_command(tk: Tk, library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((5, 8), 2, np.float32))
    np.save(tmp_path / "z.npy", np.full((5, 8), 1, np.float32))
    arguments = ("--input", "x=x.npy", "--input", "z=z.npy", "--output-dir", "out", "--json")
    result = tk("run", library, *arguments)
    assert result.code == 0, result.err
    expected = np.float32(2) * np.tile(WEIGHTS, (5, 1)) + 1
    assert np.array_equal(np.load(tmp_path / "out" / "y.npy"), expected)
    assert np.load(tmp_path / "out" / "total.npy") == expected.sum()
    index = compiler_json(tmp_path / "out" / "outputs.json")["outputs"]
    assert index["y"] == {"file": "y.npy", "key": "y", "dtype": "float32", "shape": [5, 8]}
    assert [one["name"] for one in result.json["outputs"]] == ["y", "total"]
    assert result.json["outputs"][0]["maximum"] == 5.0


@pytest.mark.parametrize("file_format", ["npz", "raw"])
def test_run_formats(tk: Tk, library: Path, tmp_path: Path, file_format: str) -> None:
    assert tk("run", library, "--output-dir", "npy").code == 0
    assert tk("run", library, "--output-dir", "out", "--format", file_format).code == 0
    expected = np.load(tmp_path / "npy" / "y.npy")
    if file_format == "npz":
        found = np.load(tmp_path / "out" / "outputs.npz")["y"]
    else:
        found = np.fromfile(tmp_path / "out" / "y.bin", np.float32).reshape(expected.shape)
    assert np.array_equal(found, expected)


def test_run_refuses_a_wrong_shape(tk: Tk, library: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((5, 7), np.float32))
    result = tk("run", library, "--input", "x=x.npy")
    assert result.code == 3
    assert result.err.startswith("error: input `x` has the wrong shape\n")
    assert "5x7" in result.err


def compiler_json(path: Path) -> dict[str, dict[str, dict[str, object]]]:
    import json

    return json.loads(path.read_text())


def test_bench(library: Path, model: Path) -> None:
    request = BenchRequest(library, threads=1, seconds=0.3, warmup=0.05, profile=True, baseline=model)
    report = compiler.bench_library(request)
    assert report.threads == 1
    assert report.runs >= 10
    assert 0 < report.p50_ms <= report.p90_ms <= report.p99_ms
    assert report.gflops is not None
    assert report.peak_gflops is not None
    assert report.percent_of_peak == pytest.approx(100 * report.gflops / report.peak_gflops)
    assert report.baseline is not None
    assert report.baseline.engine.startswith("onnxruntime")
    assert sorted(one.kernel for one in report.kernels) == [0, 1, 2]


def test_libraries_in_turns_a_chart_and_a_history(tk: Tk, library: Path, tmp_path: Path) -> None:
    """The other library is the same one: what differs is chance."""
    other, chart, kept = tmp_path / "other.so", tmp_path / "times.svg", tmp_path / "records"
    other.write_bytes(library.read_bytes())
    words = (
        *("bench", library, "--compare", other, "--contexts", "2", "--threads", "1", "--chart", chart),
        *("--seconds", "0.5", "--warmup", "0", "--record", "--records", kept),
    )
    first = tk(*words, "--json").json
    assert [Path(str(one["library"])) for one in first["others"]] == [other]
    found = first["others"][0]["difference"]
    assert 0.3 < found["low"] <= found["ratio"] <= found["high"] < 3
    assert first["throughput"]["contexts"] == 2
    assert first["earlier"] == []
    assert "other.so" in chart.read_text()
    again = tk(*words)
    assert again.code == 0, again.err
    assert "ratio to tk (other.so)" in again.out
    assert "inferences a second" in again.out
    assert "measured before" in again.out
    assert len(list(kept.rglob("*.json"))) == 2
    record = read_record(next(kept.rglob("*.json")))
    assert (record.kind, record.state, record.subject.network) == ("bench", "measured", library.stem)
    assert len(record.baselines) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [(("--chart", "times.pdf"), "svg or a png"), (("--records", "here"), "add --record")],
    ids=["chart", "records"],
)
def test_what_bench_refuses(tk: Tk, library: Path, words: tuple[str, ...], said: str) -> None:
    result = tk("bench", library, *words)
    assert result.code == 2
    assert said in result.err


def test_a_library_of_another_model_is_not_compared(tk: Tk, library: Path, tmp_path: Path) -> None:
    model = tmp_path / "other.onnx"
    x = onnx.helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, [3])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["other"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), model)
    other = tmp_path / "other.so"
    assert tk("compile", model, "-o", other).code == 0
    result = tk("bench", library, "--compare", other)
    assert result.code == 3
    assert "other, x, z: not as in" in result.err


def test_bench_command(tk: Tk, library: Path, model: Path) -> None:
    quick = ("--seconds", "0.2", "--warmup", "0")
    document = tk("bench", library, "--threads", "2", "--json", *quick).json
    assert document["threads"] == 2
    assert {"p50_ms", "p90_ms", "p99_ms", "runs", "threads", "target"} <= document.keys()
    text = tk("bench", library, "--profile", "--baseline", model, *quick)
    assert text.code == 0, text.err
    assert "ratio to onnxruntime" in text.out
    assert "kernel" in text.out
