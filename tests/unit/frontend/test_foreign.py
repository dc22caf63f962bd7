"""Files of other kinds: what they are, and the command that makes an ONNX model of them."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compiler import BadInputError
from compiler.frontend.foreign import refuse_foreign
from tests.support.command import Result

Tk = Callable[..., Result]


def archive(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name in names:
            made.writestr(name, b"x")
    return stream.getvalue()


def safetensors() -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(4)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 102400000\n"
KINDS = {
    "empty.onnx": (b"", "the file is empty", "copy or export it again"),
    "resnet50.onnx": (POINTER, "a pointer of Git LFS", "`git lfs pull --include resnet50.onnx`"),
    "m.pt2": (
        archive("m/archive_format", "m/models/model.json", "m/data/weights/w.pt"),
        "a program of torch.export",
        'torch.onnx.export(torch.export.load("FOLDER/m.pt2"), f="FOLDER/m.onnx", dynamo=True)',
    ),
    "old.pt2": (
        archive("serialized_exported_program.json", "version"),
        "a program of torch.export",
        "python -c",
    ),
    "script.pt": (archive("s/data.pkl", "s/code/__torch__.py"), "a TorchScript program", "torch.jit.load"),
    "m.pt": (
        archive("m/data.pkl", "m/data/0", "m/version"),
        "a PyTorch file",
        "`torch.onnx.export(model.eval()",
    ),
    "old.pth": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "a PyTorch file", "torch.load"),
    "m.h5": (
        b"\x89HDF\r\n\x1a\n" + bytes(64),
        "a Keras model",
        "`python -m tf2onnx.convert --keras FOLDER/m.h5 --output FOLDER/m.onnx`",
    ),
    "m.keras": (archive("config.json", "metadata.json", "model.weights.h5"), "a Keras model", "--keras"),
    "m.tflite": (
        b"\x1c\0\0\0TFL3" + bytes(64),
        "a TensorFlow Lite model",
        "`python -m tf2onnx.convert --tflite FOLDER/m.tflite --output FOLDER/m.onnx`",
    ),
    "m.safetensors": (
        safetensors(),
        "a file of weights (safetensors)",
        "optimum-cli export onnx --model FOLDER",
    ),
    "m.ort": (b"\x1c\0\0\0ORTM" + bytes(64), "the ORT format", "made from"),
    "m.gguf": (b"GGUF\x03\0\0\0", "a GGUF file", "optimum-cli"),
    "m.zip": (archive("m.onnx"), "a zip archive", "`unzip FOLDER/m.zip`"),
    "broken.zip": (b"PK\x03\x04" + bytes(10), "a zip archive", "unzip"),
    "m.onnx.gz": (b"\x1f\x8b\x08" + bytes(20), "a compressed file", "unpack it"),
    "m.onnx.bz2": (b"BZh91AY&SY" + bytes(20), "a compressed file", "unpack it"),
    "m.so": (b"\x7fELF" + bytes(60), "a program or library (ELF)", "`tk run`"),
    "page.onnx": (b"\n<!DOCTYPE html><html>", "a web page", "download the file itself"),
}


@pytest.mark.parametrize("name", KINDS)
def test_it_says_what_a_file_is_and_how_it_becomes_a_model(name: str, tmp_path: Path) -> None:
    data, is_a, how = KINDS[name]
    with pytest.raises(BadInputError) as caught:
        refuse_foreign(data, tmp_path / name)
    error = caught.value
    assert is_a in error.what
    assert how.replace("FOLDER", str(tmp_path)) in error.hint
    assert (error.where, int(error.code)) == (str(tmp_path / name), 3)


@pytest.mark.parametrize("name", ["m.pt2", "m.tflite", "empty.onnx", "resnet50.onnx"])
@pytest.mark.parametrize("command", ["compile", "inspect"])
def test_commands_say_it(tk: Tk, name: str, command: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(KINDS[name][0])
    result = tk(command, name)
    assert result.code == 3
    assert KINDS[name][1] in result.err
    assert KINDS[name][2].replace("FOLDER/", "").replace("FOLDER", ".") in result.err


def test_verify_says_it_of_its_model(tk: Tk, tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(KINDS["m.tflite"][0])
    assert tk("zoo", "make", "mnist").code == 0
    assert tk("compile", "mnist.onnx").code == 0
    result = tk("verify", "mnist.so", "--model", "m.tflite")
    assert (result.code, "a TensorFlow Lite model" in result.err) == (3, True), result.err
    result = tk("bench", "mnist.so", "--baseline", "m.tflite", "--seconds", "0.1")
    assert (result.code, "a TensorFlow Lite model" in result.err) == (3, True), result.err


@pytest.mark.parametrize("name", ["it's; rm -rf $HOME.pt2", 'a"b`id`.pt2', "{file}.pt2", "-x.tflite"])
def test_names_stay_names_in_the_commands(name: str) -> None:
    data = KINDS["m.tflite" if name.endswith("tflite") else "m.pt2"][0]
    with pytest.raises(BadInputError) as caught:
        refuse_foreign(data, Path(name))
    command = caught.value.hint.partition(": `")[2].removesuffix("`")
    words = shlex.split(command)
    assert words[0] == "python"
    if name.endswith("pt2"):
        assert len(words) == 3
        assert f"load({json.dumps(name)})" in words[2]
    else:
        assert name in words


def test_models_are_models() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [info], [info])
    for producer in ("", "TFL3", "PK\x03\x04"):
        proto = helper.make_model(graph, producer_name=producer)
        refuse_foreign(proto.SerializeToString(), Path("m.onnx"))


@given(
    st.binary(max_size=64), st.sampled_from([b"", b"PK\x03\x04", b"\x80\x02", bytes(4) + b"TFL3", b"<html"])
)
def test_any_bytes_end_in_an_error_or_none(data: bytes, start: bytes) -> None:
    with contextlib.suppress(BadInputError):
        refuse_foreign(start + data, Path("m.onnx"))
