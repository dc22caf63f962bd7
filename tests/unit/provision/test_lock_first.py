"""A build of what no lock fixes locks it first: where it is written, what is kept, who is asked."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BadInputError, HostError, UsageError
from tests.support.fake_engine import FakeEngine
from toolchain import console
from toolchain.commands.image import target
from toolchain.commands.image.bundle import export_command
from toolchain.commands.image.lock import lock_command
from toolchain.engine import effort, progress, store
from toolchain.images import named
from toolchain.images.lock.file import Lock, LockedImage, read_lock, update_lock, write_lock
from toolchain.images.lock.pins import consult, project_lock, recipe_of, user_lock
from toolchain.images.named import Named, plan_named
from toolchain.images.plan import Pins
from toolchain.images.selection import Selection
from toolchain.provision import bundle, locking, obtain, section
from toolchain.provision.resolving import Packages
from toolchain.recipes.additions import read_additions
from toolchain.web import UnreachableError


class Engine(FakeEngine):
    """An engine whose registry knows every base."""

    @property
    def api(self) -> Any:
        found = super().api
        found.inspect_distribution = lambda _reference: {"Descriptor": {"digest": "sha256:" + "d" * 64}}
        found.pull = lambda _repository, **_how: iter(())
        return found


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What apt offers, for every package that a plan asks for; a test may change it."""
    offered: dict[str, str] = {"version": "1"}

    def resolve(_engine: Any, plan: Any, _site: Any, *, keep: Pins | None = None, **_: Any) -> Packages:
        offered["keep"] = str(keep is not None)
        return Packages(dict.fromkeys(plan.apt, offered["version"]), {})

    monkeypatch.setattr(locking, "resolve_packages", resolve)
    return offered


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no project, and a state of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def lock(name: str = "cpu", engine: Any = None, **options: Any) -> Named:
    named = plan_named(name, Selection(**options), locks=True)
    return obtain.locked(engine or Engine(), named)


def test_outside_of_a_project_it_is_the_users_own(versions: dict[str, str], here: Path) -> None:
    made = lock()
    assert made.pins is not None
    assert made.pins.apt["g++"] == "1"
    assert (project_lock(), made.lock_file) == (None, user_lock())
    assert list(here.iterdir()) == []
    assert plan_named("cpu").plan.key == made.plan.key != made.unlocked.key


