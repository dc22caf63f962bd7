"""Locks that tk has written or used, what they stand for, and that rm and prune leave it alone unasked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from compiler import BadInputError, UsageError
from tests.support.fake_engine import FakeEngine, stored
from toolchain.commands.image import prune, rm
from toolchain.engine import labels
from toolchain.engine.store import list_images, used_by
from toolchain.images.lock.file import Lock, LockedImage, lock_text, write_lock
from toolchain.images.lock.known import known_locks
from toolchain.images.lock.pins import recipe_of
from toolchain.images.lock.uses import LockUse, uses_of
from toolchain.images.named import plan_named
from toolchain.images.plan import Pins, Plan
from toolchain.images.selection import Selection

PINS = Pins(base_digest="sha256:" + "a" * 64, apt={"g++": "4:12", "libc6-dev": "2", "ca-certificates": "1"})


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "state"


def section(name: str = "cpu", pins: Pins = PINS) -> tuple[str, LockedImage]:
    plan = plan_named(name, Selection(lock=None)).plan
    apt = {one.partition("=")[0]: "1" for one in plan.apt}
    full = dataclasses.replace(pins, apt={**apt, **pins.apt})
    return plan.section, LockedImage(recipe_of(plan), plan.base.reference, full)


def project(folder: Path, *names: str, pins: Pins = PINS) -> Path:
    folder.mkdir(exist_ok=True)
    write_lock(folder / "tk.lock", Lock(dict(section(name, pins) for name in names or ("cpu",))))
    return folder / "tk.lock"


def locked_plan(path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "cpu") -> Plan:
    with monkeypatch.context() as there:
        there.chdir(path.parent)
        named = plan_named(name)
    assert named.pins is not None
    return named.plan


def test_what_was_written_is_known_until_it_is_gone(tmp_path: Path, state: Path) -> None:
    one, two = project(tmp_path / "one"), project(tmp_path / "two")
    assert known_locks() == (one, two)
    one.unlink()
    assert known_locks() == (two,)
    assert len(list((state / "tk" / "locks").iterdir())) == 1


def test_what_was_used_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloned = tmp_path / "cloned"
    cloned.mkdir()
    (cloned / "tk.lock").write_text(lock_text(Lock(dict([section()]))))
    assert known_locks() == ()
    locked_plan(cloned / "tk.lock", monkeypatch)
    assert known_locks() == (cloned / "tk.lock",)


def test_a_lock_stands_for_its_plans_and_those_of_components(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = project(tmp_path / "one")
    use = uses_of(path)
    assert use.plans == {locked_plan(path, monkeypatch).key}
    with_components = uses_of(project(tmp_path / "two", "rocm-5.4.3+dpcpp-2022-12"))
    assert len(with_components.plans) == 2


def test_a_recipe_that_is_not_here_counts_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    path = tmp_path / "one" / "tk.lock"
    write_lock(path, Lock({"ours-1.2": LockedImage("e" * 64, "ours:1", Pins())}))
    assert uses_of(path) == LockUse(path, frozenset(), frozenset({"e" * 64}))


def test_a_lock_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "tk.lock"
    path.write_text("<<<<<<< ours\n")
    with pytest.raises(BadInputError):
        uses_of(path)


def image_of(plan: Plan, created: int, key: str = "") -> Mapping[str, Any]:
    facts = stored(plan)
    own = {
        **facts["Labels"],
        labels.RECIPE: dict(plan.labels)["tk.recipe"],
        **({labels.PLAN: key} if key else {}),
    }
    name = f"tk/cpu:12-{key or plan.key[:12]}"
    return {
        **facts, "Id": f"sha256:{key or plan.key}", "RepoTags": [name], "Labels": own, "Created": created,
        "Config": {"Labels": own},
    }  # fmt: skip


def test_images_by_plan_else_by_recipe(tmp_path: Path) -> None:
    plan = plan_named("cpu", Selection(lock=None)).plan
    engine = FakeEngine(images={"a": image_of(plan, 1), "b": image_of(plan, 2, "f" * 64)})
    here = list_images(engine)  # type: ignore[arg-type]
    recipe = dict(plan.labels)["tk.recipe"]
    lock = tmp_path / "tk.lock"
    exact = used_by(here, [LockUse(lock, frozenset({plan.key}), frozenset({recipe}))])
    assert exact == {f"sha256:{plan.key}": lock}
    by_recipe = used_by(here, [LockUse(lock, frozenset({"0" * 64}), frozenset({recipe}))])
    assert set(by_recipe) == {one.id for one in here}
    assert used_by(here, [LockUse(lock, frozenset(), frozenset({"1" * 64}))]) == {}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """It has the image of another project's lock, and a newer one of the same name."""
    wanted = locked_plan(project(tmp_path / "other"), monkeypatch)
    newer = plan_named("cpu", Selection(lock=None)).plan
    made = FakeEngine(images={"a": image_of(wanted, 1), "b": image_of(newer, 2)})
    monkeypatch.setattr("toolchain.commands.image.target.connect", lambda *_: made)
    monkeypatch.setattr("toolchain.engine.store._when_named", lambda _engine, one: ("", one.created))
    return made


def name_of(engine: FakeEngine, which: str) -> str:
    return str(engine.images[which]["RepoTags"][0])


def test_prune_leaves_what_another_project_s_lock_stands_for(
    engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prune.prune_command(yes=True)
    assert engine.removed == []
    said = capsys.readouterr()
    assert f"kept: {name_of(engine, 'a')}, which {tmp_path / 'other' / 'tk.lock'} stands for" in said.err
    (tmp_path / "other" / "tk.lock").unlink()
    prune.prune_command(yes=True)
    assert engine.removed == [name_of(engine, "a")]


def test_without_a_terminal_nothing_goes_unasked(engine: FakeEngine, tmp_path: Path) -> None:
    (tmp_path / "other" / "tk.lock").unlink()
    for command in (prune.prune_command, lambda: rm.rm_command([name_of(engine, "a")])):
        with pytest.raises(UsageError) as caught:
            command()
        assert caught.value.code == 2
        assert name_of(engine, "a") in caught.value.why
        assert "--yes" in caught.value.hint
    assert engine.removed == []


@pytest.mark.parametrize(("answer", "removed"), [(True, 1), (False, 0)])
def test_on_a_terminal_it_asks_once_and_names_the_lock(
    engine: FakeEngine, answer: bool, removed: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked: list[str] = []

    def ask(question: str, *, default: bool) -> bool:
        asked.append(question)
        assert not default
        return answer

    monkeypatch.setattr("toolchain.console.can_ask", lambda: True)
    monkeypatch.setattr("toolchain.console.ask", ask)
    rm.rm_command([name_of(engine, "a")])
    assert (len(asked), len(engine.removed)) == (1, removed)
    assert f"which {tmp_path / 'other' / 'tk.lock'} stands for" in capsys.readouterr().err


def test_a_dry_run_asks_nothing_and_removes_nothing(
    engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other" / "tk.lock").unlink()
    prune.prune_command(dry_run=True)
    rm.rm_command([name_of(engine, "a")], dry_run=True)
    assert capsys.readouterr().out.count(name_of(engine, "a")) == 2
    assert engine.removed == []


def test_nothing_to_remove_needs_no_question(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    del engine.images["a"]
    prune.prune_command()
    assert "0 images removed" in capsys.readouterr().err
