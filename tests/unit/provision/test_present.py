"""Which image stands for a name: the same for every command, with and without stand-in bases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler import HostError
from tests.support.fake_engine import FakeEngine, stored
from toolchain.commands.image import check, sbom
from toolchain.commands.image import list as list_images
from toolchain.containers.launch import prepare
from toolchain.containers.request import Request
from toolchain.engine import labels
from toolchain.engine.store import list_images as stored_images
from toolchain.images.named import Named, plan_named
from toolchain.images.plan import Plan
from toolchain.images.selection import Selection
from toolchain.provision.present import find_present, need_present

BASE = "my/debian:12"


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Named:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return plan_named("cpu")


def on_stand_in(plan: Plan, identity: str = "", created: int = 0) -> Mapping[str, Any]:
    facts = stored(plan, identity)
    own = {**facts["Labels"], labels.BASE_ID: "base-id"}
    return {**facts, "Created": created, "Labels": own, "Config": {"Labels": own}}


def engine_with(*images: Mapping[str, Any]) -> FakeEngine:
    return FakeEngine(images={BASE: {"Id": "base-id"}, **{one["RepoTags"][0]: one for one in images}})


def present(engine: FakeEngine, named: Named) -> Any:
    return find_present(engine, named)  # type: ignore[arg-type]


def test_the_image_of_the_plan_comes_first(named: Named) -> None:
    stand_in = plan_named("cpu", Selection(base=BASE)).plan
    found = present(engine_with(stored(named.plan), on_stand_in(stand_in)), named)
    assert (found.reference, found.note) == (named.plan.reference, "")


def test_else_one_on_a_stand_in_with_its_own_plan(named: Named) -> None:
    stand_in = plan_named("cpu", Selection(base=BASE))
    found = present(engine_with(on_stand_in(stand_in.plan)), named)
    assert found.reference == stand_in.plan.reference
    assert found.named.plan.key == stand_in.plan.key, "what is checked is the plan on that base"
    assert f"on a stand-in: {BASE}" in found.note
    assert found.is_current
    assert present(engine_with(on_stand_in(stand_in.plan)), stand_in).note == "", "--base asks for it"


def test_one_that_is_not_of_today_is_said_so(named: Named) -> None:
    stand_in = plan_named("cpu", Selection(base=BASE))
    old = dataclasses.replace(stand_in.plan, tag="older", stages=stand_in.plan.stages[:1])
    found = present(engine_with(on_stand_in(old)), named)
    assert (found.reference, found.is_current) == (old.reference, False)
    assert "another recipe or lock than today's" in found.note
    both = engine_with(on_stand_in(old, "old", 2), on_stand_in(stand_in.plan, "today", 1))
    assert present(both, named).reference == stand_in.plan.reference


def test_a_base_that_is_named_is_that_base(named: Named) -> None:
    other = plan_named("cpu", Selection(base="other/base:1"))
    assert present(engine_with(on_stand_in(plan_named("cpu", Selection(base=BASE)).plan)), other) is None
    with pytest.raises(HostError, match="no image of cpu"):
        need_present(engine_with(), named)  # type: ignore[arg-type]


def test_check_sbom_and_run_find_the_same(named: Named, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command, handed an engine that has nothing but an image on a stand-in, takes that."""
    plan = plan_named("cpu", Selection(base=BASE)).plan
    engine = engine_with(on_stand_in(plan))
    seen: list[tuple[str, str]] = []

    class Stop(Exception):  # noqa: N818 - no error: far enough
        pass

    def inventory(_engine: object, image: str, of: Plan | None = None) -> None:
        seen.append((image, of.key if of else ""))
        raise Stop

    monkeypatch.setattr("toolchain.commands.image.target.connect", lambda *_: engine)
    monkeypatch.setattr("toolchain.engine.client.open_engine", lambda *_, **__: engine)
    monkeypatch.setattr("toolchain.provision.inventory.read_inventory", inventory)
    monkeypatch.setattr("toolchain.provision.check.read_inventory", inventory)
    monkeypatch.setattr("toolchain.provision.check._run", lambda *_: None)
    for command in (check.check_command, sbom.sbom_command):
        with pytest.raises(Stop):
            command("cpu")
    assert seen == [(f"sha256:{plan.key}", plan.key)] * 2
    launch = prepare(engine, Request(image="cpu", argv=("true",), devices=("none",)))  # type: ignore[arg-type]
    assert (launch.reference, launch.is_built) == (plan.reference, True)


def test_the_list_says_what_is_here(
    named: Named, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = engine_with(on_stand_in(plan_named("cpu", Selection(base=BASE)).plan))
    monkeypatch.setattr("toolchain.engine.client.open_engine", lambda *_, **__: engine)
    assert [one.state for one in stored_images(engine)] == ["stand-in"]  # type: ignore[arg-type]
    list_images.list_command()
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "here, on a stand-in" in rows["cpu"]
    assert "here" not in rows["cuda-11.8.0"]
