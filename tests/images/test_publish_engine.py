"""`tk image publish` with a real engine and registry, as a workflow runs it, and who pulls then."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command import Result, tk
from tests.support.engine import TestEngine
from tests.support.plans import plan_with_component
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.client import Engine
from toolchain.images.plan import Plan
from toolchain.provision.publish import Registry, push_plan
from toolchain.recipes.evidence import load_evidence
from toolchain.site import SiteConfig

pytestmark = pytest.mark.slow


@pytest.fixture
def run(docker_engine: TestEngine, registry: str, tmp_path: Path) -> Callable[..., Result]:
    """`tk image ...` in a project whose mirror of Docker Hub has the tests' Debian as `cpu`'s base."""
    engine = docker_engine.open()
    repository = f"{registry}/hub/library/debian"
    with engine.guard("fill the mirror"):
        engine.api.tag(docker_engine.base, repository, "bookworm-slim")
        said = [str(one) for one in engine.api.push(repository, "bookworm-slim", stream=True, decode=True)]
    assert not any("'error'" in one for one in said), said
    (tmp_path / ".git").mkdir()
    mirror = f"{{original: docker.io, mirror: '{registry}/hub'}}"
    (tmp_path / "site.yaml").write_text(f"mirrors:\n  registry:\n    - {mirror}\n")

    def one(*words: object) -> Result:
        return tk("image", *words, "--docker-host", docker_engine.url, cwd=tmp_path, timeout=1200)

    return one


def test_built_once_then_pulled(
    run: Callable[..., Result], docker_engine: TestEngine, registry: str, tmp_path: Path
) -> None:
    """Every name is tried; a second machine has the image in seconds, and the same."""
    evidence = tmp_path / "found.json"
    words = ("publish", "cpu", "--registry", f"{registry}/team", "--evidence", evidence, "--json")
    first = run(*words)
    assert first.code == 0, first.err[-3000:]
    (image,) = first.json["images"]
    assert (image["build"], image["check"], image["push"]) == ("done", "done", "done")
    assert image["evidence"] == ["built", "published"]
    found = {one.state: one for one in load_evidence(evidence)}
    assert found["published"].image == f"{image['reference']}@{image['digest']}"
    evidence.rename(tmp_path / "evidence.json")
    states = {
        one["name"]: one["states"] for one in tk("image", "list", "--json", cwd=tmp_path).json["images"]
    }
    assert (states["cpu"]["built"], states["cpu"]["published"]) == ("yes", "yes")

    engine = docker_engine.open()
    store.remove_images(engine, [one for one in store.list_images(engine) if one.name == "cpu"], force=True)
    again = run(*words)
    assert again.code == 0, again.err[-3000:]
    assert (
        again.json["images"][0]["how"] == f"pulled {image['reference'].rpartition(':')[0]}@{image['digest']}"
    )
    assert again.json["images"][0]["digest"] == image["digest"]


def test_a_stand_in_and_a_private_registry(
    run: Callable[..., Result], docker_engine: TestEngine, registry: str, tmp_path: Path
) -> None:
    words = ("publish", "cpu", "--registry", registry, "--base", docker_engine.base)
    refused = run(*words)
    assert (refused.code, "stands in for its base" in refused.err) == (3, True), refused.err
    done = run(*words, "--private")
    assert done.code == 0, done.err[-3000:]
    assert not (tmp_path / "evidence.json").exists()


@pytest.fixture
def whole(docker_engine: TestEngine) -> Iterator[Plan]:
    """An image with a component, on a base that stands in for nothing."""
    engine = docker_engine.open()

    def real(one: Plan) -> Plan:
        base = dataclasses.replace(one.base, stand_in=False)
        return dataclasses.replace(one, base=base, needs=tuple(map(real, one.needs)))

    yield real(plan_with_component(docker_engine.base))
    forget(engine)


def forget(engine: Engine) -> None:
    images = [one for one in store.list_images(engine, untagged=True) if one.name.startswith("small")]
    store.remove_images(engine, images, force=True)


def test_a_component_comes_from_the_registry(docker_engine: TestEngine, registry: str, whole: Plan) -> None:
    """The image itself is not there, or another one is wanted with the same component: hours are saved."""
    engine = docker_engine.open()
    build_image(engine, whole, secrets={})
    pushed = push_plan(engine, whole, Registry(registry))
    assert [one.reference for one in pushed.components] == [f"{registry}/{whole.needs[0].reference}"]
    forget(engine)
    other = dataclasses.replace(whole, tag="other", repository="tk/elsewhere")
    made = build_image(engine, other, secrets={}, site=SiteConfig(registry=registry))
    assert not made.cached
    assert [one.how for one in made.needs] == [f"pulled from {registry}"]
