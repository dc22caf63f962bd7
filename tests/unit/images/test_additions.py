"""What `--with-apt`, `--with-pip` and `--with` put on top of a recipe: plan, name, key, lock, mistakes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from compiler import BadInputError, UsageError
from tests.support.command import tk
from tests.support.recipes import catalog
from toolchain.images.lock.file import Lock, LockedImage, lock_text, parse_lock, write_lock
from toolchain.images.lock.pins import added_to, lock_path, recipe_of
from toolchain.images.named import plan_named
from toolchain.images.parse_back import check_parses_back
from toolchain.images.plan import Pins, Plan, Run
from toolchain.images.planner import plan_image
from toolchain.images.render import context, dockerfile
from toolchain.images.selection import Selection
from toolchain.recipes.additions import NOTHING, Additions, Script, read_additions, with_additions
from toolchain.recipes.resolve import resolve

HELLO = b"#!/bin/sh\necho hello > /etc/hello\n"
ALL = Additions(("htop", "jq=1.6-2.1"), ("rich==13.7.1",), (Script(Path("my setup.sh"), HELLO),))


def planned(added: Additions, name: str = "cpu") -> Plan:
    return plan_image(with_additions(resolve(name, catalog(), allow=tuple(catalog().rules)), added))


def test_they_are_one_more_layer_of_another_image() -> None:
    plain, more = planned(NOTHING), planned(ALL)
    assert more.key != plain.key
    assert more.name == f"cpu+with-{ALL.digits}" == more.section
    assert f"with-{ALL.digits}" in more.reference
    assert dict(more.labels)["tk.with"] == "apt:htop apt:jq=1.6-2.1 pip:rich==13.7.1 script:my-setup.sh"
    assert {"htop", "jq=1.6-2.1"} <= set(more.apt)
    assert "rich==13.7.1" in more.pip
    [file] = [one for one in context(more) if one.path == "tk/with-1-my-setup.sh"]
    assert (file.data, file.mode) == (HELLO, 0o755)
    last = [one for one in more.stages[-1].instructions if isinstance(one, Run)][-1]
    assert last.commands == (("sh", "/run/tk/site.sh", "run", "/run/tk/with-1-my-setup.sh"),)
    assert "/opt/venv/bin" in dockerfile(more)
    check_parses_back(more, dockerfile(more))


def test_without_them_nothing_changes() -> None:
    resolution = resolve("cpu", catalog())
    assert with_additions(resolution, NOTHING) is resolution
    assert "tk.with" not in dict(planned(NOTHING).labels)


def test_the_name_stands_for_what_was_asked_for_and_the_key_for_what_scripts_say() -> None:
    other = dataclasses.replace(ALL, scripts=(Script(Path("elsewhere/my setup.sh"), HELLO + b"# more\n"),))
    mixed = dataclasses.replace(ALL, apt=tuple(reversed(ALL.apt)))
    assert other.digits == ALL.digits == mixed.digits
    assert dataclasses.replace(ALL, apt=("htop",)).digits != ALL.digits
    one, two = planned(ALL), planned(other)
    assert (one.name, one.section) == (two.name, two.section)
    assert one.key != two.key
    assert recipe_of(one) != recipe_of(two)


def test_environments_and_archs_keep_their_sections() -> None:
    plan = planned(ALL, "tvm-sycl-rocm")
    assert plan.section.startswith(f"tvm-sycl-rocm+with-{ALL.digits}@gfx")
    [one] = [one.key for one in planned(NOTHING, "tvm-sycl-rocm").needs[:1]]
    assert plan.needs[0].key == one, "components are the same images"
    assert plan.typed.startswith("tvm-sycl-rocm@gfx")
    assert "'--with=my setup.sh'" in plan.typed


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "my.sh").write_bytes(HELLO)
    added = read_additions(["htop"], ["rich"], [Path("tools/my.sh")])
    plan = plan_named("cpu", Selection(additions=added, lock=None)).plan
    pins = Pins(
        base_digest="sha256:" + "a" * 64,
        apt={one.partition("=")[0]: "1" for one in plan.apt},
        pip={"rich": ("13.7.1", ())},
    )
    section = LockedImage(recipe_of(plan), plan.base.reference, pins, added=added_to(plan))
    write_lock(lock_path(), Lock({plan.section: section}))
    return tmp_path


def section_name(project: Path) -> str:
    [name] = parse_lock((project / "tk.lock").read_bytes(), "tk.lock").images
    return name


def test_a_lock_has_them_so_that_the_name_is_enough(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (project / "tk.lock").read_text()
    assert 'scripts = [\n    "tools/my.sh",\n]' in text
    lock = parse_lock(text.encode(), "tk.lock")
    assert lock_text(lock) == text
    added = read_additions(["htop"], ["rich"], [Path("tools/my.sh")])
    asked = plan_named("cpu", Selection(additions=added, lock="locked"))
    (project / "deep").mkdir()
    monkeypatch.chdir(project / "deep")
    by_name = plan_named(section_name(project), Selection(lock="locked"))
    assert by_name.pins is not None
    assert by_name.plan.key == asked.plan.key
    assert "htop=1" in dockerfile(by_name.plan)


def test_the_locked_name_is_shown_and_explained(project: Path) -> None:
    name = section_name(project)
    shown = tk("image", "show", name, cwd=project)
    assert (shown.code, shown.out.splitlines()[0].split()[0]) == (0, name), shown.err
    assert "apt:htop pip:rich script:my.sh" in shown.out
    assert tk("image", "why", name, cwd=project).code == 0
    unknown = tk("image", "show", "cpu+with-01234567", cwd=project)
    assert (unknown.code, "nothing says what" in unknown.err) == (2, True)


def test_an_edited_script_makes_the_lock_stale(project: Path) -> None:
    (project / "tools" / "my.sh").write_bytes(HELLO + b"# more\n")
    assert any("have changed" in one for one in plan_named(section_name(project)).warnings)
    (project / "tools" / "my.sh").unlink()
    with pytest.raises(BadInputError, match="cannot read a script"):
        plan_named(section_name(project))


def test_digits_that_nothing_explains(project: Path) -> None:
    with pytest.raises(UsageError, match="nothing says what"):
        plan_named("cpu+with-01234567")
    with pytest.raises(UsageError, match="nothing says what"):
        plan_named(section_name(project), Selection(additions=Additions(("jq",))))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--with-apt", "a b", "--with-pip", "x;y"], 2, "--with-pip 'x;y'"),
        (["--with-apt", "-y"], 2, "`-y` is no package"),
        (["--with", "none.sh"], 3, "cannot read a script"),
        (["--with", "text"], 3, "does not begin with `#!`"),
        (["--with", "large"], 3, "the limit is 1,048,576 bytes"),
    ],
)
def test_mistakes(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("echo hello\n")
    (tmp_path / "large").write_bytes(b"#!" + b"x" * (1 << 20))
    done = tk("image", "render", "cpu", *words, cwd=tmp_path)
    assert (done.code, said in done.err) == (code, True), done.err


def test_packages_of_apt_are_for_systems_that_have_it() -> None:
    name = next(
        stack.stack.name.replace("{version}", row.row.version) + f"+{base.system}"
        for stack in catalog().stacks.values()
        for row in stack.rows
        for base in row.row.bases
        if catalog().systems[base.system].row.family != "debian"
    )
    with pytest.raises(BadInputError, match="has no apt"):
        planned(Additions(("htop",)), name)
    assert planned(Additions(scripts=ALL.scripts), name).files


def test_the_command_shows_them(tmp_path: Path) -> None:
    (tmp_path / "my.sh").write_bytes(HELLO)
    done = tk("image", "render", "cpu", "--with-apt", "htop", "--with", "my.sh", cwd=tmp_path)
    assert done.code == 0, done.err
    assert "site.sh apt install htop" in done.out
    assert "site.sh run /run/tk/with-1-my.sh" in done.out
    assert "WITH my.sh" not in done.out
