"""Planted defects: each is reduced to a few nodes that still show it, and the part to blame is named."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler import ReduceReport, ReduceRequest
from compiler.stages.optional import OPTIONAL_PASSES
from tests.support.command import tk
from tests.support.onnx_models import model
from tests.support.planted import AT_COMPILE_TIME, EMULATED, PLANTS, Plant
from tests.support.reduction_models import write_reduction_model
from tests.support.small_networks import EACH_KIND, SMALL_BUILT
from toolchain.zoo.write import write_model

MOST_SECONDS = 600


def reduced(path: Path, plant: str, **options: object) -> ReduceReport:
    """The report of a reduction in a process with a defect."""
    request = ReduceRequest(path, path.parent / "out", **options)  # type: ignore[arg-type]  # fields by name
    return compiler.reduce_model(request, program=[sys.executable, "-m", "tests.support.planted", plant])


def small(directory: Path) -> Path:
    """Three nodes, one of them Sigmoid, behind a product."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["b"]),
        helper.make_node("Sigmoid", ["b"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=-1),
    ]
    source = np.random.default_rng(1)
    constants = {"w": source.standard_normal((4, 4), np.float32)}
    proto = model(nodes, {"x": np.zeros((2, 4), np.float32)}, ["y"], constants)
    onnx.save(proto, directory / "small.onnx")
    return directory / "small.onnx"


def test_a_wrong_operator_of_a_small_model(tmp_path: Path) -> None:
    report = reduced(small(tmp_path), "operator: Sigmoid computes Tanh", seconds=60.0)
    assert report.fault.kind == "wrong"
    assert report.operators == ("Sigmoid",)
    assert (report.culprit.kind, report.culprit.name) == ("operator", "Sigmoid")
    assert report.after.inputs < report.before.inputs
    left = onnx.load(tmp_path / "out" / "repro.onnx")
    onnx.checker.check_model(left, full_check=True)


def test_a_model_without_a_fault(tmp_path: Path) -> None:
    with pytest.raises(compiler.BadInputError, match="no fault `wrong`"):
        compiler.reduce_model(ReduceRequest(small(tmp_path), tmp_path / "out", check="wrong"))
    assert not (tmp_path / "out").exists()


def check(report: ReduceReport, plant: Plant) -> None:
    assert report.after.nodes <= plant.nodes, report.operators
    assert report.seconds <= MOST_SECONDS
    assert plant.decision in " ".join(report.culprit.decisions), report.culprit
    assert plant.application in " ".join(report.culprit.applications), report.culprit
    assert (report.culprit.kind, plant.name in report.culprit.name) == (plant.kind, True), report.culprit


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_planted(tmp_path: Path, name: str) -> None:
    plant = PLANTS[name]
    path = write_reduction_model(plant.model, tmp_path)
    report = reduced(path, name, minutes=8.0, seconds=plant.seconds)
    assert 20 <= report.before.nodes <= 60
    assert report.fault.kind == plant.fault
    check(report, plant)
    right = tk("compile", "repro.onnx", "-o", "repro.so", cwd=tmp_path / "out")
    assert right.code == 0, right.err
    verify = ("verify", "repro.so", "--model", "repro.onnx", "--input", "inputs.npz", "--runs", 1)
    assert tk(*verify, cwd=tmp_path / "out").code == 0, "without the defect it is right"


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_COMPILE_TIME)
def test_planted_at_compile_time(tmp_path: Path, name: str) -> None:
    path = write_reduction_model(AT_COMPILE_TIME[name].model, tmp_path)
    report = reduced(path, name, minutes=8.0, seconds=12.0)
    assert report.after.nodes == 1
    check(report, AT_COMPILE_TIME[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"), [(name, one) for name, plant in EMULATED.items() for one in plant.targets]
)
def test_planted_in_what_the_emulator_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    monkeypatch.setenv("TK_EMULATOR_ORDER", "1")
    if not compiler.can_compile(target):
        pytest.skip(f"no toolchain for {target}")
    plant = EMULATED[name]
    path = write_reduction_model(plant.model, tmp_path)
    report = reduced(path, name, minutes=8.0, target=target, device="emulator")
    assert report.fault.kind == plant.fault
    assert all("--device emulator" in one for one in report.commands[1:])
    check(report, plant)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONAL_PASSES)
def test_every_optional_pass_can_be_left_out(tmp_path: Path, name: str) -> None:
    """Of a network with each kind of kernel, whose results stay right."""
    write_model(SMALL_BUILT[EACH_KIND](), tmp_path / "m.onnx")
    options = compiler.CompileOptions(tmp_path / "m.so", without=(name,))
    compiler.compile_model(tmp_path / "m.onnx", options)
    assert compiler.verify_library(
        compiler.VerifyRequest(tmp_path / "m.so", tmp_path / "m.onnx", runs=1)
    ).passed
    assert compiler.manifest_of(tmp_path / "m.so")["without"] == [name]


@pytest.mark.slow
def test_limits_stand_in_the_library_and_keep_it_right(tmp_path: Path) -> None:
    write_model(SMALL_BUILT[EACH_KIND](), tmp_path / "m.onnx")
    limits = {"fuse": 2, "vectorize": 3, "schedule-rules": 4, "fold-batchnorm": 1}
    compiler.compile_model(tmp_path / "m.onnx", compiler.CompileOptions(tmp_path / "m.so", limits=limits))
    request = compiler.VerifyRequest(tmp_path / "m.so", tmp_path / "m.onnx", runs=1)
    assert compiler.verify_library(request).passed
    assert compiler.manifest_of(tmp_path / "m.so")["limits"] == limits


@pytest.mark.slow
def test_constants_of_more_than_two_gigabytes(tmp_path: Path) -> None:
    """The model's file names them only; what is left needs none of them."""
    rows, columns, parts = 1 << 14, 1 << 13, 5
    with (tmp_path / "weights.bin").open("wb") as stream:
        for _ in range(parts):
            for _ in range(rows // 256):
                stream.write(np.full((256, columns), 1e-4, np.float32).data)
    assert (tmp_path / "weights.bin").stat().st_size > 2 << 30
    nodes = [
        node
        for n in range(parts)
        for node in (
            helper.make_node("Gather", [f"w{n}", "row"], [f"g{n}"], axis=0),
            helper.make_node("Add" if n else "Relu", [f"g{n}", f"s{n - 1}"] if n else ["g0"], [f"s{n}"]),
        )
    ]
    nodes += [
        helper.make_node("Add", [f"s{parts - 1}", "x"], ["sum"]),
        helper.make_node("Unique", ["sum"], ["y", "places", "counts"], domain="com.microsoft"),
    ]
    proto = model(
        nodes,
        {"x": np.zeros(1, np.float32)},
        ["y"],
        {"row": np.array([3], np.int64)},
        imports=[helper.make_opsetid("com.microsoft", 1)],
    )
    for n in range(parts):
        tensor = proto.graph.initializer.add(name=f"w{n}", data_type=1, dims=[rows, columns])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        size = 4 * rows * columns
        for key, value in (("location", "weights.bin"), ("offset", n * size), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
    onnx.save(proto, tmp_path / "m.onnx")
    report = compiler.reduce_model(ReduceRequest(tmp_path / "m.onnx", tmp_path / "out", memory=3_000_000_000))
    assert [one.rpartition(".")[2] for one in report.operators] == ["Unique"]
    assert report.before.constants > parts * rows * columns
    assert report.after.constants <= 1, "what was the last sum, in place of it"
