"""The document of a compile: what `--dump` writes, every ONNX node, memory that does not overlap."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import compiler
from compiler.core.diagnostics import HostError
from compiler.core.progress import silent
from compiler.targets import get_target
from compiler.view import kernels, measure
from compiler.view.report import ViewedTensor, ViewReport, ViewRequest
from tests.support.onnx_models import model
from toolchain.console import jsonable

RNG = np.random.default_rng(5)
TEXTS = {"loops": "30-loops", "trace": "31-trace", "scheduled": "32-schedule", "source": "50-render"}


def array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> onnx.ModelProto:
    """Two branches joined in place, a view, a weight that is computed when compiling, one kernel twice."""
    nodes = [
        helper.make_node("Conv", ["x", "first"], ["c"], "stem"),
        helper.make_node("Relu", ["c"], ["r"], "stem/relu"),
        helper.make_node("Conv", ["r", "left"], ["l"], "left"),
        helper.make_node("Conv", ["r", "right"], ["s"], "right"),
        helper.make_node("Concat", ["l", "s"], ["j"], "join", axis=1),
        helper.make_node("Transpose", ["j"], ["t"], "last", perm=[0, 2, 3, 1]),
        helper.make_node("Identity", ["t"], ["i"], "same"),
        helper.make_node("Transpose", ["i"], ["b"], "first", perm=[0, 3, 1, 2]),
        helper.make_node("GlobalAveragePool", ["b"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Add", ["dense", "dense"], ["twice"], "weights"),
        helper.make_node("MatMul", ["f", "twice"], ["y"], "dense"),
    ]
    weights = {"first": array(16, 8, 1, 1), "left": array(16, 16, 1, 1), "right": array(16, 16, 1, 1)}
    return model(nodes, {"x": array(1, 8, 12, 12)}, ["y"], {**weights, "dense": array(32, 5)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """The model, its library and a dump of the same compile."""
    folder = tmp_path_factory.mktemp("view")
    onnx.save(network(), folder / "m.onnx")
    options = compiler.CompileOptions(folder / "m.so", arch="x86-64-v3", dump=folder / "dump")
    compiler.compile_model(folder / "m.onnx", options)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> ViewReport:
    """Measured for less long than a user's: what is told of the times is the same."""
    options = compiler.CompileOptions(Path(), arch="x86-64-v3")
    with pytest.MonkeyPatch.context() as shorter:
        for name in ("_SECONDS", "_WARMUP_SECONDS", "_MEMORY_SECONDS"):
            shorter.setattr(measure, name, 0.05)
        return compiler.view_compile(ViewRequest(folder / "m.onnx", options))


@pytest.fixture(scope="module")
def library(folder: Path) -> ViewReport:
    return compiler.view_compile(ViewRequest(folder / "m.so", profile=False))


def dumped(folder: Path, stage: str, kernel: int) -> str:
    (path,) = (folder / "dump" / stage).glob(f"k{kernel:03}.*")
    return path.read_text()


def tensors(report: ViewReport) -> dict[int, ViewedTensor]:
    return {one.number: one for one in report.tensors}


def test_its_texts_are_those_of_a_dump(folder: Path, report: ViewReport) -> None:
    for kernel in report.kernels:
        for field, stage in TEXTS.items():
            assert getattr(kernel, field).strip() == dumped(folder, stage, kernel.number).strip()
        last = max(one.parent.name for one in (folder / "dump/40-lower").glob(f"*/k{kernel.number:03}.loops"))
        assert kernel.lowered.strip() == dumped(folder, f"40-lower/{last}", kernel.number).strip()


def test_layouts_and_places_are_those_of_a_dump(folder: Path, report: ViewReport) -> None:
    laid_out = (folder / "dump/21-layout.txt").read_text()
    maps = dict(re.findall(r"^%(\d+): \S+ as (.*)$", laid_out, re.MULTILINE))
    places = dict(
        re.findall(
            r"^%(\d+): \S+ in (.*?)(?:  #.*)?$", (folder / "dump/60-plan.txt").read_text(), re.MULTILINE
        )
    )
    known = tensors(report)
    assert {n: one.index_map or "row-major" for n, one in known.items() if str(n) in maps} == {
        int(n): text for n, text in maps.items()
    }
    assert {n: one.memory for n, one in known.items() if str(n) in places} == {
        int(n): text for n, text in places.items()
    }
    assert any(one.layout == "blocks of 8 channels" for one in known.values())


def test_every_onnx_node_is_somewhere(report: ViewReport) -> None:
    named = {name for node in report.nodes for name in node.origin}
    assert named | {one.name for one in report.merged} == {node.name for node in network().graph.node}
    assert {one.op for one in report.nodes if not one.steps} == {"Concat", "Reshape"}


def test_merged_nodes_say_where_they_went(report: ViewReport) -> None:
    named = {one.name: one for one in report.merged}
    into = {name: {report.nodes[n].op for n in one.nodes} for name, one in named.items()}
    assert {name for name, one in named.items() if one.is_constant} == {"weights"}
    assert into.keys() == {"weights", "last", "same", "first"}
    assert into["weights"] == {"MatMul"}
    for name in ("last", "same", "first"):
        assert all("pool" in report.nodes[n].origin for n in named[name].nodes), into
        assert into[name]


def test_edges_lead_from_makers_to_readers(report: ViewReport) -> None:
    known = tensors(report)
    made = {*report.input_tensors, *(n for one in report.nodes if not one.steps for n in one.writes)}
    for step in report.steps:
        assert {n for n in step.reads if known[n].inside is None} <= made
        assert all(known[n].is_constant for n in step.constants)
        made |= set(step.writes)
        ops = [report.nodes[n].op for n in step.nodes]
        assert ops == list(step.ops)
        assert step.number in report.kernels[step.kernel].steps
    assert set(report.output_tensors) <= made
    assert [(one.name, one.shape) for one in report.inputs] == [("x", (1, 8, 12, 12))]


