"""Models with free dimensions, compiled once and run at many sizes; oracle: onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler import CompileOptions, SizeRange
from compiler.pipeline import run_job
from compiler.stages.job import CompileJob
from tests.support.command import Result
from tests.support.emulated_models import TARGETS, text_only
from tests.support.sized_models import SIZED, attention, feeds, model, node

Tk = Callable[..., Result]
SIZES = {
    "attention": [{"B": b, "S": n} for b, n in ((1, 3), (2, 64), (1, 17), (3, 1), (2, 33))],
    "windows": [{"N": n, "H": h, "W": w} for n, h, w in ((1, 6, 9), (2, 31, 33), (1, 40, 7), (1, 12, 12))],
    "long sums": [{"S": n} for n in (1, 24, 17, 1, 3)],
    "cache": [{"past": p, "steps": n} for p, n in ((0, 4), (4, 1), (5, 1), (40, 24))],
}


@pytest.mark.parametrize("name", SIZES)
def test_as_onnxruntime(name: str, tmp_path: Path) -> None:
    proto, library = SIZED[name](), tmp_path / "m.so"
    onnx.save(proto, tmp_path / "m.onnx")
    ranges = {symbol: SizeRange(0 if symbol == "past" else 1, 64) for symbol in SIZES[name][0]}
    dims = {symbol: item for symbol, item in ranges.items() if symbol not in "NB"}
    compiler.compile_model(tmp_path / "m.onnx", CompileOptions(output=library, target="cpu", dims=dims))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with compiler.load(library) as loaded:
        for threads in (1, 2):
            with loaded.context(threads) as context:
                for sizes in SIZES[name]:
                    given = feeds(proto, sizes)
                    got = context.run(given)
                    for item, expected in zip(session.get_outputs(), session.run(None, given), strict=True):
                        np.testing.assert_allclose(got[item.name], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SIZES)
def test_in_the_emulator(name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that a run does not need are not started: there is what the run before left."""
    text_only(monkeypatch)
    proto, library = SIZED[name](), tmp_path / "m.so"
    onnx.save(proto, tmp_path / "m.onnx")
    largest = {symbol: 2 if symbol in "NB" else 24 for symbol in SIZES[name][0]}
    dims = {symbol: SizeRange(int(symbol != "past"), 24) for symbol in largest if symbol not in "NB"}
    run_job(CompileJob.of(tmp_path / "m.onnx", CompileOptions(output=library, target=target, dims=dims)))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with compiler.load(library, device="emulator") as loaded, loaded.context() as context:
        poison = feeds(proto, largest)
        context.run(
            {key: array if array.dtype.kind == "i" else array * np.nan for key, array in poison.items()}
        )
        for sizes in SIZES[name][1:]:
            given = feeds(proto, {symbol: min(size, 24) for symbol, size in sizes.items()})
            got = context.run(given)
            for item, expected in zip(session.get_outputs(), session.run(None, given), strict=True):
                np.testing.assert_allclose(got[item.name], expected, rtol=1e-4, atol=1e-5)


def test_launches_end_with_what_a_run_has(tmp_path: Path) -> None:
    """The plan says which, along which axis, and where."""
    onnx.save(attention(batch=1), tmp_path / "m.onnx")
    options = CompileOptions(output=tmp_path / "source", target="cuda-nvidia", emit="source")
    compiler.compile_model(tmp_path / "m.onnx", options)
    texts = [path.read_text() for path in (tmp_path / "source").iterdir()]
    row = r"^  \{(\d+), ([012]), (\d+), (\d+), \{0, grid_end_\d+, 0, 1\}\},$"
    rows = [found for text in texts for found in re.findall(row, text, re.MULTILINE)]
    assert len({launch for launch, *_ in rows}) >= 4, "tokens, products, scores, product and sum, norm"


def test_a_size_out_of_range(tk: Tk, tmp_path: Path) -> None:
    proto = model([node("Softmax", ["x"], ["y"])], {"x": ("B", "tokens")}, ("y",))
    onnx.save(proto, tmp_path / "m.onnx")
    done = tk("compile", "m.onnx", "--shape", "x=1,2..8")
    assert done.code == 0, done.err
    with compiler.load(tmp_path / "m.so") as loaded:
        for count in (1, 9):
            with pytest.raises(compiler.BadInputError, match=r"tokens.* 2 to 8"):
                loaded.run({"x": np.zeros((1, count), np.float32)})


def test_a_size_between_steps(tk: Tk, tmp_path: Path) -> None:
    """What is halved twice has to meet what was not: the library says so, and refuses others."""
    proto = SIZED["there and back"]()
    onnx.save(proto, tmp_path / "m.onnx")
    done = tk("compile", "m.onnx", "--dim", "H=1..30")
    assert done.code == 0, done.err
    assert "H: 4 to 28 in steps of 4" in tk("inspect", "m.so").out
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with compiler.load(tmp_path / "m.so") as loaded:
        for height in (4, 20, 28):
            given = feeds(proto, {"H": height})
            np.testing.assert_allclose(
                loaded.run(given)["y"], session.run(None, given)[0], rtol=1e-4, atol=1e-5
            )
        with pytest.raises(
            compiler.BadInputError, match=r"'H'.* is 10, expected 4 to 28 in multiples of 4"
        ) as caught:
            loaded.run(feeds(proto, {"H": 10}))
    assert "--shape" not in caught.value.hint, "no range has it"


def test_what_leads_nowhere_is_not_computed(tmp_path: Path) -> None:
    """Kernels end with what a run has: their source says so."""
    onnx.save(attention(batch=1), tmp_path / "m.onnx")
    options = CompileOptions(output=tmp_path / "source", target="cpu", emit="source")
    compiler.compile_model(tmp_path / "m.onnx", options)
    texts = [item.read_text() for item in (tmp_path / "source").glob("k*.cpp")]
    limited = [text for text in texts if "tk_symbols" in text]
    assert len(limited) == 5, (
        "tokens, products, attention, product and sum, norm; not masks and what is masked"
    )


@pytest.mark.parametrize("text", ["x=1,8..2", "x=1,2..", "x=1,0..0"])
def test_ranges_that_are_none(text: str, tk: Tk, tmp_path: Path) -> None:
    onnx.save(model([node("Relu", ["x"], ["y"])], {"x": (1, "N")}, ("y",)), tmp_path / "m.onnx")
    done = tk("compile", "m.onnx", "--shape", text)
    assert done.code == 2
    assert "cannot read the value of `x`" in done.err
