"""`tk package --format oci`: an image layout that is written, checked and run without any engine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler import DynamicNeeds, dynamic_needs
from tests.support import aarch64, command
from tests.support.command import ROOT, Result
from toolchain.deploy import slim
from toolchain.deploy.library import read_library

Tk = Callable[..., Result]
NAME = 'y"$(id)\x1b[2J=1'
X = np.linspace(-3, 5, 6, dtype=np.float32).reshape(2, 3)


def write_model(path: Path) -> None:
    """relu(x), twice as float32 and once as truth values of what is above zero."""
    nodes = [
        helper.make_node("Relu", ["x"], [NAME]),
        helper.make_node("Greater", ["x", "zero"], ["positive"]),
    ]
    outputs = [
        helper.make_tensor_value_info(NAME, TensorProto.FLOAT, (2, 3)),
        helper.make_tensor_value_info("positive", TensorProto.BOOL, (2, 3)),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, (), [0.0])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [zero])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("library")
    write_model(folder / "relu.onnx")
    assert command.tk("compile", "relu.onnx", cwd=folder).code == 0
    return folder / "relu.so"


def packaged(library: Path, name: str, *words: object) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The report of an image, and the files of its archive."""
    done = command.tk("package", library, "--format", "oci", "-o", name, "--json", *words, cwd=library.parent)
    assert done.code == 0, done.err
    with tarfile.open(library.parent / name) as archive:
        files = {one.name: archive.extractfile(one) for one in archive if one.isfile()}
        return done.json, {path: stream.read() for path, stream in files.items() if stream is not None}


