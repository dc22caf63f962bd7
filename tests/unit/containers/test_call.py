"""A command line as it is said inside a container."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler import BadInputError, UsageError
from toolchain.containers.call import call_of
from toolchain.containers.request import Word
from toolchain.options import Role

WORDS = {
    "model": Word(role=Role.MODEL),
    "library": Word(role=Role.INPUT),
    "output": Word("--output", Role.RESULT),
    "inputs": Word("--input", Role.NAMED_INPUT),
    "record": Word("--record", Role.HERE),
    "threads": Word("--threads"),
    "warmup": Word("--warmup"),
    "json": Word("--json"),
}


def write_model(path: Path, *, external: str | None = None) -> None:
    weights = helper.make_tensor("w", TensorProto.FLOAT, [2], np.ones(2, np.float32).tobytes(), raw=True)
    if external is not None:
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        weights.external_data.add(key="location", value=external)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    path.write_bytes(helper.make_model(graph).SerializeToString())


def test_files_become_paths_of_the_container(tmp_path: Path) -> None:
    model = tmp_path / "my model.onnx"
    write_model(model)
    call = call_of("compile", {"model": model, "output": tmp_path / "m.so", "threads": 2}, WORDS)
    assert call.argv == [
        "compile",
        "/job/in/0/my%20model.onnx",
        "--output=/job/out/output/m.so",
        "--threads=2",
        "--no-container",
    ]
    assert call.inputs == {"0/my%20model.onnx": model}
    assert call.results == {"output/m.so": tmp_path / "m.so"}


def test_external_data_comes_along(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(b"\0" * 8)
    write_model(tmp_path / "m.onnx", external="data/w.bin")
    assert call_of("tune search", {"threads": 2}, WORDS).argv[:2] == ["tune", "search"], "of a group"
    call = call_of("compile", {"model": tmp_path / "m.onnx"}, WORDS)
    assert call.inputs["0/data/w.bin"] == tmp_path / "data" / "w.bin"


def test_external_data_elsewhere_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 8)
    write_model(folder / "m.onnx", external="../secret")
    with pytest.raises(BadInputError, match="leaves the model's directory"):
        call_of("compile", {"model": folder / "m.onnx"}, WORDS)


def test_inputs_keep_their_names(tmp_path: Path) -> None:
    for name in ("x.npy", "all.npz"):
        (tmp_path / name).write_bytes(b"")
    given = [f"a=b={tmp_path / 'x.npy'}", str(tmp_path / "all.npz")]
    call = call_of("run", {"inputs": given}, WORDS)
    assert call.argv == ["run", "--input=a=b=/job/in/0/x.npy", "--input=/job/in/1/all.npz", "--no-container"]


def test_a_missing_file_is_found_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot read a file"):
        call_of("run", {"library": tmp_path / "none.so"}, WORDS)


@pytest.mark.parametrize(
    ("given", "said"), [({"warmup": 0.0}, ["--warmup=0.0"]), ({"json": True}, ["--json"])]
)
def test_values(given: dict[str, object], said: list[str]) -> None:
    assert call_of("bench", given, WORDS).argv == ["bench", *said, "--no-container"]


def test_what_is_printed_names_the_host_s_files(tmp_path: Path) -> None:
    library = tmp_path / 'a"b.so'
    library.write_bytes(b"")
    call = call_of("run", {"library": library}, WORDS)
    assert call.translate(b'{"path": "/job/in/0/a%22b.so"}').decode() == f'{{"path": "{tmp_path}/a\\"b.so"}}'


def test_what_belongs_to_this_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="--record has no use in a container"):
        call_of("bench", {"record": True}, WORDS)
