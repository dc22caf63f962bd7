"""One reference is one image: BuildKit, Docker's classic builder and podman configure it alike."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.images.test_dry_build import _fill, _pins, _resolution, _stand_in, _unpinned
from tests.support import stub_mirror
from tests.support.engine import TestEngine
from tests.support.image_config import config_of
from tests.support.stub_mirror import StubMirror
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.builders import find_buildkit
from toolchain.engine.choice import BuilderName, BuildOptions
from toolchain.engine.client import Engine
from toolchain.images.formats.bake import every_need
from toolchain.images.plan import Plan
from toolchain.images.planner import plan_image
from toolchain.recipes.additions import Additions, Script, with_additions
from toolchain.site import SiteConfig

pytestmark = pytest.mark.slow

NAMES = (
    "cpu", "cpu-sycl", "cuda-11.8.0", "cuda-12-pip", "cuda-11.8+dpcpp-2022-12", "rocm-5.4.3+dpcpp-2022-12",
    "dtk-23.04", "oneapi-2023.1.0", "llvm-19", "tvm-sycl-rocm",
)  # fmt: skip
"""Every vendor; with and without components, Python packages, downloads and sources that are built."""
ADDED = Additions(("htop",), (), (Script(Path("mine.sh"), b"#!/bin/sh\necho mine > /etc/mine\n"),))
"""One of them is built with something of a user's own, too."""


@dataclass(frozen=True)
class Shop:
    """Two engines with the same stand-in bases, and one mirror that each reaches by its own address."""

    docker: Engine
    podman: Engine
    mirror: StubMirror
    base: str

    def site(self, engine: Engine) -> SiteConfig:
        with engine.guard("look at the network"):
            network = engine.api.inspect_network("podman" if engine.kind == "podman" else "bridge")
        return self.mirror.site(network["IPAM"]["Config"][0]["Gateway"])

    def stand_in(self, plan: Plan) -> None:
        """Build a stand-in base with Docker, and hand the very image to podman."""
        made = build_image(self.docker, plan)
        if self.podman.image(made.reference) is None:
            with self.podman.guard("load the base"):
                self.podman.api.load_image(b"".join(self.docker.api.get_image(made.reference)))


@pytest.fixture(scope="module")
def shop(
    docker_engine: TestEngine, podman_engine: TestEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shop]:
    docker, podman = docker_engine.open(), podman_engine.open()
    if find_buildkit()[0] is None:
        pytest.skip("no client of Docker's can build with BuildKit")
    base = build_image(docker, _stand_in(docker_engine.base, _resolution("cpu")))
    status = docker.read_file(base.reference, "/var/lib/dpkg/status") or b""
    with stub_mirror.serving(tmp_path_factory.mktemp("mirror")) as mirror:
        mirror.installed = frozenset(re.findall(r"^Package: (\S+)$", status.decode(), re.MULTILINE))
        _fill(mirror)
        mirror.add_packages(ADDED.apt)
        yield Shop(docker, podman, mirror, docker_engine.base)
    for engine in (docker, podman):
        remove_ours(engine)


def remove_ours(engine: Engine) -> None:
    ours = [one for one in store.list_images(engine, untagged=True) if one.stand_in]
    store.remove_images(engine, ours, force=True)
    store.remove_steps(engine, store.unused_steps(engine))


@pytest.mark.parametrize("name", NAMES)
def test_every_builder_makes_the_same_image(name: str, shop: Shop) -> None:
    base = _stand_in(shop.base, _resolution(name))
    shop.stand_in(base)
    resolution = _unpinned(_resolution(name), shop.mirror)
    if name == "cpu":
        resolution = with_additions(resolution, ADDED)
    plan = plan_image(resolution, lock=_pins(shop.mirror, resolution), base=base.reference)
    references = [plan.reference, *(one.reference for one in every_need(plan))]
    builders: tuple[tuple[Engine, BuilderName], ...] = (
        (shop.docker, "buildkit"), (shop.docker, "classic"), (shop.podman, "auto"),
    )  # fmt: skip
    found = []
    for engine, builder in builders:
        with removed_at_the_end(engine):
            build_image(engine, plan, options=BuildOptions(builder), site=shop.site(engine))
            found.append({one: config_of(engine, one) for one in references})
            program = engine.run(plan.reference, ["sh", "-c", "echo started"])
            assert (program.code, program.output) == (0, "started\n")
    with_buildkit, classic, with_podman = found
    assert "Entrypoint" not in with_buildkit[plan.reference]
    assert "Volumes" not in with_buildkit[plan.reference]
    assert classic == with_buildkit
    assert with_podman == with_buildkit


@contextlib.contextmanager
def removed_at_the_end(engine: Engine) -> Iterator[None]:
    try:
        yield
    finally:
        remove_ours(engine)
