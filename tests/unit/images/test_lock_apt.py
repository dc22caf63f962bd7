"""A locked plan: every installation sees the lock's preferences, and nothing else changes."""

from __future__ import annotations

from toolchain.images.apt_lock import PREFERENCES, preferences
from toolchain.images.plan import Pins, Run
from toolchain.images.planner import plan_image
from toolchain.images.render import context, dockerfile
from toolchain.recipes.book import load_book
from toolchain.recipes.resolve import resolve

PINS = Pins(
    apt={"libasan8": "12.2.0-14", "g++": "4:12.2.0-3"}, pip={"dpcpp-cpp-rt": ("2026.2.0", ("a" * 64,))}
)


def test_only_the_locked_versions_can_be_taken() -> None:
    assert preferences(PINS.apt) == (
        "Package: *\nPin: release *\nPin-Priority: -1\n"
        "\nPackage: g++\nPin: version 4:12.2.0-3\nPin-Priority: 1001\n"
        "\nPackage: libasan8\nPin: version 12.2.0-14\nPin-Priority: 1001\n"
    )
    assert preferences({}) == ""


def test_every_installation_sees_them() -> None:
    plan = plan_image(resolve("cpu-sycl", load_book()), lock=PINS)
    installs = [one for one in plan.runs() if any(words[2:4] == ("apt", "install") for words in one.commands)]
    others = [one for one in plan.runs() if one not in installs]
    assert len(installs) >= 2
    assert all(_sees(one) for one in installs)
    assert not any(_sees(one) for one in others)
    assert preferences(PINS.apt).encode() in {one.data for one in context(plan) if one.path == PREFERENCES}
    assert "g++=4:12.2.0-3" in dockerfile(plan)


def test_without_a_lock_there_is_none() -> None:
    plan = plan_image(resolve("cpu-sycl", load_book()))
    assert PREFERENCES not in {one.path for one in plan.files}
    assert not any(_sees(one) for one in plan.runs())


def test_another_lock_is_another_image() -> None:
    book = load_book()
    keys = {plan_image(resolve("cpu", book), lock=Pins(apt={"libasan8": one})).key for one in ("1", "2")}
    assert len(keys) == 2


def _sees(run: Run) -> bool:
    return any(mount.source == PREFERENCES for mount in run.mounts)
