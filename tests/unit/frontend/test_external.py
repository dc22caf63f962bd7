"""External tensor data: read where it belongs, refused anywhere else."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.core.diagnostics import BadInputError
from compiler.frontend.onnx import import_model
from compiler.graph.interpret import evaluate

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def write_model(directory: Path, **entries: str) -> Path:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [info], [onnx.ValueInfoProto(name="y")], [tensor]
    )
    path = directory / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(proto.SerializeToString())
    return path


def loaded(path: Path) -> np.ndarray:
    return evaluate(import_model(path), {"x": np.zeros((2, 3), np.float32)})["y"]


@pytest.mark.parametrize("location", ["w.bin", "sub/w.bin", "./sub/./w.bin"])
@pytest.mark.parametrize("offset", [0, 8])
def test_data_is_read(location: str, offset: int, tmp_path: Path) -> None:
    path = write_model(tmp_path, location=location, offset=str(offset), length="24")
    (path.parent / "sub").mkdir()
    (path.parent / location).write_bytes(bytes(offset) + WEIGHTS.tobytes() + b"rest")
    np.testing.assert_array_equal(loaded(path), WEIGHTS)


def test_offset_and_length_may_be_left_out(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="w.bin")
    (path.parent / "w.bin").write_bytes(WEIGHTS.tobytes())
    np.testing.assert_array_equal(loaded(path), WEIGHTS)


@pytest.mark.parametrize(
    "location",
    ["../secret", "sub/../../secret", "/etc/passwd", "", ".", "..", "sub", "a\\..\\..\\secret", "none.bin"],
)
def test_paths_that_lead_elsewhere(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(WEIGHTS.tobytes())
    path = write_model(tmp_path, location=location)
    (path.parent / "sub").mkdir()
    with pytest.raises(BadInputError, match="external data of 'w' cannot be read"):
        loaded(path)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "w.bin").write_bytes(WEIGHTS.tobytes())
    path = write_model(tmp_path, location="w.bin")
    (path.parent / "w.bin").symlink_to(tmp_path / "outside" / "w.bin")
    with pytest.raises(BadInputError, match="cannot be read"):
        loaded(path)
    path = write_model(tmp_path, location="sub/w.bin")
    (path.parent / "sub").symlink_to(tmp_path / "outside")
    with pytest.raises(BadInputError, match="cannot be read"):
        loaded(path)
    path = write_model(tmp_path, location="hard.bin")
    os.link(tmp_path / "outside" / "w.bin", path.parent / "hard.bin")
    with pytest.raises(BadInputError, match="hard link"):
        loaded(path)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="pipe")
    os.mkfifo(path.parent / "pipe")
    with pytest.raises(BadInputError, match="no plain file"):
        loaded(path)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"offset": "4"}, "outside its file"),
        ({"offset": "99999999999"}, "outside its file"),
        ({"length": "20"}, "wrong length"),
        ({"length": "-24"}, "is broken"),
        ({"offset": "1e3"}, "is broken"),
        ({"offset": "9" * 40}, "is broken"),
    ],
)
def test_offsets_and_lengths_are_checked(entries: dict[str, str], words: str, tmp_path: Path) -> None:
    path = write_model(tmp_path, location="w.bin", **entries)
    (path.parent / "w.bin").write_bytes(WEIGHTS.tobytes())
    with pytest.raises(BadInputError, match=words):
        loaded(path)


def test_an_empty_file(tmp_path: Path) -> None:
    path = write_model(tmp_path, location="w.bin")
    (path.parent / "w.bin").write_bytes(b"")
    with pytest.raises(BadInputError, match="outside its file"):
        loaded(path)
