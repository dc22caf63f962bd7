"""A locked plan: every installation sees the lock's preferences, and nothing else changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from toolchain.images.lock.apt import CHECKSUMS, PREFERENCES, SNAPSHOTS, checksums, preferences, snapshot_at
from toolchain.images.plan import Deb, Pins, Run
from toolchain.images.planner import plan_image
from toolchain.images.render import context, dockerfile
from toolchain.recipes.catalog import load_catalog
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
    plan = plan_image(resolve("cpu-sycl", load_catalog()), lock=PINS)
    installs = [one for one in plan.runs() if any(words[2:4] == ("apt", "install") for words in one.commands)]
    others = [one for one in plan.runs() if one not in installs]
    assert len(installs) >= 2
    assert all(_sees(one) for one in installs)
    assert not any(_sees(one) for one in others)
    assert preferences(PINS.apt).encode() in {one.data for one in context(plan) if one.path == PREFERENCES}
    assert "g++=4:12.2.0-3" in dockerfile(plan)


def test_without_a_lock_there_is_none() -> None:
    plan = plan_image(resolve("cpu-sycl", load_catalog()))
    assert PREFERENCES not in {one.path for one in plan.files}
    assert not any(_sees(one) for one in plan.runs())


def test_another_lock_is_another_image() -> None:
    catalog = load_catalog()
    keys = {plan_image(resolve("cpu", catalog), lock=Pins(apt={"libasan8": one})).key for one in ("1", "2")}
    assert len(keys) == 2


def _sees(run: Run) -> bool:
    return any(mount.source == PREFERENCES for mount in run.mounts)


def test_snapshots_are_of_the_lock_s_time_and_of_a_day_later() -> None:
    for name, first in (
        ("cpu", "*.debian.org/debian-security http://snapshot.debian.org/archive/debian-security/"),
        ("cuda-12.1", "*.ubuntu.com/ubuntu https://snapshot.ubuntu.com/ubuntu/"),
    ):
        locked = Pins(apt={"g++": "1"}, snapshot="20261231T203000Z")
        plan = plan_image(resolve(name, load_catalog()), lock=locked)
        (text,) = [one.data.decode() for one in plan.files if one.path == SNAPSHOTS]
        lines = text.splitlines()
        assert lines[0] == f"{first}20261231T203000Z"
        assert lines[len(lines) // 2] == f"{first}20270101T203000Z"
        installs = [
            one for one in plan.runs() if any(words[2:4] == ("apt", "install") for words in one.commands)
        ]
        assert all(any(mount.target == "/run/tk/lock.snapshots" for mount in one.mounts) for one in installs)


def test_a_system_without_snapshots_has_none() -> None:
    plan = plan_image(resolve("cpu", load_catalog()), lock=Pins(apt={"g++": "1"}))
    assert SNAPSHOTS not in {one.path for one in plan.files}


def test_moments() -> None:
    moment = datetime(2026, 11, 22, 22, 30, tzinfo=timezone(timedelta(hours=2)))
    assert snapshot_at(moment) == snapshot_at(moment.astimezone(UTC)) == "20261122T203000Z"


def test_checksums_name_files_as_apt_does() -> None:
    debs = {"g++": Deb("https://x/g.deb", "a" * 64), "libc6:i386": Deb("https://x/c.deb", "b" * 64)}
    locked = Pins(apt={"g++": "4:12.2.0-3", "libc6:i386": "2.36", "other": "1"}, debs=debs)
    assert checksums(locked) == f"{'a' * 64} g++_4%3a12.2.0-3_\n{'b' * 64} libc6_2.36_\n"
    plan = plan_image(resolve("cpu", load_catalog()), lock=locked)
    assert checksums(locked).encode() in {one.data for one in plan.files if one.path == CHECKSUMS}
    assert checksums(PINS) == ""
