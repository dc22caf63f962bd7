"""Push to a registry, remove, pull: the same image; and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from compiler import BuildError, HostError
from tests.support.engine import TestEngine
from tests.support.plans import MARK, small_plan
from toolchain.engine import store
from toolchain.engine.build import BuildOptions, build_image
from toolchain.engine.client import Engine
from toolchain.engine.events import Event
from toolchain.images.plan import CA_SECRET, Plan
from toolchain.site import SiteConfig

SECRETS = {CA_SECRET: MARK.encode()}


def remove(engine: Engine) -> None:
    """Remove the small images; others may be somebody's."""
    ours = [one for one in store.list_images(engine, untagged=True) if one.name.startswith("small")]
    store.remove_images(engine, ours, force=True)


@pytest.fixture
def engine(docker_engine: TestEngine) -> Iterator[Engine]:
    opened = docker_engine.open()
    yield opened
    remove(opened)


@pytest.fixture
def plan(docker_engine: TestEngine) -> Plan:
    return small_plan(docker_engine.base, word="pushed")


def test_the_same_digest(engine: Engine, plan: Plan, registry: str) -> None:
    built = build_image(engine, plan, secrets=SECRETS)
    digest = store.push_image(engine, plan, registry)
    assert digest.startswith("sha256:")
    assert registry not in str(engine.image(plan.reference))
    for wanted in (digest, ""):
        remove(engine)
        assert engine.image(plan.reference) is None
        assert engine.image(built.id) is None
        found = store.pull_image(engine, plan, registry, wanted)
        assert found is not None
        assert (found.id, found.references) == (built.id, (plan.reference,))
        assert store.push_image(engine, plan, registry) == digest


@pytest.mark.slow
def test_a_cache_from_the_registry(
    engine: Engine, docker_engine: TestEngine, plan: Plan, registry: str
) -> None:
    if not docker_engine.private:
        pytest.skip("it would empty the build cache of an engine that is not ours")
    build_image(engine, plan, secrets=SECRETS, options=BuildOptions(cache_to=("type=inline",)))
    store.push_image(engine, plan, registry)
    remove(engine)
    with engine.guard("empty the cache"):
        engine.api.prune_builds()
    events: list[Event] = []
    build_image(
        engine,
        plan,
        secrets=SECRETS,
        options=BuildOptions(cache_from=(f"{registry}/{plan.reference}",)),
        progress=lambda _reference, _times: contextlib.nullcontext(events.append),
    )
    texts = {one.step: one.text for one in events if one.kind == "started"}
    cached = [texts[one.step] for one in events if one.kind == "cached"]
    assert any("RUN" in text and "cat /made" in text for text in cached), events


@pytest.mark.slow
def test_what_is_not_there(engine: Engine, plan: Plan, registry: str) -> None:
    other = dataclasses.replace(plan, tag="never-pushed")
    assert store.pull_image(engine, other, registry) is None
    assert store.pull_image(engine, other, registry, "sha256:" + "0" * 64) is None


@pytest.mark.slow
def test_an_image_of_another_plan_is_refused(engine: Engine, plan: Plan, registry: str) -> None:
    build_image(engine, plan, secrets=SECRETS)
    digest = store.push_image(engine, plan, registry)
    remove(engine)
    other = small_plan(plan.base.reference, word="wanted")
    with engine.guard("tag"):
        engine.api.pull(f"{registry}/tk/small", tag=plan.reference.rpartition(":")[2])
        engine.api.tag(
            f"{registry}/{plan.reference}", f"{registry}/tk/small", other.reference.rpartition(":")[2]
        )
        engine.api.push(f"{registry}/tk/small", tag=other.reference.rpartition(":")[2])
        engine.api.remove_image(f"{registry}/{other.reference}")
    with pytest.raises(BuildError, match="was not built from this plan"):
        store.pull_image(engine, other, registry)
    assert engine.image(other.reference) is None
    with pytest.raises(BuildError):
        store.pull_image(engine, other, registry, digest)
    with engine.guard("clean"):
        engine.api.remove_image(f"{registry}/{plan.reference}")


@pytest.mark.slow
def test_a_build_takes_it_from_the_site_s_registry(engine: Engine, plan: Plan, registry: str) -> None:
    build_image(engine, plan, secrets=SECRETS)
    store.push_image(engine, plan, registry)
    remove(engine)
    site = SiteConfig(registry=registry)
    real = dataclasses.replace(plan, base=dataclasses.replace(plan.base, stand_in=False))
    taken = build_image(engine, real, site=site)
    assert (taken.cached, taken.how) == (True, f"pulled from {registry}")


@pytest.mark.slow
def test_a_registry_that_does_not_answer_stops_no_build(engine: Engine, plan: Plan) -> None:
    real = dataclasses.replace(plan, tag="real", base=dataclasses.replace(plan.base, stand_in=False))
    built = build_image(engine, real, site=SiteConfig(registry="127.0.0.1:1"), secrets=SECRETS)
    assert not built.cached
    assert "127.0.0.1:1" in built.note


@pytest.mark.slow
def test_no_registry(engine: Engine, plan: Plan) -> None:
    with pytest.raises(HostError) as caught:
        store.pull_image(engine, plan, "127.0.0.1:1")
    assert "127.0.0.1:1" in str(caught.value)
    build_image(engine, plan, secrets=SECRETS)
    with pytest.raises(HostError) as caught:
        store.push_image(engine, plan, "127.0.0.1:1")
    assert "docker login 127.0.0.1:1" in caught.value.hint