@pytest.mark.parametrize("mark", [".git", "site.yaml", "tk.lock"])
def test_in_a_project_it_is_the_projects(
    mark: str, versions: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the project's top folder, whatever folder of it one is in; elsewhere the user's own has the same."""
    if mark == "tk.lock":
        write_lock(here / mark, Lock())
    else:
        (here / mark).write_text("allow: []\n")
    (here / "below").mkdir()
    monkeypatch.chdir(here / "below")
    made = lock()
    assert made.lock_file == here / "tk.lock"
    assert read_lock(here / "tk.lock") == read_lock(user_lock())
    monkeypatch.chdir(here.parent)
    assert plan_named("cpu").plan.key == made.plan.key


def test_the_second_time_nothing_is_asked(versions: dict[str, str], here: Path) -> None:
    (here / ".git").touch()
    first = lock()
    versions["version"] = "2"
    assert lock().plan.key == first.plan.key


@pytest.mark.parametrize("where", ["no lock", "the user's lock", "the project's lock"])
def test_a_name_is_planned_once(
    where: str, versions: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "the project's lock":
        (here / ".git").touch()
    if where != "no lock":
        lock()
    planned: list[object] = []
    plain = named.plan_image
    monkeypatch.setattr(
        named, "plan_image", lambda *args, **options: planned.append(1) or plain(*args, **options)
    )
    assert (plan_named("cpu").pins is None) == (where == "no lock")
    assert len(planned) == 1


def test_the_users_own_lock_keeps_nobody_on_old_versions(
    versions: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an image of it there, what has vanished from the package sources is found anew."""
    lock()
    assert "no lock fixes its versions yet" in capsys.readouterr().err
    versions["version"] = "2"
    made = lock()
    assert capsys.readouterr().err == (
        f"locking cpu in {user_lock()}: no image of what was locked before is here\n"
    )
    assert versions["keep"] == "True"
    assert made.pins is not None
    assert made.pins.apt["g++"] == "2"


def test_a_project_takes_over_what_was_built_elsewhere(
    versions: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is there, so nothing is asked; but who commits the lock has a section to commit."""
    first = lock()
    monkeypatch.setattr(section, "find_image", lambda _engine, _plan: object())
    versions["version"] = "2"
    (here / ".git").touch()
    made = lock()
    assert made.plan.key == first.plan.key
    assert made.lock_file == here / "tk.lock"
    assert read_lock(here / "tk.lock") == read_lock(user_lock())


def test_what_is_out_of_date_is_brought_up_to_date(
    versions: dict[str, str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / ".git").touch()
    lock()
    update_lock(
        here / "tk.lock", lambda old: Lock({"cpu": dataclasses.replace(old.images["cpu"], recipe="0" * 64)})
    )
    capsys.readouterr()
    made = lock()
    assert capsys.readouterr().err.splitlines() == [
        f"locking cpu in {here / 'tk.lock'}: the recipes of cpu have changed since it was locked"
    ]
    assert made.lock_file == here / "tk.lock"
    assert consult(made.unlocked, read_lock(here / "tk.lock")).pins == made.pins


@pytest.mark.parametrize("mode", ["locked", "frozen"])
def test_who_insists_on_a_lock_gets_none_by_itself(mode: Any) -> None:
    with pytest.raises(BadInputError, match=f"--{mode} was given"):
        plan_named("cpu", Selection(lock=mode), locks=True)


def test_a_stand_in_stays_out_of_the_projects_lock(versions: dict[str, str], here: Path) -> None:
    (here / ".git").touch()
    lock()
    team = (here / "tk.lock").read_bytes()
    made = lock(base="my/debian:bookworm", engine=_with_base("my/debian:bookworm"))
    assert made.lock_file == user_lock()
    assert (here / "tk.lock").read_bytes() == team
    again = plan_named("cpu", Selection(base="my/debian:bookworm"))
    assert again.plan.key == made.plan.key


def test_a_stand_in_that_the_projects_lock_has_is_used_from_there(
    versions: dict[str, str], here: Path
) -> None:
    """As `tk image lock --base` wrote it; the user's own lock knows nothing of it."""
    base = "my/debian:bookworm"
    plan = plan_named("cpu", Selection(base=base)).unlocked
    pins = Pins(apt=dict.fromkeys(plan.apt, "7"))
    write_lock(here / "tk.lock", Lock({"cpu": LockedImage(recipe_of(plan), base, pins, stand_in=True)}))
    made = lock(base=base, engine=_with_base(base))
    assert (made.lock_file, made.pins) == (here / "tk.lock", pins)
    assert not user_lock().exists()


class _Debian(Engine):
    def read_file(self, _image: str, _path: str) -> bytes:
        return b'ID=debian\nVERSION_ID="12"\n'


def _with_base(reference: str) -> Any:
    return _Debian(images={reference: {"Id": "sha256:1"}})


def test_the_image_that_a_lock_names_stays_named(versions: dict[str, str], here: Path) -> None:
    (here / ".git").touch()
    plan = plan_named("cpu").unlocked
    old = LockedImage(recipe_of(plan), plan.base.reference, Pins(apt={"g++": "0"}))
    write_lock(here / "tk.lock", Lock({"cpu": old}))
    lock()
    found = read_lock(here / "tk.lock")
    assert found is not None
    assert found.images["cpu"].built is None
    assert found.images["cpu"].pins.apt["g++"] == "1"


def test_what_a_user_adds_is_known_by_its_name_from_then_on(
    versions: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of a project, too, and from another folder."""
    script = here / "more.sh"
    script.write_text("#!/bin/sh\n")
    made = lock(additions=read_additions(["curl"], [], [script]))
    assert made.plan.section.startswith("cpu+with-")
    monkeypatch.chdir(here.parent)
    assert plan_named(made.plan.section).plan.key == made.plan.key


def test_a_dry_run_shows_the_changes_and_writes_nothing(
    versions: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / ".git").mkdir()
    monkeypatch.setattr(target, "connect", lambda *_: Engine())

    def changed(**options: bool) -> dict[str, str]:
        lock_command("cpu", json=True, **options)
        found = json.loads(capsys.readouterr().out)["changes"]
        return {one["name"]: one["after"] for one in found if one["what"] != "snapshot"}  # a moment in time

    tried = changed(dry_run=True)
    assert tried["g++"] == "1"
    assert not (here / "tk.lock").exists()
    assert changed() == tried
    text = (here / "tk.lock").read_text()
    versions["version"] = "2"
    assert changed(update=True, dry_run=True)["g++"] == "2"
    assert (here / "tk.lock").read_text() == text


@pytest.mark.parametrize("option", [{"repair": True}, {"image": f"tk/cpu:1@sha256:{'0' * 64}"}])
def test_what_is_there_to_write_has_no_dry_run(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="exclude each other"):
        lock_command("cpu", dry_run=True, **option)


@pytest.mark.parametrize("error", [UnreachableError("no address"), HostError("disk full", hint="free some")])
def test_without_internet_the_way_out_is_told(
    error: HostError, versions: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle mends nothing but that: no full disk, and no engine that is gone."""

    def fail(*_arguments: Any) -> str:
        raise error

    monkeypatch.setattr(store, "registry_digest", fail)
    with pytest.raises(HostError) as caught:
        lock()
    assert caught.value.code == 4
    if not isinstance(error, UnreachableError):
        assert caught.value.hint == "free some"
        return
    assert "tk image bundle export cpu" in caught.value.hint
    assert "tk image bundle import" in caught.value.hint


def test_a_bundle_is_made_from_the_users_own_lock(
    versions: dict[str, str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of any project, too, as a build there has locked it."""
    exported: list[Any] = []

    def export(_engine: Any, plan: Any, found: LockedImage, _site: Any, path: Path, **_: Any) -> Any:
        exported.append((plan.key, found.pins))
        path.touch()
        return SimpleNamespace(files=[], plan=plan.key)

    monkeypatch.setattr(target, "connect", lambda *_: Engine())
    monkeypatch.setattr(bundle, "export_bundle", export)
    with pytest.raises(BadInputError, match="no lock fixes what cpu is built from") as caught:
        export_command("cpu")
    assert "tk image lock cpu" in caught.value.hint
    made = lock()
    export_command("cpu")
    assert exported == [(made.plan.key, made.pins)]


def test_a_fallback_of_the_base_is_told(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"ubuntu:20.04": "sha256:" + "e" * 64}
    monkeypatch.setattr(store, "registry_digest", lambda _engine, reference: there.get(reference, ""))
    made = lock("cuda-11.2", Engine())
    assert made.plan.base.pinned == f"ubuntu:20.04@{there['ubuntu:20.04']}"
    gone = "nvidia/cuda:11.2.2-devel-ubuntu20.04"
    assert f"its base is ubuntu:20.04: no registry has {gone} any more" in capsys.readouterr().err


# -- trust, and what a person is asked --


@pytest.mark.parametrize(
    ("flag", "answer", "taken"),
    [(True, None, True), (False, True, True), (False, False, False), (False, None, False)],
)
def test_trust_on_first_use(
    flag: bool, answer: bool | None, taken: bool, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By the option, or by a person on a terminal; who is not there says no."""
    questions: list[str] = []

    def ask(question: str, *, default: bool) -> bool | None:
        assert default is False
        questions.append(question)
        return answer

    monkeypatch.setattr(console, "ask", ask)
    assert obtain.trusting(given=flag)(["the keys in https://example.com/k"]) is taken
    assert "https://example.com/k" in capsys.readouterr().err
    assert len(questions) == int(not flag)


def test_the_lock_notes_what_was_trusted(versions: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking.origins, "resolve_commit", lambda _tree, _site: "c" * 40)
    trusted: list[Sequence[str]] = []

    def trust(parts: Sequence[str]) -> bool:
        trusted.append(parts)
        return True

    named = plan_named("cuda-11.8+dpcpp-nightly-2023-12-06", locks=True)
    made: Any = Engine()
    section.lock_first(made, named, trust=trust, say=lambda _text: None)
    assert trusted == [("the commit of nightly-2023-12-06 in https://github.com/intel/llvm",)]
    text = user_lock().read_text()
    assert 'trusted_on_first_use = [\n    "https://github.com/intel/llvm",\n]' in text
    # asked once: what the lock has is not asked again
    section.lock_first(
        made, plan_named(named.unlocked.section, locks=True), trust=trust, say=lambda _text: None
    )
    assert len(trusted) == 1


def test_what_was_trusted_of_a_component_counts_for_those_that_are_built_with_it() -> None:
    url = "https://github.com/intel/llvm"
    plan = plan_named("cuda-11.8+dpcpp-nightly-2023-12-06+tvm-sycl+ubuntu-20.04", Selection(lock=None)).plan
    assert any(need.needs for need in plan.needs)
    assert locking.unvouched(plan, Pins()) == (f"the commit of nightly-2023-12-06 in {url}",)
    assert locking.unvouched(plan, Pins(needs={"dpcpp": Pins(git={url: "c" * 40})})) == ()


def test_the_question_tells_what_a_build_costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine: Any = FakeEngine()
    plan = plan_named("rocm-5.4.3+dpcpp-2022-12").plan
    assert effort.effort(engine, plan) == (
        "dpcpp-2022-12 on rocm-5.4.3 from source: hours, tens of GB while it is built"
    )
    assert effort.effort(engine, plan_named("cpu").plan) == "never timed on this engine, size unknown"
    times = progress.StepTimes(tmp_path / "times.json")
    times.known = {"RUN one": 100.0, "RUN two": 85.0}
    monkeypatch.setattr(effort, "step_times", lambda *_arguments: times)
    assert effort.effort(engine, plan_named("cpu").plan) == "about 3 min 05 s as last time, size unknown"
