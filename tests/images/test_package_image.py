"""What `tk package` writes, used where there is nothing else: slim images, archives and wheels in containers.

The oracle is onnxruntime on the same inputs. Containers have the least rights that do: no network, a file
system that is read only, no capability.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from tests.support import command
from tests.support.command import Result
from tests.support.engine import TestEngine, base_with
from toolchain.engine.client import Engine, Finished

pytestmark = pytest.mark.slow
NETWORKS = ("mnist", "resnet50")
_MOST_BESIDE = 60_000_000
_PYTHON = ("python3", "python3-venv")


@dataclass(frozen=True, slots=True)
class Case:
    """A compiled network, an input, and what onnxruntime makes of it."""

    name: str
    folder: Path
    library: Path
    feed: str
    x: NDArray[Any]
    y: NDArray[Any]

    def assert_same(self, found: NDArray[Any]) -> None:
        scale = float(np.abs(self.y).max())
        np.testing.assert_allclose(found.reshape(self.y.shape), self.y, rtol=0, atol=1e-4 * scale)


@pytest.fixture(scope="module", params=NETWORKS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, own_cache: Path) -> Case:
    folder = tmp_path_factory.mktemp(request.param)
    model = folder / f"{request.param}.onnx"
    for words in (("zoo", "make", request.param), ("compile", model.name, "--threads", "2")):
        done = command.tk(*words, cwd=folder, timeout=900)
        assert done.code == 0, done.err
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    (spec,) = session.get_inputs()
    x = np.random.default_rng(7).standard_normal([int(one) for one in spec.shape], np.float32)
    np.save(folder / "x.npy", x)
    (folder / "x.raw").write_bytes(x.tobytes())
    (y,) = session.run(None, {spec.name: x})
    return Case(request.param, folder, model.with_suffix(".so"), spec.name, x, y)


def packaged(case: Case, *words: object) -> Result:
    done = command.tk("package", case.library, *words, cwd=case.folder, timeout=900)
    assert done.code == 0, done.err
    return done


def run_in(engine: Engine, image: str, argv: list[str], folder: Path, **options: Any) -> Finished:
    """Run a program in a container with the least rights, with one folder that it may write to."""
    folder.chmod(0o777)
    for one in folder.iterdir():
        one.chmod(0o755 if one.is_dir() else 0o644)
    host = {
        "network_mode": "none",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "binds": [f"{folder}:/data"],
        **options.pop("host", {}),
    }
    return engine.run(image, argv, timeout=300, host=host, **options)


def test_a_slim_image(
    case: Case, docker_engine: TestEngine, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    reference = f"tk-test/{case.name}:1"
    done = packaged(
        case, "--format", "oci", "--load", "--tag", reference, "--docker-host", docker_engine.url, "--json"
    )
    image = done.json["image"]
    size = case.library.stat().st_size
    said = f"{case.name}: library {size} bytes, image {image['loaded']} bytes, {image['beside']} beside it"
    record_property("sizes", said)
    sys.stdout.write(f"\n{said}\n")
    assert image["self_test"].rstrip().endswith("self test passed")
    assert image["loaded"] <= size + _MOST_BESIDE
    engine = docker_engine.open()
    facts = engine.image(reference) or {}
    assert facts["Config"]["User"] == "65532:65532"
    assert facts["Config"]["Entrypoint"] == ["/usr/bin/tk-run"]
    assert engine.run(reference, ["/bin/sh", "-c", "true"]).code == 127
    np.save(tmp_path / "x.npy", case.x)
    words = ["--input", f"{case.feed}=/data/x.npy", "--output-dir", "/data", "--repeat", "3"]
    ran = run_in(engine, reference, ["/usr/bin/tk-run", *words], tmp_path)
    assert ran.code == 0, ran.output
    assert re.search(r"^latency [\d.]+ ms .*runs 3, threads 2\)$", ran.output, re.MULTILINE)
    case.assert_same(np.load(tmp_path / "output0.npy"))
    for wrong, code in (
        (["--input", "no=/data/x.npy"], 2),
        (["--unknown"], 2),
        (["--input", f"{case.feed}=/data/missing"], 3),
        (["--library", "/etc/passwd"], 4),
        (["--output-dir", "/model"], 4),
    ):
        assert run_in(engine, reference, ["/usr/bin/tk-run", *wrong], tmp_path).code == code, wrong
    engine.api.remove_image(reference)


def test_it_is_pushed(docker_engine: TestEngine, registry: str, tmp_path: Path, own_cache: Path) -> None:
    """To a registry, from where another engine would pull it by the digest that is reported."""
    for words in (("zoo", "make", "mnist"), ("compile", "mnist.onnx")):
        assert command.tk(*words, cwd=tmp_path).code == 0
    pushed = f"{registry}/team/mnist:1"
    words = ("--format", "oci", "--push", pushed, "--docker-host", docker_engine.url, "--json")
    done = command.tk("package", "mnist.so", *words, cwd=tmp_path)
    assert done.code == 0, done.err
    image = done.json["image"]
    assert "self test passed" in image["self_test"]
    assert done.json["path"] is None
    assert sorted(one.name for one in tmp_path.iterdir()) == ["mnist.onnx", "mnist.so"]
    engine = docker_engine.open()
    engine.api.remove_image(image["reference"])
    assert engine.image(pushed) is None
    engine.api.pull(image["pushed"])
    assert (engine.image(image["pushed"]) or {})["Config"]["Entrypoint"] == ["/usr/bin/tk-run"]
    engine.api.remove_image(image["pushed"])


def test_its_self_test_can_fail(case: Case, docker_engine: TestEngine, tmp_path: Path) -> None:
    """With other outputs stored than those of the model, on a library that lies elsewhere."""
    reference = f"tk-test/{case.name}:2"
    packaged(case, "--format", "oci", "-o", "image.tar", "--tag", reference)
    engine = docker_engine.open()
    with (case.folder / "image.tar").open("rb") as stream:
        for _ in engine.api.load_image(stream):
            pass
    (tmp_path / "sample").mkdir()
    (tmp_path / "model.so").write_bytes(case.library.read_bytes())
    np.save(tmp_path / "sample" / "input0.npy", case.x)
    check = ["/usr/bin/tk-run", "--library", "/data/model.so", "--check"]
    for stored, code in (
        (case.y, 0),
        (case.y + np.abs(case.y).max(), 6),
        (case.y * np.nan, 6),
        (case.y[0], 6),
    ):
        np.save(tmp_path / "sample" / "output0.npy", stored.astype(np.float32))
        done = run_in(engine, reference, check, tmp_path)
        assert done.code == code, done.output
    engine.api.remove_image(reference)


def test_podman_takes_the_archive(case: Case, podman_engine: TestEngine, tmp_path: Path) -> None:
    reference = f"tk-test/{case.name}:3"
    done = packaged(
        case, "--format", "oci", "--load", "--tag", reference, "--docker-host", podman_engine.url, "--json"
    )
    assert "self test passed" in done.json["image"]["self_test"]


def test_the_archive_in_a_bare_debian(case: Case, docker_engine: TestEngine, tmp_path: Path) -> None:
    """Without Python or a compiler: the C example, built elsewhere."""
    packaged(case, "-o", "package.tar.gz")
    subprocess.run(["tar", "-xzf", case.folder / "package.tar.gz", "-C", tmp_path], check=True)
    (root,) = tmp_path.iterdir()
    include, source = root / "include", root / "examples" / "run_model.c"
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *strict, "-I", include, source, "-o", root / "run", "-ldl"], check=True)
    (root / "x.raw").write_bytes(case.x.tobytes())
    script = "! command -v python3 && ! command -v gcc && cd /data && sha256sum --quiet -c SHA256SUMS"
    script += " && cp run /run/program && chmod 755 /run/program && /run/program lib/*.so < x.raw > y.raw"
    tmpfs = {"tmpfs": {"/run": "exec"}}
    done = run_in(docker_engine.open(), docker_engine.base, ["sh", "-c", script], root, host=tmpfs)
    assert done.code == 0, done.output
    case.assert_same(np.frombuffer((root / "y.raw").read_bytes(), np.float32))


def test_the_wheel_in_a_bare_python(case: Case, docker_engine: TestEngine, tmp_path: Path) -> None:
    """`pip install` of it in a fresh environment without any other package, by its name's platform."""
    wheel = Path(packaged(case, "--format", "wheel", "-o", tmp_path, "--json").json["path"])
    (tmp_path / "x.raw").write_bytes(case.x.tobytes())
    module = wheel.name.partition("-")[0]
    code = (
        f"import {module} as package; model = package.PackagedModel(threads=1); "
        f"x = open('/data/x.raw', 'rb').read(); "
        f"y = model.run({{model.inputs[0].name: x}})[model.outputs[0].name]; "
        f"open('/data/y.raw', 'wb').write(y.data); print(y.shape)"
    )
    script = f"""cd /run && python3 -m venv v && v/bin/pip -q install --no-index /data/{wheel.name} \
    && v/bin/pip list && v/bin/python -c "{code}" """
    done = run_in(
        docker_engine.open(), base_with(docker_engine, *_PYTHON), ["sh", "-c", script], tmp_path,
        host={"tmpfs": {"/run": "exec", "/tmp": "exec"}}, environment={"HOME": "/run"},
    )  # fmt: skip
    assert done.code == 0, done.output
    assert "numpy" not in done.output
    case.assert_same(np.frombuffer((tmp_path / "y.raw").read_bytes(), np.float32))
