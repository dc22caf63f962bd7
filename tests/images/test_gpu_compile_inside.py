"""Compiling for GPUs in the images that have the compilers, as users type it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import tk
from tests.support.engine import TestEngine
from toolchain.engine import store

pytestmark = pytest.mark.slow

CASES = (
    ("cuda-12-pip", "cuda", ("sm_70", "sm_75", "sm_80", "sm_90")),
    ("rocm-5.2-debian", "rocm", ("gfx906", "gfx908", "gfx90a")),
    ("rocm-5.2-debian", "rocm", ("gfx1030",)),
)
NETWORKS = ("mnist", "squeezenet")


@pytest.fixture
def image(request: pytest.FixtureRequest, docker_engine: TestEngine, tmp_path: Path) -> Iterator[str]:
    """The reference of an image, built from the tests' base."""
    remote = ("--docker-host", docker_engine.url)
    built = tk(
        "image", "build", request.param, "--base", docker_engine.base, *remote, cwd=tmp_path, timeout=1800
    )
    assert built.code == 0, built.err[-3000:]
    yield built.out.strip()
    engine = docker_engine.open()
    ours = [one for one in store.list_images(engine, untagged=True) if one.stand_in == docker_engine.base]
    store.remove_images(engine, ours, force=True)


@pytest.mark.parametrize(("image", "target", "archs"), CASES, indirect=["image"])
def test_networks(
    image: str, target: str, archs: tuple[str, ...], docker_engine: TestEngine, tmp_path: Path
) -> None:
    for network in NETWORKS:
        made = tk("zoo", "make", network, "-o", "m.onnx", cwd=tmp_path)
        assert made.code == 0, made.err
        compiled = tk(
            "compile", "m.onnx", "--target", target, "--arch", ",".join(archs), "--image", image,
            "--docker-host", docker_engine.url, "-o", "m.so", "--json", cwd=tmp_path, timeout=900,
        )  # fmt: skip
        assert compiled.code == 0, compiled.err[-3000:]
        shown = tk("inspect", "m.so", "--json", cwd=tmp_path)
        assert shown.code == 0, shown.err
        assert all(f'"{arch}"' in shown.out for arch in archs)
