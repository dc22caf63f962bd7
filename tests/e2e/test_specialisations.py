"""Some sizes of a model with kernels of their own in one library; oracle: onnxruntime."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler import CompileOptions, SizeRange, SpecialisedSizes
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob
from tests.support.command import Result
from tests.support.emulated_models import text_only
from tests.support.sized_models import SIZED, feeds, model, node, some

Tk = Callable[..., Result]


def check(
    library: Path, proto: onnx.ModelProto, runs: list[dict[str, int]], device: str | None = None
) -> list[set[int]]:
    """Compare all runs with onnxruntime, in one context after the other; the kernels that each took."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    taken: list[set[int]] = []
    with compiler.load(library, device=device) as loaded, loaded.context(2) as context:
        for sizes in runs:
            given = feeds(proto, sizes)
            got = context.run(given)
            for item, expected in zip(session.get_outputs(), session.run(None, given), strict=True):
                np.testing.assert_allclose(got[item.name], expected, rtol=1e-4, atol=1e-5)
            taken.append({step.kernel for step in context.profile(given)})
    return taken


def test_the_narrowest_that_holds_a_run_is_taken(tk: Tk, tmp_path: Path) -> None:
    """Sizes around borders, in turns, with a batch that stays free."""
    proto = SIZED["attention"]()
    onnx.save(proto, tmp_path / "m.onnx")
    words = ("--dim", "S=1..64", "--dim", "S=8..32", "--dim", "S=16")
    done = tk("compile", "m.onnx", "--target", "cpu", *words)
    assert done.code == 0, done.err
    manifest = compiler.manifest_of(tmp_path / "m.so")
    plans = [manifest, *manifest["specialisations"]]
    assert [one["ranges"] for one in plans[1:]] == [[[1, 65536], [16, 16]], [[1, 65536], [8, 32]]]
    general, exact, range_ = ({step["kernel"] for step in plan["steps"]} for plan in plans)
    assert general != exact != range_
    runs = {
        (1, 7): general, (2, 8): range_, (3, 16): exact, (1, 15): range_, (70, 16): exact, (1, 17): range_,
        (90, 32): range_, (2, 33): general, (1, 64): general, (1, 16): exact, (2, 1): general,
    }  # fmt: skip
    taken = check(tmp_path / "m.so", proto, [{"B": b, "S": n} for b, n in runs])
    for sizes, found, wanted in zip(runs, taken, runs.values(), strict=True):
        assert found == wanted, sizes
    shown = tk("inspect", "m.so").out
    assert "specialised for S 16: " in shown
    assert "specialised for S 8 to 32: " in shown
    report = json.loads(tk("inspect", "m.so", "--json").out)
    assert [one["sizes"][0]["maximum"] for one in report["specialisations"]] == [16, 32]
    assert [set(one["kernels"]) for one in report["specialisations"]] == [exact, range_]
    verified = json.loads(tk("verify", "m.so", "--model", "m.onnx", "--json").out)
    assert (verified["passed"], verified["runs"]) == (True, 3 + 2 + 3)


