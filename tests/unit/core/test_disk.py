"""Every call that changes the disk can fail, at any time: files are old or new, and nothing stays behind."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.core import disk, files
from compiler.core.diagnostics import HostError
from tests.support.disk_faults import DiskFault, DiskLog, leftovers

OLD, NEW = b"o" * 5000, b"n" * 300_000
Act = Callable[[Path], object]


def streamed(folder: Path) -> None:
    with files.stream_atomic(folder / "deep" / "target", executable=True) as stream:
        for start in range(0, len(NEW), 70_000):
            stream.write(NEW[start : start + 70_000])


def replaced(folder: Path) -> None:
    with files.private_directory("tk-disk-test") as private:
        (private / "source").write_bytes(NEW)
        files.replace_atomic(private / "source", folder / "deep" / "target")


def copied(folder: Path) -> None:
    (folder / "source").write_bytes(NEW)
    files.copy_atomic(folder / "source", folder / "deep" / "target")


def published(folder: Path) -> None:
    with files.staging_directory(folder / "deep") as staging:
        (staging / "tree").mkdir()
        (staging / "tree" / "target").write_bytes(NEW)
        files.publish_directory(staging / "tree", folder / "deep")


ACTS: dict[str, Act] = {
    "write": lambda folder: files.write_atomic(folder / "deep" / "target", NEW, mode=0o640),
    "write, not durable": lambda folder: files.write_atomic(folder / "deep" / "target", NEW, durable=False),
    "stream": streamed,
    "replace": replaced,
    "copy": copied,
}


def failed(folder: Path, act: Act, fault: DiskFault) -> bool:
    """Whether it is said that the place cannot be written."""
    with disk.hooked(fault):
        try:
            act(folder)
        except HostError:
            return True
    return False


@pytest.mark.parametrize("forever", [False, True], ids=["once", "forever"])
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "EACCES"])
@pytest.mark.parametrize("name", ACTS)
def test_every_call_fails(name: str, kind: str, forever: bool, tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        target = folder / "deep" / "target"
        if number % 2:
            files.write_atomic(target, OLD)
        folder.mkdir(exist_ok=True)
        fault = DiskFault(number, kind, forever)
        said = failed(folder, ACTS[name], fault)
        if fault.struck is None:
            break
        content = target.read_bytes() if target.exists() else b""
        assert content in ((OLD, NEW) if number % 2 else (b"", NEW)), fault.struck
        assert said or content == NEW, fault.struck
        # what cannot be removed now is removed by the next one
        cleans = fault.struck.name != "remove" and not forever
        assert not cleans or leftovers(folder) == [], fault.struck
        streamed(folder)
        assert leftovers(folder / "deep") == []
        assert target.read_bytes() == NEW
    assert number > 3


@pytest.mark.parametrize("name", ["write", "stream"])
def test_short_writes_are_completed(name: str, tmp_path: Path) -> None:
    for forever in (False, True):
        fault = DiskFault(1, "SHORT", forever)
        assert not failed(tmp_path, ACTS[name], fault)
        assert fault.struck is not None
        assert (tmp_path / "deep" / "target").read_bytes() == NEW


def test_what_is_durable_is_synced_before_it_gets_its_name(tmp_path: Path) -> None:
    log = DiskLog()
    with disk.hooked(log):
        files.write_atomic(tmp_path / "a" / "b" / "file", NEW)
    names = [call.name for call in log.calls if call.name != "write"]
    made, synced = ["make_directory"] * 2, ["sync_directory"] * 3
    assert names == [*made, "create", "sync", "rename", *synced, "remove"]
    content = b"".join(call.data for call in log.calls)
    assert content == NEW
    assert {call.path for call in log.calls if call.name == "sync_directory"} == {
        tmp_path, tmp_path / "a", tmp_path / "a" / "b",
    }  # fmt: skip


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "file", OLD, is_new=True)
    with pytest.raises(HostError) as caught:
        files.write_atomic(tmp_path / "file", NEW, is_new=True)
    assert caught.value.why == "File exists"
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [OLD]


def test_a_published_directory_is_whole(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    published(tmp_path)
    assert (tmp_path / "deep" / "target").read_bytes() == NEW
    with pytest.raises(HostError, match="cannot write"):
        files.publish_directory(tmp_path / "none", tmp_path / "deep")
    assert (tmp_path / "deep" / "target").read_bytes() == NEW


def test_without_a_hook_streams_are_pythons_own(tmp_path: Path) -> None:
    with disk.stream(disk.create(tmp_path / "file"), tmp_path / "file") as stream:
        assert type(stream.raw).__name__ == "FileIO"  # type: ignore[attr-defined]
