"""Results as long as what a run finds: compiled without options, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler import CompileOptions
from tests.support.command import Result
from tests.support.counted_models import COUNTED, RATES, feeds
from tests.support.emulated_models import TARGETS, emulate, text_only

Tk = Callable[..., Result]
ELSEWHERE = ("detections", "masks", "Unique")
"""`tk verify` runs the first, the emulator the second, and Compress and NonZero are of the third's kind."""
SIZES = {"batched": ({"B": 2}, {"B": 1}, {"B": 5})}


def check(proto: onnx.ModelProto, library: Path, name: str, device: str | None = None) -> None:
    """Run after run with as many threads, each with another part of its inputs picked."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with compiler.load(library, device=device) as loaded:
        for threads in (1, 2):
            with loaded.context(threads) as context:
                for number, rate in enumerate(RATES):
                    sizes = SIZES.get(name, ({},))
                    given = feeds(proto, rate, sizes[number % len(sizes)])
                    got = context.run(given)
                    for item, want in zip(session.get_outputs(), session.run(None, given), strict=True):
                        assert got[item.name].shape == want.shape, f"{item.name}, {rate}"
                        np.testing.assert_allclose(got[item.name], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in ELSEWHERE else one for one in COUNTED]
)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    proto, library = COUNTED[name](), tmp_path / "m.so"
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", CompileOptions(output=library, target="cpu"))
    check(proto, library, name)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "name", [one if one == "detections" else pytest.param(one, marks=pytest.mark.slow) for one in COUNTED]
)
def test_on_a_device(name: str, opencl_driver: str, tmp_path: Path) -> None:
    proto, library = COUNTED[name](), tmp_path / "m.so"
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", CompileOptions(output=library, target="opencl-cpu"))
    check(proto, library, name, opencl_driver)


@pytest.mark.parametrize("name", ["masks", pytest.param("detections", marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", TARGETS)
def test_in_the_emulator(name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_only(monkeypatch)
    proto = COUNTED[name]()
    given = feeds(proto, RATES[0])
    got = emulate(proto, given, target, tmp_path)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for item, want in zip(session.get_outputs(), session.run(None, given), strict=True):
        assert got[item.name].shape == want.shape
        np.testing.assert_allclose(got[item.name], want, rtol=1e-5, atol=1e-6)


def test_from_the_command_line(tk: Tk, tmp_path: Path) -> None:
    """A name and a range in what is shown; a smaller bound, and what a run says that finds more."""
    proto = COUNTED["NonZero"]()
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [2, "found"])
    proto.graph.output[0].CopyFrom(made)
    onnx.save(proto, tmp_path / "m.onnx")
    for options, most in (((), 21), (("--dim", "found=0..5"), 5)):
        done = tk("compile", "m.onnx", *options)
        assert done.code == 0, done.err
        shown = tk("inspect", "m.so").out
        assert f"found: 0 to {most}, as many as a run finds" in shown
    with compiler.load(tmp_path / "m.so") as loaded:
        few = feeds(proto, 0.1)
        assert loaded.output_shapes(few) == {"y": (2, 5)}
        np.testing.assert_array_equal(loaded.run(few)["y"], np.nonzero(few["x"]))
        with pytest.raises(compiler.BadInputError, match=r"found 21 of 'found'.* room for 5") as caught:
            loaded.run(feeds(proto, 1))
        assert "--dim 'found=0..21'" in caught.value.hint
        np.testing.assert_array_equal(loaded.run(few)["y"], np.nonzero(few["x"]))


def test_verify(tk: Tk, tmp_path: Path) -> None:
    onnx.save(COUNTED["detections"](), tmp_path / "m.onnx")
    assert tk("compile", "m.onnx").code == 0
    done = tk("verify", "m.so", "--model", "m.onnx")
    assert done.code == 0, done.err + done.out


def test_memory_of_the_caller(tmp_path: Path) -> None:
    """It has room for the bound; what there is lies dense at its beginning, with dimensions and strides."""
    proto = COUNTED["NonZero"]()
    onnx.save(proto, tmp_path / "m.onnx")
    compiler.compile_model(tmp_path / "m.onnx", CompileOptions(output=tmp_path / "m.so", target="cpu"))
    with compiler.load(tmp_path / "m.so") as loaded:
        out = np.full((2, 21), -7, np.int64)
        for rate in RATES:
            given = feeds(proto, rate)
            got = loaded.run(given, out={"y": out})["y"]
            np.testing.assert_array_equal(got, np.nonzero(given["x"]))
            np.testing.assert_array_equal(out.reshape(-1)[: got.size].reshape(got.shape), got)
        with pytest.raises(compiler.BadInputError, match="its shape is"):
            loaded.run(given, out={"y": np.zeros((2, 3), np.int64)})
