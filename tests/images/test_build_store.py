"""What is listed, selected, superseded and swept up on an engine, and what is left alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest

from compiler import UsageError
from tests.support.engine import TestEngine
from tests.support.plans import small_plan
from toolchain.commands.image.target import select
from toolchain.engine import labels, store
from toolchain.engine.build import build_image
from toolchain.engine.client import Engine
from toolchain.images.plan import Env, Plan, Stage

pytestmark = pytest.mark.slow
SECRETS = {"tk-ca": b"mark"}


@pytest.fixture
def engine(docker_engine: TestEngine) -> Iterator[Engine]:
    opened = docker_engine.open()
    yield opened
    ours = [one for one in store.list_images(opened, untagged=True) if one.name.startswith("small")]
    store.remove_images(opened, ours, force=True)


def changed(plan: Plan) -> Plan:
    """The same recipe a little later."""
    last = plan.stages[-1]
    steps = (*last.instructions, Env((("LATER", "1"),)))
    return dataclasses.replace(plan, stages=(*plan.stages[:-1], Stage(last.name, steps)))


def test_older_builds_of_a_name_are_unused(engine: Engine, docker_engine: TestEngine) -> None:
    older = small_plan(docker_engine.base, word="kept")
    newer = changed(older)
    other = small_plan(docker_engine.base, word="other")
    for plan in (older, other, newer):
        build_image(engine, plan, secrets=SECRETS)
    assert unused(engine) == {older.key}
    assert {one.plan for one in store.unused_images(engine, keep=[older.key])} & {older.key} == set()
    with engine.container(older.reference, ["none"]):
        assert unused(engine) == set()
    store.remove_images(engine, [one for one in store.unused_images(engine) if one.plan == older.key])
    assert engine.image(older.reference) is None
    assert engine.image(newer.reference) is not None


def unused(engine: Engine) -> set[str]:
    return {one.plan for one in store.unused_images(engine) if one.name.startswith("small")}


def test_names_of_images(engine: Engine, docker_engine: TestEngine) -> None:
    plan = small_plan(docker_engine.base, word="named")
    built = build_image(engine, plan, secrets=SECRETS)
    for name in (plan.reference, plan.name, built.id, built.id.removeprefix("sha256:")[:12]):
        assert [one.id for one in select(engine, name)] == [built.id], name
    with pytest.raises(UsageError) as caught:
        select(engine, "small-name")
    assert caught.value.hint == "did you mean 'small-named'?"
    with pytest.raises(UsageError):
        select(engine, docker_engine.base)  # not one of ours


def test_what_dead_processes_left_is_swept_up(engine: Engine, docker_engine: TestEngine) -> None:
    host, pid, started = labels.owner().rsplit(":", 2)
    dead = {labels.OWNER: f"{host}:{pid}:{int(started) - 1}"}
    elsewhere = {labels.OWNER: f"another-{host}:{pid}:1"}
    names = [labels.fresh_name("test") for _ in range(4)]
    try:
        with engine.guard("prepare"):
            engine.api.create_container(docker_engine.base, ["none"], name=names[0], labels=dead)
            engine.api.create_container(docker_engine.base, ["none"], name=names[1], labels=elsewhere)
            engine.api.create_volume(names[2], labels=dead)
            engine.api.create_volume(names[3], labels=labels.owned())
        assert set(store.sweep(engine)) >= {names[0], names[2]}
        with engine.guard("look"):
            containers = {one["Names"][0].lstrip("/") for one in engine.api.containers(all=True)}
            volumes = {one["Name"] for one in engine.api.volumes()["Volumes"]}
        assert containers & set(names) == {names[1]}
        assert volumes & set(names) == {names[3]}
    finally:
        engine.remove_container(names[1])
        with engine.guard("clean"), contextlib.suppress(Exception):
            engine.api.remove_volume(names[3])
