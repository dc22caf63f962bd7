"""Push to a registry, remove, pull: the same image; and what is refused."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler import BuildError, HostError
from tests.support.engine import TestEngine
from tests.support.plans import MARK, small_plan
from toolchain.engine import store
from toolchain.engine.build import build_image
from toolchain.engine.choice import BuildOptions
from toolchain.engine.client import Engine
from toolchain.engine.events import Event
from toolchain.images.lock.file import Lock, LockedImage, read_lock, write_lock
from toolchain.images.lock.pins import publish, record_build
from toolchain.images.plan import CA_SECRET, Pins, Plan
from toolchain.images.selection import LockMode
from toolchain.site import SiteConfig

SECRETS = {CA_SECRET: MARK.encode()}


def remove(engine: Engine) -> None:
    """Remove the small images; others may be somebody's."""
    ours = [one for one in store.list_images(engine, untagged=True) if one.name.startswith("small")]
    store.remove_images(engine, ours, force=True)


@pytest.fixture
def engine(small_docker: TestEngine) -> Iterator[Engine]:
    opened = small_docker.open()
    yield opened
    remove(opened)


@pytest.fixture
def plan(small_docker: TestEngine) -> Plan:
    return small_plan(small_docker.base, word="pushed")


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
    engine: Engine, small_docker: TestEngine, plan: Plan, registry: str
) -> None:
    if not small_docker.private:
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


@dataclasses.dataclass(frozen=True)
class Published:
    """A small image that was pushed, and the lock of a project that names it."""

    plan: Plan
    id: str
    digest: str
    lock: Path

    def planned(self, mode: LockMode = "auto") -> Plan:
        """The plan as a command has it that reads the lock."""
        found = read_lock(self.lock)
        assert found is not None
        return publish(self.plan, found.images[self.plan.section].built, mode)[0]


@pytest.fixture
def published(engine: Engine, plan: Plan, registry: str, tmp_path: Path) -> Published:
    built = build_image(engine, plan, secrets=SECRETS)
    digest = store.push_image(engine, plan, registry)
    lock = tmp_path / "tk.lock"
    write_lock(lock, Lock({plan.section: LockedImage("a" * 64, plan.base.reference, Pins(), stand_in=True)}))
    assert record_build(lock, plan, store.registry_reference(registry, plan), digest)
    assert f'digest = "{digest}"' in lock.read_text()
    remove(engine)
    return Published(plan, built.id, digest, lock)


def move_tag(engine: Engine, plan: Plan, registry: str) -> Plan:
    """Another image takes the plan's name in the registry, as tags may be moved; that one's plan."""
    other = small_plan(plan.base.reference, word="moved")
    build_image(engine, other, secrets=SECRETS)
    repository, _, tag = store.registry_reference(registry, plan).rpartition(":")
    with engine.guard("move the tag"):
        engine.api.tag(other.reference, repository, tag)
        said = [str(one) for one in engine.api.push(repository, tag=tag, stream=True, decode=True)]
        engine.api.remove_image(f"{repository}:{tag}", noprune=True)
    assert not any("'error'" in one for one in said), said
    return other


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "locked", "frozen"])
def test_a_build_pulls_what_the_lock_names(engine: Engine, published: Published, mode: LockMode) -> None:
    taken = build_image(engine, published.planned(mode), secrets=SECRETS)
    assert (taken.id, taken.cached) == (published.id, True)
    assert taken.how.startswith("pulled ")
    assert taken.how.endswith(f"/tk/small@{published.digest}")
    again = build_image(engine, published.planned(mode), secrets=SECRETS)
    assert (again.id, again.how) == (published.id, "found")


@pytest.mark.slow
def test_a_moved_tag_fools_nobody(engine: Engine, published: Published, registry: str) -> None:
    move_tag(engine, published.plan, registry)
    with pytest.raises(BuildError, match="was not built from this plan"):
        store.pull_image(engine, published.plan, registry)
    taken = build_image(engine, published.planned(), site=SiteConfig(registry=registry))
    assert (taken.id, taken.how.rpartition("@")[2]) == (published.id, published.digest)


@pytest.mark.slow
def test_a_digest_of_another_image_is_refused(engine: Engine, published: Published, registry: str) -> None:
    """What is there under the plan's name stays."""
    kept = build_image(engine, published.plan, secrets=SECRETS)
    other = move_tag(engine, published.plan, registry)
    digest = store.push_image(engine, other, registry)
    record_build(published.lock, published.plan, store.registry_reference(registry, published.plan), digest)
    with pytest.raises(BuildError, match="was not built from this plan"):
        store.pull_published(engine, published.planned())
    assert (engine.image(published.plan.reference) or {}).get("Id") == kept.id
    assert engine.image(f"{registry}/tk/small@{digest}") is None


@pytest.mark.slow
def test_a_digest_that_is_gone_is_built_and_said(engine: Engine, published: Published, registry: str) -> None:
    """By name the registry would have it: that is not asked for."""
    gone = "sha256:" + "0" * 64
    record_build(published.lock, published.plan, store.registry_reference(registry, published.plan), gone)
    made = build_image(engine, published.planned(), site=SiteConfig(registry=registry), secrets=SECRETS)
    assert not made.cached
    assert f"the registry has no {registry}/tk/small@{gone}" in made.note


@pytest.mark.slow
def test_an_image_on_another_stand_in_is_not_taken(engine: Engine, published: Published) -> None:
    base = published.plan.base.reference
    repository, _, tag = base.rpartition(":")
    before = (engine.image(base) or {})["Id"]
    with engine.guard("change the base"):
        engine.api.tag(
            build_image(engine, small_plan(base, word="base"), secrets=SECRETS).id, repository, tag
        )
    try:
        found, why = store.pull_published(engine, published.planned())
        assert found is None
        assert f"was built on another {base}" in why
    finally:
        with engine.guard("change it back"):
            engine.api.tag(before, repository, tag)


@pytest.mark.slow
def test_frozen_asks_no_registry_by_name(engine: Engine, published: Published, registry: str) -> None:
    real = dataclasses.replace(published.plan, base=dataclasses.replace(published.plan.base, stand_in=False))
    site = SiteConfig(registry=registry)
    frozen, _ = publish(real, None, "frozen")
    assert store.pull_published(engine, frozen, site.registry) == (None, "")
    found, how = store.pull_published(engine, publish(real, None)[0], site.registry)
    assert (found and found.id, how) == (published.id, f"pulled from {registry}")
