"""`tk package`: folders, archives and wheels of a library; what is in them runs without tk and numpy."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from compiler.core.files import sha256_file
from compiler.runtime import standalone
from compiler.runtime.dynamic import DynamicNeeds, dynamic_needs
from tests.support import command
from tests.support.command import Result
from toolchain.deploy.library import plain_name
from toolchain.deploy.wheel import platform_tag

Tk = Callable[..., Result]
HOSTILE = 'y`|\n"; import os; ${HOME} $(id) @MODULE@ \x1b[2J'
WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
X = np.linspace(-3, 5, 6, dtype=np.float32).reshape(2, 3)
MODULE = "tk_model_odd_name_1"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """relu(x @ weights), with an output whose name is code in several languages."""
    folder = tmp_path_factory.mktemp("library")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], [HOSTILE])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info(HOSTILE, TensorProto.FLOAT, (2, 4))],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "Odd Name__1.onnx")
    compiled = command.tk("compile", "Odd Name__1.onnx", cwd=folder)
    assert compiled.code == 0, compiled.err
    return folder / "Odd Name__1.so"


@pytest.fixture(scope="module")
def folder(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("packages") / "package"
    done = command.tk("package", library, "-o", target, "--licence", "MIT")
    assert done.code == 0, done.err
    assert done.out == f"{target}\n"
    return target


def expected(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.maximum(x @ WEIGHTS, 0)


def bare_python(code: str, *places: Path) -> str:
    """What a Python prints that has its standard library and these places, and no other package."""
    head = f"import sys; sys.path[:0] = {[str(one) for one in places]!r}\n"
    argv = [sys.executable, "-S", "-E", "-c", head + code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_has_what_it_says(folder: Path, library: Path) -> None:
    listed = [line.split("  ", 1) for line in (folder / "SHA256SUMS").read_text().splitlines()]
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == {path for _, path in listed} | {"SHA256SUMS"}
    assert all(sha256_file(folder / path) == digest for digest, path in listed)
    assert sha256_file(folder / "lib" / f"lib{MODULE}.so") == sha256_file(library)
    assert json.loads((folder / "manifest.json").read_text())["outputs"][0]["name"] == HOSTILE
    bill = json.loads((folder / "sbom.cdx.json").read_text())
    assert bill["specVersion"] == "1.6"
    assert bill["metadata"]["component"]["hashes"][0]["content"] == sha256_file(library)
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "MIT"}]
    assert "Apache License" in (folder / "licences" / "Apache-2.0.txt").read_text()


def test_names_of_the_model_are_data_alone(folder: Path) -> None:
    holding = [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".so" and "import os" in path.read_text()
    ]
    assert sorted(holding) == ["README.md", "manifest.json"]
    (row,) = [line for line in (folder / "README.md").read_text().splitlines() if "import os" in line]
    assert row.startswith("| output | `y'¦\\n")
    assert "\x1b" not in row


def test_archives_are_the_folder_and_reproducible(folder: Path, library: Path, tmp_path: Path) -> None:
    names = ["one.tar.gz", "two.tar.gz", "three.tar"]
    for name in names:
        assert command.tk("package", library, "-o", tmp_path / name, "--licence", "MIT").code == 0
    one, two, three = (tmp_path / name for name in names)
    assert one.read_bytes() == two.read_bytes()
    for path in (one, three):
        with tarfile.open(path) as archive:
            members = {member.name: member for member in archive if member.isfile()}
            assert {(m.uid, m.gid, m.mtime, m.uname) for m in members.values()} == {(0, 0, 0, "")}
            for name, member in members.items():
                content = archive.extractfile(member)
                assert content is not None
                place = folder / name.removeprefix("tk-model-odd-name-1/")
                assert content.read() == place.read_bytes()
        assert len(members) == sum(place.is_file() for place in folder.rglob("*"))


def test_examples_compile_without_a_warning_and_run(folder: Path, tmp_path: Path) -> None:
    strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-I", str(folder / "include")]
    shared = folder / "lib" / f"lib{MODULE}.so"
    source = folder / "examples"
    c, cpp = tmp_path / "c", tmp_path / "cpp"
    linked = [f"-L{folder / 'lib'}", f"-l{MODULE}", f"-Wl,-rpath,{folder / 'lib'}"]
    for argv in (
        ["cc", "-std=c99", *strict, str(source / "run_model.c"), "-o", str(c), "-ldl"],
        ["c++", "-std=c++17", *strict, str(source / "run_linked_model.cpp"), "-o", str(cpp), *linked],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    for program in ([c, shared], [cpp]):
        ran = subprocess.run(program, input=X.tobytes(), capture_output=True, check=True)
        found = np.frombuffer(ran.stdout, np.float32).reshape(2, 4)
        np.testing.assert_allclose(found, expected(X), rtol=1e-6, atol=1e-6)
        assert subprocess.run(program, input=b"short", capture_output=True, check=False).returncode == 1


_USE = f"""
import array, {MODULE} as package
model = package.PackagedModel(threads=1)
name = model.outputs[0].name
x = array.array("f", {X.ravel().tolist()!r})
out = array.array("f", [0.0] * 8)
print(model.run({{"x": x}})[name].tolist())
print(model.run({{"x": bytes(x)}})[name].tolist())
print(model.run({{"x": memoryview(x).cast("B").cast("f", (2, 3))}})[name].tolist())
print(model.run({{"x": x}}, {{name: out}})[name] is out, out.tolist())
print(model.manifest["target"], model.inputs[0])
WRONG = [{{}}, {{"y": x}}, {{"x": array.array("d", [0.0] * 6)}}, {{"x": b"1"}}, {{"x": 5}}, {{"x": x[:4]}}]
WRONG_OUT = [({{"x": x}}, {{name: x}}), ({{"x": x}}, {{name: bytes(32)}})]
for inputs, given in [(one, None) for one in WRONG] + WRONG_OUT:
    try:
        model.run(inputs, given)
        print("not refused")
    except package.ModelError as error:
        print(error.status, error)
