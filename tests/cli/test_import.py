"""`tk import`: which files, by which command, and what is refused; with PyTorch also the whole way."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler import BadInputError, BuildError, ExampleInput, HostError, UsageError
from tests.support.command import Result
from tests.unit.frontend.test_foreign import KINDS
from toolchain import importing
from toolchain.commands.import_model import example_inputs
from toolchain.importing import plan_import, run_import

Tk = Callable[..., Result]
ONLY_WEIGHTS = 'os.environ["TORCH_FORCE_WEIGHTS_ONLY_LOAD"] = "1"'

TRACED = (
    '(torch.randn([1, 3, 8, 8]), torch.zeros([1, 7], dtype=torch.int64),), "script.onnx", '
    "input_names=[\"x\", \"ids\"], dynamic_axes={'x': {0: 'batch', 2: 'rows'}}, dynamo=False)"
)


def written(name: str, folder: Path) -> Path:
    (folder / name).write_bytes(KINDS[name][0])
    return folder / name


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("m.pt2", (), 'torch.onnx.export(torch.export.load("m.pt2"), f="m.onnx", dynamo=True)'),
        (
            "m.pt2",
            ("--opset", "20", "-o", "o.onnx"),
            'torch.export.load("m.pt2"), f="o.onnx", dynamo=True, opset_version=20)',
        ),
        (
            "script.pt",
            ("--shape", "x=1,3,8,8", "--shape", "ids=1,7", "--integer", "ids", "--free", "x=0:batch,2:rows"),
            TRACED,
        ),
        ("m.tflite", (), "-m tf2onnx.convert --tflite m.tflite --output m.onnx"),
    ],
)
def test_dry_run_shows_the_command(
    tk: Tk, name: str, options: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    written(name, tmp_path)
    shown = tk("import", name, "--dry-run", *options)
    assert shown.code == 0, shown.err
    words = shlex.split(shown.out)
    assert words[0] == "python"
    assert expected in " ".join(words[1:])
    assert (ONLY_WEIGHTS in shown.out) == name.endswith(("pt", "pt2"))
    document = tk("import", name, "--dry-run", "--json", *options).json
    assert document["command"] == shown.out.strip()
    assert (document["source"], document["bytes"]) == (name, None)
    assert [one.name for one in tmp_path.glob("*.onnx")] == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("m.pt", "to read pickled objects is to run the program in them"),
        ("old.pth", "to read pickled objects"),
        ("m.zip", "a zip archive"),
    ],
)
def test_other_files_are_refused(tk: Tk, name: str, message: str, tmp_path: Path) -> None:
    written(name, tmp_path)
    for command in ("import", "compile"):
        result = tk(command, name)
        assert (result.code, message in result.err) == (3, True), result.err


def test_models_need_no_import(tk: Tk, tmp_path: Path) -> None:
    assert tk("zoo", "make", "mnist").code == 0
    result = tk("import", "mnist.onnx")
    assert (result.code, "`tk compile mnist.onnx`" in result.err) == (3, True), result.err


def test_compile_names_both_commands(tk: Tk, tmp_path: Path) -> None:
    written("script.pt", tmp_path)
    message = tk("compile", "script.pt").err
    assert "`tk import script.pt --shape x=1,3,224,224`" in message
    assert 'torch.jit.load("script.pt")' in message


def test_what_the_options_lack(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say what it takes"):
        plan_import(written("script.pt", tmp_path), None, (), None)
    with pytest.raises(UsageError, match="shapes are for TorchScript"):
        plan_import(written("m.pt2", tmp_path), None, (ExampleInput("x", (1,)),), None)
    with pytest.raises(UsageError, match="`y` has no --shape"):
        example_inputs(["x=1,2"], ["y"], None)
    with pytest.raises(UsageError, match="has 2 dimensions"):
        example_inputs(["x=1,2"], None, ["x=2:rows"])
    for text in ("x=batch", "x=0:a b", "x=-1:a"):
        with pytest.raises(UsageError, match="cannot read the value"):
            example_inputs(["x=1,2"], None, [text])


def test_an_exporter_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    plan = plan_import(written("m.pt2", tmp_path), tmp_path / "m.onnx", (), None)
    with pytest.raises(HostError) as caught:
        run_import(plan)
    assert caught.value.what == "the exporter is not installed: torch, onnxscript"
    assert "pip install 'tk-toolchain[import]'" in caught.value.hint
    assert plan.command in caught.value.hint


def test_an_exporter_that_fails_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed: the file is none."""
    monkeypatch.setattr(importing.importlib.util, "find_spec", lambda _: True)
    (tmp_path / "m.onnx").write_bytes(b"old")
    plan = plan_import(written("m.tflite", tmp_path), tmp_path / "m.onnx", (), None)
    with pytest.raises(BuildError, match="the exporter failed") as caught:
        run_import(plan)
    assert caught.value.why.strip()
    assert (tmp_path / "m.onnx").read_bytes() == b"old"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["m.onnx", "m.tflite"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be read"):
        plan_import(tmp_path / "none.pt2", None, (), None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's, of TorchScript
@pytest.mark.parametrize("kind", ["torch-export", "torchscript"])
def test_the_whole_way(kind: str, tk: Tk, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: PyTorch is not installed")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval()
    example = torch.randn(2, 3, 8, 8)
    words = ["m.pt2"]
    if kind == "torch-export":
        batch = torch.export.Dim("batch")
        torch.export.save(
            torch.export.export(module, (example,), dynamic_shapes=({0: batch},)), tmp_path / "m.pt2"
        )
    else:
        torch.jit.trace(module, example).save(tmp_path / "m.pt")
        words = ["m.pt", "--shape", "x=2,3,8,8", "--free", "x=0:batch"]
    made = tk("import", *words, "-o", "m.onnx", "--json")
    assert made.code == 0, made.err
    assert made.json["bytes"] == sum(one.stat().st_size for one in tmp_path.glob("m.onnx*")) > 0
    assert tk("compile", "m.onnx").code == 0
    assert tk("verify", "m.so", "--model", "m.onnx").code == 0