def test_one_kernel_for_equal_work(report: ViewReport) -> None:
    twice = [one for one in report.kernels if len(one.steps) > 1]
    assert [sorted(one.origin) for one in twice] == [["left", "right"]]


def test_memory_that_is_alive_does_not_overlap(report: ViewReport) -> None:
    assert report.memory.bars
    for one, other in combinations(report.memory.bars, 2):
        if one.last < other.first or other.last < one.first:
            continue
        assert one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
    assert max(one.offset + one.bytes for one in report.memory.bars) <= report.memory.arena_bytes


def test_bars_live_from_their_first_to_their_last_use(report: ViewReport) -> None:
    known = tensors(report)
    uses: dict[int, list[int]] = {}
    for step in report.steps:
        for number in (*step.reads, *step.writes):
            uses.setdefault(known[number].inside or number, []).append(step.number)
    for bar in report.memory.bars:
        assert bar.tensor is not None
        assert (bar.first, bar.last) == (min(uses[bar.tensor]), max(uses[bar.tensor]))


def test_assembly_is_of_each_kernel(report: ViewReport) -> None:
    for kernel in report.kernels:
        assert f"\ntk_k{kernel.number}:\n" in f"\n{kernel.assembly}"
    convolution = next(one for one in report.kernels if "stem" in one.origin)
    fused = len(re.findall(r"\tvf(?:n)?m\w+", convolution.assembly))
    assert 0 < max(one.multiply_adds for one in convolution.inner_loops) <= fused


def test_times_are_of_this_machine(report: ViewReport) -> None:
    assert report.profile is not None
    assert {one.kernel for one in report.profile.kernels} == {one.number for one in report.kernels}
    assert report.profile.ms > 0
    assert report.roofline is not None
    assert "measured on this machine" in report.roofline.source
    assert report.unseen == ()


def test_a_library_tells_the_same_of_its_kernels(report: ViewReport, library: ViewReport) -> None:
    shown = [replace(one, assembly="", inner_loops=()) for one in library.kernels]
    assert shown == [replace(one, assembly="", inner_loops=()) for one in report.kernels]
    for kernel, its in zip(library.kernels, report.kernels, strict=True):
        assert f"\ntk_k{kernel.number}:\n" in f"\n{kernel.assembly}"
        assert len(kernel.inner_loops) == len(its.inner_loops)
    assert [(one.kernel, one.origin) for one in library.steps] == [
        (one.kernel, one.origin) for one in report.steps
    ]
    assert library.memory.arena_bytes == report.memory.arena_bytes


def test_a_library_says_what_is_missing(library: ViewReport) -> None:
    assert not library.tensors
    assert {one.what for one in library.unseen} == {
        "tensors and edges", "layouts", "memory over time", "times",
    }  # fmt: skip
    assert library.profile is None
    assert library.roofline is not None
    assert "not measured" in library.roofline.source


def test_edited_sources_are_missing_in_a_library(folder: Path, tmp_path: Path) -> None:
    edited = folder / "dump/50-render/k000.cpp"
    original = edited.read_text()
    edited.write_text(original + "// edited\n")
    options = compiler.CompileOptions(tmp_path / "e.so", arch="x86-64-v3", start_from=edited)
    compiler.compile_model(folder / "m.onnx", options)
    edited.write_text(original)
    report = compiler.view_compile(ViewRequest(tmp_path / "e.so", profile=False))
    assert not report.kernels[0].source
    assert report.kernels[1].source
    assert "of 1 of" in report.unseen[3].what
    assert "edited" in report.unseen[3].why


def refuse(*_args: object, **_options: object) -> Iterator[object]:
    raise HostError("not here", why="it lacks a feature")


def test_what_does_not_run_here_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "bench_library", refuse)
    target = get_target("cpu", "x86-64-v4")
    profile, roofline, unseen = measure.measure_speed(Path("m.so"), target, ViewRequest(Path("m.so")), silent)
    assert profile is None
    assert unseen[0].why == "the library does not run here: not here: it lacks a feature"
    assert roofline.gflops == target.facts.peak_flops / 1e9
    assert "one core" in roofline.source


def test_a_gpus_roof_is_that_of_all_its_units() -> None:
    roofline = measure.stated_roofline(get_target("cuda-nvidia", "sm_70").facts)
    assert "units of the device" in roofline.source
    assert 13_000 < roofline.gflops < 16_500  # V100: 14 to 15.7 TFLOP/s
    assert 850 < roofline.gbytes_per_s < 950  # and 900 GB/s of memory


def test_a_missing_disassembler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "find_objdump", refuse)
    _, (unseen,) = kernels.read_assembly(get_target(), Path("m.so"), [])
    assert unseen.why == "not here: it lacks a feature"


@pytest.mark.parametrize(
    ("images", "found"), [((), False), ((("ptx", "sm_70", b".entry tk_k4_0(\n"),), True)]
)
def test_a_device_has_assembly_where_an_image_is_text(
    monkeypatch: pytest.MonkeyPatch, images: tuple[tuple[str, str, bytes], ...], found: bool
) -> None:
    monkeypatch.setattr(kernels, "read_images", lambda _path: images)
    texts, unseen = kernels.read_assembly(get_target("cuda-nvidia"), Path("m.so"), [])
    assert texts == ({4: "// PTX for sm_70\n.entry tk_k4_0(\n"} if found else {})
    assert bool(unseen) == (not found)


def test_it_is_one_json_document(report: ViewReport) -> None:
    assert json.loads(json.dumps(jsonable(report), allow_nan=False))["target"] == "cpu"