@pytest.fixture(scope="module")
def image(library: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    return packaged(library, "relu.oci.tar", "--tag", "team/relu:1")


def unpacked(files: dict[str, bytes], root: Path) -> Path:
    """The file system of an image."""
    for path in json.loads(files["manifest.json"])[0]["Layers"]:
        with tarfile.open(fileobj=io.BytesIO(files[path])) as layer:
            layer.extractall(root, filter="tar")
    return root


def run_inside(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The runner with the image's own dynamic linker and libraries, and none of this machine's."""
    (linker,) = (one for folder in ("lib", "lib64") for one in root.glob(f"{folder}/ld-linux-*"))
    argv = [linker, "--inhibit-cache", "--library-path", root / "lib", root / "usr/bin/tk-run"]
    library = ["--library", root / "model/model.so"]
    return subprocess.run([*argv, *library, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("cc", [name for name in ("gcc", "clang") if shutil.which(name)])
def test_the_runner_compiles_without_a_warning(cc: str, tmp_path: Path) -> None:
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", '-DTK_LIBRARY="x"']
    include, source = ROOT / "compiler/runtime/include", ROOT / "toolchain/deploy/files/runner.c"
    argv = [cc, *strict, "-I", include, source, "-o", tmp_path / "run", "-ldl", "-lm"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_layout_is_whole(image: tuple[dict[str, Any], dict[str, bytes]]) -> None:
    report, files = image
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}

    def blob(descriptor: dict[str, Any]) -> bytes:
        digest = descriptor["digest"].removeprefix("sha256:")
        data = files[f"blobs/sha256/{digest}"]
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
        return data

    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["digest"] == report["image"]["digest"]
    assert entry["annotations"]["org.opencontainers.image.ref.name"] == "1"
    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    layers = [hashlib.sha256(blob(one)).hexdigest() for one in manifest["layers"]]
    assert config["rootfs"]["diff_ids"] == [f"sha256:{one}" for one in layers]
    assert config["config"]["User"] == "65532:65532"
    assert {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()] == config["architecture"]
    (docker,) = json.loads(files["manifest.json"])
    assert docker["Layers"] == [f"blobs/sha256/{one}" for one in layers]
    assert docker["RepoTags"] == ["team/relu:1"]
    blobs = {path for path in files if path.startswith("blobs/")}
    assert blobs == {docker["Config"], *docker["Layers"], f"blobs/sha256/{entry['digest'][7:]}"}


def test_nothing_else_is_inside(image: tuple[dict[str, Any], dict[str, bytes]], tmp_path: Path) -> None:
    report, files = image
    root = unpacked(files, tmp_path)
    inside = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert inside == {one["path"] for one in report["files"]}
    assert not [one for one in inside if one.startswith(("bin/", "usr/bin/")) and one != "usr/bin/tk-run"]
    bill = json.loads((root / "model/sbom.cdx.json").read_text())
    named = {one["name"]: one for one in bill["components"]}
    shared = {one.rpartition("/")[2] for one in inside if one.startswith(("lib/", "lib64/"))}
    assert shared <= named.keys()
    assert all(named[one]["hashes"] and named[one]["licenses"] for one in shared)
    assert {"tk-run", "tk-runtime"} <= named.keys()


def test_libraries_of_libraries_go_along(library: Path) -> None:
    found = read_library(library)
    one = replace(found, needs=replace(found.needs, libraries=("libstdc++.so.6",)))
    runner = DynamicNeeds(
        platform.machine(), (), {}, dynamic_needs(Path(sys.executable).resolve()).interpreter
    )
    names = {shared.name for shared in slim._closure(one, runner)}
    assert names >= {
        "libstdc++.so.6",
        "libm.so.6",
        "libc.so.6",
        "libgcc_s.so.1",
        Path(runner.interpreter).name,
    }


def test_it_runs_on_its_own_libraries(image: tuple[dict[str, Any], dict[str, bytes]], tmp_path: Path) -> None:
    root = unpacked(image[1], tmp_path / "root")
    checked = run_inside(root, "--check")
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.rstrip().endswith("self test passed")
    described = run_inside(root, "--describe").stdout
    assert described.splitlines() == [
        "input x float32[2,3]", 'output y"$(id)?[2J=1 float32[2,3]', "output positive bool8[2,3]",
    ]  # fmt: skip
    out = tmp_path / "out"
    out.mkdir()
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.raw").write_bytes(X.tobytes())
    for file in ("x.npy", "x.raw"):
        done = run_inside(root, "--input", f"x={tmp_path / file}", "--output-dir", str(out))
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(out / "output0.npy"), np.maximum(X, 0))
        np.testing.assert_array_equal(np.load(out / "output1.npy"), X > 0)
    assert "min 0 max 5 mean" in done.stdout


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (X.astype(np.float64), "are not those of the input, which are <f4"),
        (np.asfortranarray(X), "is not in row-major order"),
        (X[:1], "expected float32[2,3], got float32[1,3]"),
    ],
)
def test_inputs_that_do_not_fit(
    image: tuple[dict[str, Any], dict[str, bytes]], tmp_path: Path, array: Any, said: str
) -> None:
    root = unpacked(image[1], tmp_path / "root")
    np.save(tmp_path / "x.npy", array)
    done = run_inside(root, "--input", f"x={tmp_path / 'x.npy'}")
    assert done.returncode == 3
    assert said in done.stderr
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\0\xff\xff{")
    assert "is cut off" in run_inside(root, "--input", f"x={tmp_path / 'x.npy'}").stderr


def test_the_self_test_fails_where_the_result_differs(
    image: tuple[dict[str, Any], dict[str, bytes]], tmp_path: Path
) -> None:
    root = unpacked(image[1], tmp_path)
    for number, wrong in ((0, np.ones((2, 3), np.float32)), (1, np.zeros((2, 3), bool))):
        path = root / "model" / "sample" / f"output{number}.npy"
        right = path.read_bytes()
        np.save(path, wrong if number == 0 else ~np.load(path))
        done = run_inside(root, "--check")
        assert done.returncode == 6, done.stdout
        assert "DIFFERENT" in done.stdout
        path.write_bytes(right)
    assert run_inside(root, "--check").returncode == 0


def test_the_same_library_gives_the_same_bytes(
    image: tuple[dict[str, Any], dict[str, bytes]], library: Path
) -> None:
    again, files = packaged(library, "again.tar", "--tag", "team/relu:1")
    assert files == image[1]
    other, _ = packaged(library, "other.tar", "--tag", "team/relu:1", "--seed", "1")
    assert again["image"]["digest"] == image[0]["image"]["digest"] != other["image"]["digest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "oci", "--tag", "No Name"), "cannot be the name of an image"),
        (("--format", "oci", "--push", "registry/x"), "cannot be the name of an image"),
        (("--format", "tar", "--load"), "a package of the format tar is no image"),
        (("--engine", "podman"), "a package of the format dir is no image"),
        (("--seed", "1"), "a package of the format dir is no image"),
    ],
)
def test_refusals(tk: Tk, library: Path, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = tk("package", library, *words, cwd=tmp_path)
    assert done.code == 2, done.err
    assert said in done.err
    assert list(tmp_path.iterdir()) == []


def test_without_an_engine_nothing_is_left_behind(tk: Tk, library: Path, tmp_path: Path) -> None:
    words = ("--format", "oci", "--load", "--docker-host", f"unix://{tmp_path}/none")
    done = tk("package", library, *words, cwd=tmp_path)
    assert done.code == 4
    assert "none" in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@aarch64.needs_aarch64
def test_an_image_for_aarch64(library: Path, tmp_path: Path) -> None:
    """Made on another machine: no self test, and QEMU runs its runner."""
    words = ("--target", "cpu", "--arch", "armv8-a", "-o", "arm.so")
    compiled = command.tk("compile", library.with_suffix(".onnx"), *words, cwd=library.parent)
    assert compiled.code == 0, compiled.err
    report, files = packaged(library.with_name("arm.so"), "arm.tar")
    assert report["machine"] == "aarch64"
    if platform.machine() != "aarch64":
        assert "does not run code for aarch64" in report["image"]["untested"]
    config = json.loads(files[json.loads(files["manifest.json"])[0]["Config"]])
    assert config["architecture"] == "arm64"
    root = unpacked(files, tmp_path / "root")
    np.save(tmp_path / "x.npy", X)
    argv = [
        "qemu-aarch64",
        "-L",
        str(root),
        str(root / "usr/bin/tk-run"),
        "--library",
        str(root / "model/model.so"),
    ]
    argv += ["--input", f"x={tmp_path / 'x.npy'}", "--output-dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "output0.npy"), np.maximum(X, 0))