def test_a_fixed_batch_and_a_range_of_it(tmp_path: Path) -> None:
    """A specialisation may fix the batch; a range from 1 is a batch still, a loop over samples."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8)}, ("y",), w=some(8, 16))
    onnx.save(proto, tmp_path / "m.onnx")
    sizes = (SpecialisedSizes(dims={"N": 4}), SpecialisedSizes(shapes={"x": (SizeRange(1, 2), 8)}))
    options = CompileOptions(
        tmp_path / "m.so", target="cpu", dims={"N": SizeRange(1, 32)}, specialisations=sizes
    )
    compiler.compile_model(tmp_path / "m.onnx", options)
    manifest = compiler.manifest_of(tmp_path / "m.so")
    assert manifest["batch"] == {"name": "N", "largest": 32}
    taken = check(tmp_path / "m.so", proto, [{"N": n} for n in (4, 3, 2, 1, 32, 4)])
    four, few = ({step["kernel"] for step in one["steps"]} for one in manifest["specialisations"])
    assert (taken[0], taken[2], taken[3], taken[5]) == (four, few, few, four)
    assert taken[1] == taken[4] == {step["kernel"] for step in manifest["steps"]}


def test_several_symbols_go_together(tk: Tk, tmp_path: Path) -> None:
    """The second values of all options, then the third ones."""
    proto = SIZED["windows"]()
    onnx.save(proto, tmp_path / "m.onnx")
    words = [f"--dim={text}" for text in ("H=8..40", "W=8..40", "H=16", "W=24", "H=16", "W=8..40")]
    done = tk("compile", "m.onnx", "--target", "cpu", *words)
    assert done.code == 0, done.err
    manifest = compiler.manifest_of(tmp_path / "m.so")
    assert [one["ranges"][1:] for one in manifest["specialisations"]] == [
        [[16, 16], [24, 24]],
        [[16, 16], [8, 40]],
    ]
    both, rows = ({step["kernel"] for step in one["steps"]} for one in manifest["specialisations"])
    taken = check(
        tmp_path / "m.so", proto, [{"N": 2, "H": h, "W": w} for h, w in ((16, 24), (16, 25), (17, 24))]
    )
    assert taken == [both, rows, {step["kernel"] for step in manifest["steps"]}]


def test_constants_are_there_once(tmp_path: Path) -> None:
    """Where their layout is the same: here weights are read as they are, or by kernels with equal tiles."""
    proto = model(
        [node("MatMul", ["x", "w"], ["p"]), node("Add", ["p", "b"], ["y"])],
        {"x": (1, "S", 256)},
        ("y",),
        w=some(256, 512),
        b=some(512),
    )
    onnx.save(proto, tmp_path / "m.onnx")
    found = []
    for sizes in ((), (SpecialisedSizes(dims={"S": 128}), SpecialisedSizes(dims={"S": SizeRange(32, 64)}))):
        options = CompileOptions(
            tmp_path / "m.so", target="cpu", dims={"S": SizeRange(1, 256)}, specialisations=sizes
        )
        compiler.compile_model(tmp_path / "m.onnx", options)
        found.append(compiler.manifest_of(tmp_path / "m.so")["constant_bytes"])
    least = 4 * (256 * 512 + 512)
    assert found[0] == found[1]
    assert least <= found[0] < 1.1 * least  # tiles of AVX-512 end behind the last column
    options = CompileOptions(tmp_path / "just.so", target="cpu", dims={"S": 128})
    compiler.compile_model(tmp_path / "m.onnx", options)
    compared = compiler.BenchRequest(
        tmp_path / "m.so", seconds=0.01, warmup=0, compare=(tmp_path / "just.so",), dims={"S": 128}
    )
    assert len(compiler.bench_library(compared).others) == 1, "a library for one size has no such dimension"
    check(tmp_path / "m.so", proto, [{"S": n} for n in (128, 40, 7, 256)])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dim", "S=1..64", "--dim", "S=65"), "not among the library's sizes"),
        (("--dim", "S=4..64", "--dim", "S=1..8"), "it has S from 4 to 64"),
        (("--dim", "S=16", "--dim", "S=1..64"), "'S' has one size only"),
        (("--shape", "x=1,16", "--shape", "x=1,1..64"), "several sizes, and no range that holds them"),
        (("--dim", "S=1..64", "--dim", "S=16", "--dim", "S=16"), "these are those of another one"),
        (("--dim", "S=1..64", "--dim", "S=1..64"), "these are all that the library has"),
        (("--dim", "S=1..64", "--dim", "T=1", "--dim", "T=2"), "no input has such a dimension"),
        (("--shape", "x=1,1..64", "--shape", "y=1,2", "--shape", "y=1,3"), "the model has no such input"),
        (("--shape", "x=1,1..64", "--shape", "x=1"), "has 2 dimensions, not 1"),
        (("--shape", "x=1,1..64", "--shape", "x=2,8"), "dimension 0 of 'x' cannot be specialised"),
        (("--dim", "S=1..64", "--shape", "x=1,1..64", "--dim", "S=8", "--shape", "x=1,9"), "9 and 8 for 'S'"),
        (
            ("--dim", "S=1..64", "--dim", "S=8", "--dim", "B=1..4", "--dim", "B=1", "--dim", "B=2"),
            "go together",
        ),
    ],
)
def test_sizes_that_are_none(words: tuple[str, ...], said: str, tk: Tk, tmp_path: Path) -> None:
    inputs: Mapping[str, tuple[str, str]] = {"x": ("B", "S")}
    onnx.save(model([node("Softmax", ["x"], ["y"])], inputs, ("y",)), tmp_path / "m.onnx")
    done = tk("compile", "m.onnx", "--target", "cpu", *words)
    assert done.code == 2, done.out
    assert said in done.err


def test_launches_in_the_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)
    check_launches("cuda-nvidia", "emulator", tmp_path)


def test_launches_by_opencl(tmp_path: Path, opencl_driver: str) -> None:
    check_launches("opencl-cpu", opencl_driver, tmp_path)


def check_launches(target: str, device: str, directory: Path) -> None:
    """One module has the kernels of all plans, whose runs take turns in the same memory."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Softmax", ["p"], ["y"], axis=1)]
    proto, library = model(nodes, {"x": (1, "S", 8)}, ("y",), w=some(8, 8)), directory / "m.so"
    onnx.save(proto, directory / "m.onnx")
    sizes = (SpecialisedSizes(dims={"S": 6}), SpecialisedSizes(dims={"S": SizeRange(3, 8)}))
    dims = {"S": SizeRange(1, 20)}
    options = CompileOptions(library, target=target, dims=dims, specialisations=sizes)
    run_job(CompileJob.of(directory / "m.onnx", options))
    taken = check(library, proto, [{"S": size} for size in (6, 20, 5, 6, 2, 8, 9, 6)], device)
    manifest = compiler.manifest_of(library)
    general, exact, range_ = (
        {step["kernel"] for step in plan["steps"]} for plan in (manifest, *manifest["specialisations"])
    )
    assert taken == [exact, general, range_, exact, general, range_, general, exact]