model.close()
model.close()
try:
    model.run({{"x": x}})
except package.ModelError as error:
    print(error)
print("numpy" in sys.modules)
"""
_REFUSALS = [
    "0 input 'x' is missing; the model's are 'x'",
    "0 no input is called 'y'; the model's are 'x'",
    "0 'x' holds elements of format 'd', the model's are float32",
    "0 'x' has 1 bytes, the model's has 24",
    "0 'x' is neither a buffer nor a DLPack object, but a int",
    "2 input 'x': expected float32[2,3], got float32[4]: 1 dimensions, expected 2",
]


def test_the_loader_needs_the_standard_library_only(folder: Path) -> None:
    lines = bare_python(_USE, folder / "python").splitlines()
    for line in lines[:3]:
        np.testing.assert_allclose(np.array(json.loads(line)), expected(X), rtol=1e-6, atol=1e-6)
    same, _, values = lines[3].partition(" ")
    assert same == "True"
    np.testing.assert_allclose(np.array(json.loads(values)).reshape(2, 4), expected(X), rtol=1e-6, atol=1e-6)
    assert lines[4] == "cpu x: float32[2,3]"
    assert lines[5:11] == _REFUSALS
    assert "is to be written to has the shape (6,), not (2, 4)" in lines[11]
    assert "is not contiguous and writable" in lines[12]
    assert lines[13:] == ["the model is closed", "False"]


def test_the_loader_works_with_numpy(folder: Path) -> None:
    code = f"""
import numpy as np, {MODULE} as package
class Tensor:  # as torch's: DLPack alone
    def __init__(self, array): self.array = array
    def __dlpack__(self): return self.array.__dlpack__()
    def __dlpack_device__(self): return (1, 0)
