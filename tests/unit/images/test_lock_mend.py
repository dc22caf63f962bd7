"""A broken tk.lock is put in order: nothing readable is lost, nothing is lost without a copy."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler import BadInputError
from tests.support.command import Result
from toolchain.images.lock.file import Lock, LockedImage, lock_text, read_lock, write_lock
from toolchain.images.lock.repair import repair_lock
from toolchain.images.plan import Pins

A = LockedImage("a" * 64, "a:1", Pins(apt={"gcc": "12", "make": "4"}))
B = LockedImage("b" * 64, "b:1", Pins(git={"https://github.com/intel/llvm": "c" * 40}))
C = LockedImage("c" * 64, "c:1", Pins(needs={"dpcpp": Pins(apt={"ninja-build": "1.11"})}))
NAMED = {"cpu": A, "rocm-5.4.3+dpcpp-2022-12": B, "tvm-sycl-rocm@gfx906,gfx90a": C}


def changed(one: LockedImage, version: str) -> LockedImage:
    return dataclasses.replace(one, pins=Pins(apt={"gcc": version}))


def lock(path: Path) -> dict[str, LockedImage]:
    found = read_lock(path)
    assert found is not None
    return dict(found.images)


def written(folder: Path, text: str) -> Path:
    path = folder / "tk.lock"
    path.write_text(text)
    return path


def conflict(ours: str, theirs: str, base: str | None = None) -> str:
    middle = "" if base is None else f"||||||| base\n{base}"
    return f"format = 1\n\n<<<<<<< HEAD\n{ours}{middle}=======\n{theirs}>>>>>>> topic\n"


def sections(**images: LockedImage) -> str:
    return lock_text(Lock({name.replace("_", "-"): one for name, one in images.items()})).partition("\n\n")[2]


def git(folder: Path, *words: str, code: int = 0) -> None:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr


def test_a_lock_in_order_stays(tmp_path: Path) -> None:
    assert repair_lock(tmp_path / "tk.lock") is None
    write_lock(tmp_path / "tk.lock", Lock(NAMED))
    assert repair_lock(tmp_path / "tk.lock") is None
    assert [one.name for one in tmp_path.iterdir()] == ["tk.lock"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('gcc = "12"', 'gcc = "12'),
        ('gcc = "12"', 'gcc = "12"\ngcc = "13"'),
        ('gcc = "12"', 'gcc = "1 && id"'),
        ('gcc = "12"', "\x00"),
        ('base = "a:1"', 'base = "a:1"\nwhat = 1'),
        ("format = 1", 'format = 1\n\n[image.cpu]\nrecipe = "x"'),
    ],
)
def test_what_can_be_read_is_kept(tmp_path: Path, before: str, after: str) -> None:
    text = lock_text(Lock(NAMED)).replace(before, after, 1)
    path = written(tmp_path, text)
    with pytest.raises(BadInputError):
        read_lock(path)
    done = repair_lock(path)
    assert done is not None
    assert done.lost == ("cpu",)
    assert lock(path) == {name: one for name, one in NAMED.items() if name != "cpu"}
    assert done.backup.read_text() == text


@pytest.mark.parametrize("head", ["", "format = 0\n", "format = 'x'\n"])
def test_a_broken_head_loses_nothing(tmp_path: Path, head: str) -> None:
    path = written(tmp_path, lock_text(Lock(NAMED)).replace("format = 1\n", head))
    assert repair_lock(path) is not None
    assert lock(path) == NAMED


@pytest.mark.parametrize("data", [b"\xff\xfe", b"", b"[" * 100_000, b"#" + b"x" * (9 << 20)])
def test_hopeless_bytes_give_an_empty_lock_and_a_copy(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "tk.lock"
    path.write_bytes(data)
    done = repair_lock(path)
    assert done is not None
    assert lock(path) == {}
    assert done.backup.read_bytes() == data


def test_no_copy_is_overwritten(tmp_path: Path) -> None:
    for text in ("one", "two", "three"):
        assert repair_lock(written(tmp_path, text)) is not None
    copies = {one.name: one.read_text() for one in tmp_path.glob("tk.lock.broken*")}
    assert copies == {"tk.lock.broken": "one", "tk.lock.broken-2": "two", "tk.lock.broken-3": "three"}


def test_a_newer_tk_s_lock_is_left_alone(tmp_path: Path) -> None:
    path = written(tmp_path, lock_text(Lock(NAMED)).replace("format = 1", "format = 2"))
    with pytest.raises(BadInputError) as caught:
        repair_lock(path)
    assert "newer tk" in caught.value.hint
    assert [one.name for one in tmp_path.iterdir()] == ["tk.lock"]


def test_two_sides_with_different_sections_are_merged(tmp_path: Path) -> None:
    path = written(tmp_path, conflict(sections(cpu=A), sections(cpu_sycl=B)))
    done = repair_lock(path)
    assert done is not None
    assert (done.kept, done.lost) == (("cpu", "cpu-sycl"), ())
    assert lock(path) == {"cpu": A, "cpu-sycl": B}


def test_one_section_changed_on_both_sides_is_lost(tmp_path: Path) -> None:
    ours = sections(cpu=changed(A, "13"), cpu_sycl=B)
    path = written(tmp_path, conflict(ours, sections(cpu=changed(A, "14"), cpu_sycl=B)))
    done = repair_lock(path)
    assert done is not None
    assert (done.kept, done.lost) == (("cpu-sycl",), ("cpu",))


def test_with_the_base_each_side_s_own_change_counts(tmp_path: Path) -> None:
    ours = sections(cpu=changed(A, "13"), cpu_sycl=B)  # changed cpu, removed hip
    theirs = sections(cpu=A, cpu_sycl=changed(B, "14"), hip=C)
    path = written(tmp_path, conflict(ours, theirs, sections(cpu=A, cpu_sycl=B, hip=C)))
    done = repair_lock(path)
    assert done is not None
    assert done.lost == ()
    assert lock(path) == {"cpu": changed(A, "13"), "cpu-sycl": changed(B, "14")}


def test_a_merge_of_git_itself(tmp_path: Path) -> None:
    """Git's own text has no base; its index has."""
    path = tmp_path / "tk.lock"

    def commit(images: dict[str, LockedImage]) -> None:
        write_lock(path, Lock(images))
        git(tmp_path, "add", "tk.lock")
        git(tmp_path, "commit", "-qm", "x")

    git(tmp_path, "init", "-q", "-b", "main")
    commit({"cpu": changed(A, "1")})
    git(tmp_path, "checkout", "-qb", "topic")
    commit({"cpu": changed(A, "1"), "hip": B})
    git(tmp_path, "checkout", "-q", "main")
    commit({"cpu": changed(A, "2")})
    git(tmp_path, "merge", "topic", code=1)
    done = repair_lock(path)
    assert done is not None
    assert done.lost == ()
    assert lock(path) == {"cpu": changed(A, "2"), "hip": B}


