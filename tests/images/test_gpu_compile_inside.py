"""Every network of the zoo, compiled for GPUs in the images that have the compilers, as users type it.

One container for each network and image; the numbers of each device function are in a table at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import gpu_images
from tests.support.command import tk
from tests.support.engine import TestEngine
from tests.support.gpu_images import CUDA, HIP, HIP_NARROW, Time
from toolchain import zoo
from toolchain.engine import store

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("images")]  # built once, removed at the end

IMAGES = {"cuda-12-pip": (CUDA,), "rocm-5.2-debian": (HIP, HIP_NARROW)}
LEFT_OUT = {"perceptron-2gb"}


@pytest.fixture(scope="module", params=list(IMAGES))
def image(
    request: pytest.FixtureRequest, docker_engine: TestEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Name and reference of an image, built from the tests' base."""
    remote = ("--docker-host", docker_engine.url)
    built = tk(
        "image", "build", request.param, "--base", docker_engine.base, *remote,
        cwd=tmp_path_factory.mktemp("image"), timeout=1800,
    )  # fmt: skip
    assert built.code == 0, built.err[-3000:]
    yield request.param, built.out.strip()
    engine = docker_engine.open()
    ours = [one for one in store.list_images(engine, untagged=True) if one.stand_in == docker_engine.base]
    store.remove_images(engine, ours, force=True)


@pytest.mark.parametrize("network", [name for name in zoo.networks() if name not in LEFT_OUT])
def test_network(
    image: tuple[str, str],
    network: str,
    docker_engine: TestEngine,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    name, reference = image
    zoo.make(network, tmp_path / "m.onnx")
    for target, archs in IMAGES[name]:
        started = time.perf_counter()
        compiled = tk(
            "compile", "m.onnx", "--target", target, "--arch", ",".join(archs), "--image", reference,
            "--docker-host", docker_engine.url, "-o", "m.so", "--json", cwd=tmp_path, timeout=3600,
        )  # fmt: skip
        assert compiled.code == 0, compiled.err[-3000:]
        took = Time(time.perf_counter() - started)
        row = gpu_images.binaries(network, target, archs, tmp_path / "m.so", took, name)
        gpu_images.tell(row, record_property)
    for made in ("m.onnx", "m.so"):
        (tmp_path / made).unlink()