model = package.PackagedModel()
name = model.outputs[0].name
x = np.array({X.tolist()!r}, np.float32)
read_only = x.copy(); read_only.flags.writeable = False
given = [x, read_only, np.asfortranarray(x), x[::1, ::1], Tensor(x)]
out = np.zeros((2, 4), np.float32)
results = [np.asarray(model.run({{"x": one}})[name]) for one in given]
results += [model.run({{"x": x}}, {{name: out}})[name]]
results += [model.run({{"x": x}}, {{name: Tensor(out)}})[name].array]
assert {{one.dtype.str for one in results}} == {{"<f4"}}
print([one.tolist() for one in results])
for wrong in (x.astype(">f4"), x.astype(np.int32), Tensor(np.zeros((2, 4), np.float32))):
    try:
        model.run({{"x": wrong}})
        print("not refused")
    except package.ModelError:
        pass
"""
    places = [folder / "python", Path(np.__file__).parents[1]]
    (line,) = bare_python(code, *places).splitlines()
    for found in json.loads(line):
        np.testing.assert_allclose(np.array(found), expected(X), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "given", "fits"),
    [
        ("int32", "<i4", True),
        ("int32", ">i4", False),
        ("int32", "<u4", False),
        ("int32", "<f4", False),
        ("float16", "<f2", True),
        ("bfloat16", "<u2", True),
        ("bfloat16", "<i2", False),
        ("int64", "<i8", True),
        ("bool", "|b1", True),
        ("uint8", "|b1", False),
    ],
)
def test_elements_are_never_taken_for_others(dtype: str, given: str, fits: bool) -> None:
    spec = standalone.TensorSpec("x", dtype, (2, 3), 0)
    view = memoryview(np.zeros((2, 3), given))
    letter = standalone._FORMATS[dtype]
    if fits:
        assert standalone._shape_of(spec, view, letter, None) == (2, 3)
        return
    with pytest.raises(standalone.ModelError, match="holds elements of format"):
        standalone._shape_of(spec, view, letter, None)


@pytest.fixture(scope="module")
def wheel(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheels")
    words = ("--format", "wheel", "--package-version", "1.2", "--licence", "MIT OR Apache-2.0", "--json")
    done = command.tk("package", library, "-o", target, *words)
    assert done.code == 0, done.err
    path = Path(done.json["path"])
    assert path.parent == target
    assert done.json["bytes"] == path.stat().st_size
    return path


def test_a_wheel_is_one(wheel: Path, library: Path) -> None:
    tag = f"py3-none-{platform_tag(dynamic_needs(library))}"
    assert wheel.name == f"{MODULE}-1.2-{tag}.whl"
    info = f"{MODULE}-1.2.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        rows = list(csv.reader(io.StringIO(archive.read(f"{info}/RECORD").decode())))
        assert [row[0] for row in rows] == archive.namelist()
        assert rows[-1] == [f"{info}/RECORD", "", ""]
        for path, digest, size in rows[:-1]:
            data = archive.read(path)
            hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={hashed}", len(data))
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        assert f"Tag: {tag}" in archive.read(f"{info}/WHEEL").decode().splitlines()
    assert metadata["Name"] == "tk-model-odd-name-1"
    assert metadata["License-Expression"] == "Apache-2.0 AND (MIT OR Apache-2.0)"
    listed = {f"{info}/licenses/{one}" for one in metadata.get_all("License-File", [])}
    assert len(listed) == 2
    assert listed <= {row[0] for row in rows}


def test_an_installed_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "--target",
        str(tmp_path),
        str(wheel),
    ]
    done = subprocess.run([*argv, "-q"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = f"import {MODULE} as package\nmodel = package.PackagedModel()\n"
    code += f"print(model.run({{'x': bytes.fromhex({X.tobytes().hex()!r})}})[model.outputs[0].name].tolist())"
    found = np.array(json.loads(bare_python(code, tmp_path)))
    np.testing.assert_allclose(found, expected(X), rtol=1e-6, atol=1e-6)


def test_tags_are_those_of_auditwheel() -> None:
    """Of each version that it allows, the oldest system that has it; what is newer than all has no tag."""
    policies = pytest.importorskip("auditwheel.policy", reason="auditwheel is not installed")
    folder = Path(policies.__file__).parent
    rows = json.loads((folder / "manylinux-policy.json").read_text())
    tried = 0
    for row in rows:
        versions = row["symbol_versions"].get("x86_64", {})
        glibc = int(row["name"].rpartition("_")[2]) if "_" in row["name"] else 0
        if glibc < 17:
            continue
        for family in ("GLIBC", "GLIBCXX", "CXXABI"):
            numbers = [tuple(map(int, one.split("."))) for one in versions[family] if one[0].isdigit()]
            tag = platform_tag(DynamicNeeds("x86_64", (), {family: max(numbers)}))
            assert int(tag.removesuffix("_x86_64").rpartition("_")[2]) <= glibc, (row["name"], family)
            older = [one for one in rows if "_" in one["name"] and one["priority"] > row["priority"]]
            known = {
                one for each in older for one in each["symbol_versions"].get("x86_64", {}).get(family, [])
            }
            new = [
                tuple(map(int, one.split("."))) for one in set(versions[family]) - known if one[0].isdigit()
            ]
            for version in new if family != "GLIBC" else ():
                found = platform_tag(DynamicNeeds("x86_64", (), {family: version}))
                assert found == f"manylinux_2_{glibc}_x86_64", (row["name"], family, version)
                tried += 1
    assert tried > 20
    assert platform_tag(DynamicNeeds("aarch64", (), {"GLIBCXX": (3, 4, 99)})) == "linux_aarch64"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--format", "whel"), 2, "did you mean 'wheel'?"),
        (("--name", "A_b"), 2, "for example a-b"),
        (("--package-version", "1 0"), 2, "is no version of a package"),
        (("--licence", "MITT"), 2, "is no SPDX licence expression"),
        (("--licence-file", "missing"), 3, "cannot read a file"),
        (("--target", "cpu"), 2, "a library is compiled already"),
        (("-o", "x.whl"), 2, "a wheel's name is not free"),
        (("-o", "no/such/folder"), 2, "the folder of the result does not exist"),
        (("-o", "full"), 2, "there is something of that name already"),
    ],
)
def test_refusals(
    tk: Tk, library: Path, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    done = tk("package", library, *words, cwd=tmp_path)
    assert done.code == code, done.err
    assert said in done.err
    assert [one.name for one in tmp_path.iterdir()] == ["full"]


def test_other_files_are_refused(tk: Tk, library: Path, tmp_path: Path) -> None:
    old = tmp_path / "old.so"
    old.write_bytes(library.read_bytes().replace(b"\0tk_model_api_v1\0", b"\0tk_model_api_v9\0"))
    done = tk("package", old, cwd=tmp_path)
    assert done.code == 3
    assert "it exports version 9, this tk packages version 1" in done.err
    program = tk("package", shutil.which("true"), cwd=tmp_path)
    assert program.code == 3
    assert "this file is no model library" in program.err


def test_a_model_is_compiled_first_and_a_dry_run_writes_nothing(
    tk: Tk, library: Path, tmp_path: Path
) -> None:
    done = tk("package", library.with_suffix(".onnx"), "--dry-run", "--json", "--target", "cpu", cwd=tmp_path)
    assert done.code == 0, done.err
    assert done.json["bytes"] is None
    assert {one["path"] for one in done.json["files"]} >= {f"lib/lib{MODULE}.so", "SHA256SUMS"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ResNet-50", "resnet-50"),
        ("a//../b", "a-b"),
        ("", "unnamed"),
        ("日本", "unnamed"),
        ("x" * 99, "x" * 64),
    ],
)
def test_names_are_made_plain(text: str, name: str) -> None:
    assert plain_name(text) == name
