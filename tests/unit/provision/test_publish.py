"""What goes to which registry: components first, and what may not be passed on to private ones only."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from compiler import BadInputError
from tests.support import command
from tests.support.fake_engine import FakeEngine, stored
from tests.support.plans import plan_with_component, small_plan
from tests.support.recipes import plan
from toolchain.commands.image.target import push_target
from toolchain.images.plan import Plan
from toolchain.provision.publish import Registry, push_plan, refuse_unredistributable
from toolchain.site import SiteConfig

OPEN = Registry("ghcr.example/team")


def engine_with(*plans: Plan) -> FakeEngine:
    return FakeEngine(images={one.reference: stored(one) for one in plans})


def real(one: Plan) -> Plan:
    """The same on a base that stands in for nothing."""
    needs = tuple(map(real, one.needs))
    return dataclasses.replace(one, needs=needs, base=dataclasses.replace(one.base, stand_in=False))


def test_components_are_pushed_first() -> None:
    whole = real(plan_with_component("debian:12"))
    (part,) = whole.needs
    engine = engine_with(whole, part)
    pushed = push_plan(engine, whole, OPEN)  # type: ignore[arg-type]
    assert engine.pushed == [f"ghcr.example/team/{one.reference}" for one in (part, whole)]
    assert [one.reference for one in pushed.components] == [f"ghcr.example/team/{part.reference}"]
    assert pushed.digest.startswith("sha256:")


def test_a_component_that_is_not_there_is_left_out() -> None:
    """The whole was pulled, so nothing of it was built here."""
    whole = real(plan_with_component("debian:12"))
    engine = engine_with(whole)
    assert push_plan(engine, whole, OPEN).components == ()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["cuda-11.2.2", "oneapi-2024.2.1", "dtk-23.04"])
def test_what_may_not_be_passed_on_is_refused(name: str) -> None:
    wanted = plan(name)
    engine = engine_with(wanted)
    with pytest.raises(BadInputError) as caught:
        push_plan(engine, wanted, OPEN)  # type: ignore[arg-type]
    assert engine.pushed == []
    assert caught.value.code == 3
    assert f"{name}: {name} (" in caught.value.why
    assert "--private" in caught.value.hint
    push_plan(engine, wanted, dataclasses.replace(OPEN, private=True))  # type: ignore[arg-type]
    assert engine.pushed == [f"ghcr.example/team/{wanted.reference}"]


def test_the_command_refuses_before_it_asks_an_engine(tmp_path: Path) -> None:
    result = command.tk("image", "push", "cuda-11.2", "--registry", "r.example", cwd=tmp_path)
    assert (result.code, result.out) == (3, "")
    assert "cuda-11.2.2 (NVIDIA Deep Learning Container License" in result.err
    host = f"unix://{tmp_path}/none.sock"
    private = ("push", "cuda-11.2", "--registry", "r.example", "--private", "--docker-host", host)
    assert command.tk("image", *private, cwd=tmp_path).code == 4


def test_all_that_is_refused_is_named_at_once() -> None:
    with pytest.raises(BadInputError) as caught:
        refuse_unredistributable([plan("cuda-11.2.2"), plan("cpu"), plan("oneapi-2024.2.1")], OPEN)
    assert [line.partition(":")[0] for line in caught.value.why.splitlines()] == [
        "cuda-11.2.2",
        "oneapi-2024.2.1",
    ]


def test_a_stand_in_s_licence_is_not_known() -> None:
    with pytest.raises(BadInputError, match="open to everybody"):
        refuse_unredistributable([small_plan("some/image:1")], OPEN)


@pytest.mark.parametrize(
    ("site", "option", "flag", "private"),
    [
        (SiteConfig(registry="r.example/team"), None, False, False),
        (SiteConfig(registry="r.example/team"), None, True, True),
        (SiteConfig(registry="r.example/team", registry_private=True), None, False, True),
        (SiteConfig(registry="r.example/team", registry_private=True), "r.example/team/x", False, True),
        (SiteConfig(registry="r.example/team", registry_private=True), "r.example/teams", False, False),
        (SiteConfig(registry="r.example/team", registry_private=True), "ghcr.io/all", False, False),
        (SiteConfig(registry_private=True), "r.example", False, True),
    ],
)
def test_when_a_registry_is_private(site: SiteConfig, option: str | None, flag: bool, private: bool) -> None:
    assert push_target(site, option, private=flag).private is private
