"""Dimensions that a model leaves open: `--dim`, all of them in one error, and a command that would do."""

from __future__ import annotations

import copy
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler import CompileOptions, UsageError, compile_model, load
from compiler.frontend.onnx import import_model
from compiler.frontend.open_dims import OpenDimensionsError
from tests.support.command import Result

Tk = Callable[..., Result]
Dims = Sequence[int | str | None] | None


def saved(folder: Path, inputs: dict[str, Dims], nodes: Sequence[onnx.NodeProto] = ()) -> Path:
    """A model with these inputs; each goes through Relu into an output of its own unless nodes are given."""
    made = nodes or [helper.make_node("Relu", [name], [f"{name}_out"]) for name in inputs]
    outputs = [one.output[0] for one in made[-len(inputs) :]] if nodes == () else [made[-1].output[0]]
    weight = numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        made,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [weight] if nodes else [],
    )
    path = folder / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def shapes_of(path: Path, **options: object) -> list[tuple[int, ...]]:
    return [value.type.shape for value in import_model(path, **options).inputs]  # type: ignore[arg-type]


def test_a_symbol_is_given_once_for_all_inputs(tmp_path: Path) -> None:
    path = saved(tmp_path, {"x": ("batch", 4), "y": (2, "batch"), "z": ("batch", "seq")})
    assert shapes_of(path, dims={"batch": 3, "seq": 7}) == [(3, 4), (2, 3), (3, 7)]
    assert shapes_of(path, dims={"seq": 7}, shapes={"x": (5, 4)}) == [(5, 4), (2, 5), (5, 7)]


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dims": {"batc": 3}}, "did you mean 'batch'"),
        ({"dims": {"qqqqqqq": 3}}, "its symbols are: batch, seq"),
        ({"dims": {"batch": 0}}, "must be positive"),
        ({"dims": {"batch": 3}, "shapes": {"x": (5, 4)}}, "'batch' is 5 here and 3 elsewhere"),
    ],
)
def test_symbols_that_do_not_fit(options: dict[str, object], what: str, tmp_path: Path) -> None:
    path = saved(tmp_path, {"x": ("batch", 4), "z": ("batch", "seq")})
    with pytest.raises(UsageError) as caught:
        shapes_of(path, **options)
    assert what in str(caught.value)


def test_a_model_without_symbols_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no symbols: see --shape"):
        shapes_of(saved(tmp_path, {"x": (None, 4)}), dims={"batch": 1})


MODELS: dict[str, dict[str, Dims]] = {
    "one symbol": {"x": (4, "columns")},
    "two inputs": {"ids": ("batch", "sequence"), "mask": ("batch", "sequence")},
    "no names": {"x": (None, 3, None, None)},
    "channels last": {"x": (None, None, None, 3)},
    "no rank": {"x": None},
    "mixed": {"x": ("batch", None, 4), "y": ("batch", "seq_len"), "z": (2, 2)},
    "blanks": {"input ids": (4, "two words")},
}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "command"), [*((name, "inspect") for name in MODELS), ("no rank", "compile")]
)
def test_the_error_has_a_command_that_does(tk: Tk, name: str, command: str, tmp_path: Path) -> None:
    saved(tmp_path, MODELS[name])
    result = tk(command, "open.onnx")
    assert (result.code, result.out) == (2, "")
    hint = next(line for line in result.err.splitlines() if line.startswith("hint: "))
    words = shlex.split(hint.split("`")[1])
    assert words[:3] == ["tk", command, "open.onnx"]
    done = tk(*words[1:])
    assert done.code == 0, done.err


def test_the_error_lists_all_free_dimensions(tk: Tk, tmp_path: Path) -> None:
    saved(
        tmp_path,
        {"ids": ("batch", "sequence"), "mask": ("batch", "sequence"), "x": (None, 3, None, 8), "u": None},
    )
    result = tk("compile", "open.onnx")
    *lines, hint = result.err.splitlines()
    assert lines == [
        "error: the model has 5 dimensions without a value",
        "where: open.onnx",
        "why: ",
        "  ids [batch, sequence]",
        "  mask [batch, sequence]",
        "  x [?, 3, ?, 8]",
        "  u of a shape that the model does not say",
        "  free: batch, sequence",
    ]
    words = "--shape x=1,3,224,8 --shape u=1,3,224,224 --dim batch=1 --dim sequence=128"
    assert f"`tk compile open.onnx {words}`" in hint


def test_what_is_given_is_asked_for_no_more(tk: Tk, tmp_path: Path) -> None:
    saved(tmp_path, {"x": ("batch", "seq"), "y": ("seq", None)})
    result = tk("inspect", "open.onnx", "--dim", "seq=5")
    assert "2 dimensions without a value" in result.err
    assert "  x [batch, 5]" in result.err
    assert "`tk inspect open.onnx --shape y=5,1 --dim batch=1`" in result.err


def test_an_image_gets_an_image(tk: Tk, tmp_path: Path) -> None:
    """A convolution would not take one row of pixels."""
    conv = helper.make_node("Conv", ["x", "w"], ["y"])
    saved(tmp_path, {"x": ("N", 3, "height", "width")}, [conv])
    result = tk("inspect", "open.onnx")
    words = shlex.split(result.err.split("`")[1])
    assert words[3:] == ["--dim", "N=1", "--dim", "height=224", "--dim", "width=224"]
    assert tk(*words[1:]).code == 0


def test_another_value_is_another_library(tmp_path: Path) -> None:
    path = saved(tmp_path, {"x": ("batch", 4)})
    for batch in (2, 3):
        compile_model(path, CompileOptions(output=tmp_path / "m.so", dims={"batch": batch}))
        assert load(tmp_path / "m.so").inputs[0].largest_shape == (batch, 4)


def test_many_inputs_are_cut(tmp_path: Path) -> None:
    path = saved(tmp_path, {f"past{n}": ("batch", f"s{n}") for n in range(60)})
    with pytest.raises(OpenDimensionsError) as caught:
        import_model(path)
    assert caught.value.what == "the model has 61 dimensions without a value"
    assert "and 48 more inputs" in caught.value.why
    assert len(caught.value.why.splitlines()) == 15
    assert str(copy.copy(caught.value)) == str(caught.value)


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=0", "batch=a", "batch=1,2", "=3"])
def test_what_dim_does_not_take(tk: Tk, text: str, tmp_path: Path) -> None:
    saved(tmp_path, {"x": ("batch", 4)})
    result = tk("compile", "open.onnx", "--dim", text)
    assert (result.code, "--dim" in result.err) == (2, True)


def test_a_library_takes_no_dimensions(tk: Tk, tmp_path: Path) -> None:
    saved(tmp_path, {"x": ("batch", 4)})
    assert tk("compile", "open.onnx", "--dim", "batch=2").code == 0
    result = tk("inspect", "open.so", "--dim", "batch=2")
    assert (result.code, "a library's shapes are fixed" in result.err) == (2, True)
