"""A package on a base with a vendor's runtime, where there is nothing else: OpenCL on host cores with PoCL.

The base is Debian with Debian's PoCL. The oracle is onnxruntime on the same inputs. The self test that the
image keeps was made by the OpenCL driver of this machine. Images for GPUs run nowhere here: their archives'
structure is tested in tests/cli/test_package_base.py; here, that `tk package` says why it did not run them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.support import command
from tests.support.command import Result
from tests.support.engine import TestEngine, base_with
from tests.support.onnx_models import model
from toolchain.engine.client import Engine, Finished

pytestmark = pytest.mark.slow
WEIGHTS = np.random.default_rng(3).standard_normal((24, 40), np.float32)
X = np.random.default_rng(4).standard_normal((8, 24), np.float32)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Path:
    """softmax(relu(x @ weights))."""
    path = tmp_path_factory.mktemp("network") / "small.onnx"
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    onnx.save(model(nodes, {"x": X}, ["y"], {"w": WEIGHTS}), path)
    return path


@pytest.fixture(scope="module")
def library(network: Path, opencl_drivers: dict[str, str]) -> Path:
    if "pocl" not in opencl_drivers:
        pytest.skip(f"not run: no PoCL here: {opencl_drivers.get('', 'only another driver')}")
    done = command.tk("compile", network, "--target", "opencl-cpu", "-o", "small.so", cwd=network.parent)
    assert done.code == 0, done.err
    return network.parent / "small.so"


def packaged(library: Path, engine: TestEngine, base: str, *words: str) -> Result:
    where = ("--format", "oci", "--base", base, "--docker-host", engine.url, "--json")
    return command.tk("package", library, *where, *words, cwd=library.parent, timeout=900)


def run_in(engine: Engine, image: str, argv: list[str], folder: Path, access: dict[str, str]) -> Finished:
    """With the options that the report of the package names, and a folder with data."""
    folder.chmod(0o777)
    host: dict[str, Any] = {
        "network_mode": access["network"],
        "read_only": "read-only" in access,
        "cap_drop": [access["cap-drop"]],
        "security_opt": [access["security-opt"]],
        "tmpfs": dict([access["tmpfs"].split(":", 1)]),
        "binds": [f"{folder}:/data"],
    }
    return engine.run(image, argv, timeout=300, host=host)


@pytest.mark.parametrize("kind", ["docker_engine", "podman_engine"])
def test_opencl_in_a_container(
    kind: str, request: pytest.FixtureRequest, network: Path, library: Path, tmp_path: Path
) -> None:
    engine: TestEngine = request.getfixturevalue(kind)
    base = base_with(engine, "ocl-icd-libopencl1", "pocl-opencl-icd")
    done = packaged(library, engine, base, "--load", "--tag", "tk-test/on-pocl:1")
    assert done.code == 0, done.err
    image = done.json["image"]
    assert image["self_test"].rstrip().endswith("self test passed")
    access = dict(one["option"][2:].partition(" ")[::2] for one in image["access"])
    assert {*access} == {"network", "read-only", "cap-drop", "security-opt", "tmpfs"}  # host cores: no device
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").chmod(0o644)
    opened = engine.open()
    words = ["/usr/bin/tk-run", "--input", "x=/data/x.npy", "--output-dir", "/data"]
    ran = run_in(opened, "tk-test/on-pocl:1", words, tmp_path, access)
    assert ran.code == 0, ran.output
    session = onnxruntime.InferenceSession(str(network), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": X})
    np.testing.assert_allclose(np.load(tmp_path / "output0.npy"), expected, rtol=0, atol=1e-5)
    labels = (opened.image("tk-test/on-pocl:1") or {})["Config"]["Labels"]
    assert labels["org.opencontainers.image.base.name"] == base
    opened.api.remove_image("tk-test/on-pocl:1")


def test_a_base_without_the_runtime(library: Path, docker_engine: TestEngine) -> None:
    """The self test says what is missing; nothing counts as tested."""
    done = packaged(library, docker_engine, docker_engine.base, "--load", "--tag", "tk-test/on-nothing:1")
    assert done.code == 4, done.err
    assert "the self test of the image fails" in done.err
    assert "libOpenCL.so.1" in done.err
    docker_engine.open().api.remove_image("tk-test/on-nothing:1")


def test_a_name_that_no_image_has(library: Path, docker_engine: TestEngine) -> None:
    done = packaged(library, docker_engine, "cpu-sycl")
    assert done.code == 4
    assert "`tk image build cpu-sycl` makes it" in done.err
    assert packaged(library, docker_engine, "no-such-image").code == 2


def test_a_library_for_gpus_is_made_and_reported_as_not_run(network: Path, docker_engine: TestEngine) -> None:
    """Its kernels are source text, which compiles here; this machine has no such accelerator."""
    compiled = command.tk(
        "compile", network, "--target", "opencl-intel", "-o", "gpu.so", cwd=network.parent, timeout=300
    )
    assert compiled.code == 0, compiled.err
    library = network.parent / "gpu.so"
    refused = command.tk("package", library, "--format", "oci", cwd=network.parent)
    assert refused.code == 2
    assert "--base oneapi-" in refused.err
    done = packaged(library, docker_engine, docker_engine.base, "--load", "--tag", "tk-test/gpu:1")
    assert done.code == 0, done.err
    image = done.json["image"]
    assert image["self_test"] == ""
    assert image["untested"]
    options = [one["option"] for one in image["access"]]
    assert options[-2:] == ["--device /dev/dri", '--group-add "$(stat -c %g /dev/dri/renderD128)"']
    docker_engine.open().api.remove_image("tk-test/gpu:1")