def test_the_hint_of_a_broken_lock_works(tk: Callable[..., Result], tmp_path: Path) -> None:
    path = written(tmp_path, conflict(sections(cpu=A), sections(cpu=changed(A, "13"), cpu_sycl=B)))
    broken = tk("image", "render", "cpu")
    assert (broken.code, "a merge that was not finished" in broken.err) == (3, True)
    assert "`tk image lock --repair`" in broken.err
    done = tk("image", "lock", "--repair")
    assert done.code == 0, done.err
    assert "kept cpu-sycl" in done.err
    assert "`tk image lock cpu` resolves it anew" in done.err
    assert "tk.lock.broken" in done.err
    assert tk("image", "render", "cpu").code == 0
    assert lock(path) == {"cpu-sycl": B}
    assert "is in order" in tk("image", "lock", "--repair").err


def test_repair_tells_programs(tk: Callable[..., Result], tmp_path: Path) -> None:
    written(tmp_path, "nonsense")
    (one,) = tk("image", "lock", "--repair", "--json", env={"XDG_STATE_HOME": str(tmp_path)}).json["locks"]
    assert one["repaired"]["lost"] == []
    assert one["repaired"]["backup"].endswith("tk.lock.broken")


def test_the_user_s_own_lock_is_mended_too(tk: Callable[..., Result], tmp_path: Path) -> None:
    """What was locked by itself lies in the user's state; broken, it stands in the way of every image."""
    env = {"XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "state" / "tk").mkdir(parents=True)
    own = written(tmp_path / "state" / "tk", lock_text(Lock(NAMED)).replace('gcc = "12"', "gcc"))
    assert tk("image", "render", "cpu", env=env).code == 3
    done = tk("image", "lock", "--repair", env=env)
    assert (done.code, f"{own}: kept" in done.err) == (0, True), done.err
    assert tk("image", "render", "cpu", env=env).code == 0


def test_lock_wants_a_name_or_repair(tk: Callable[..., Result]) -> None:
    done = tk("image", "lock")
    assert (done.code, "no image is named" in done.err) == (2, True)
