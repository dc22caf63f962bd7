"""Files are old or new, never a part."""

from __future__ import annotations

import errno
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler.core import disk, files
from compiler.core.diagnostics import HostError
from tests.support.command import environment
from tests.support.disk_faults import DiskLog


def test_write_makes_directories_and_replaces(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b.txt"
    files.write_atomic(target, "erster Text: ä")
    files.write_atomic(target, b"\x00second")
    assert target.read_bytes() == b"\x00second"
    assert list(target.parent.iterdir()) == [target]


def test_write_follows_the_umask_or_the_given_mode(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        files.write_atomic(tmp_path / "plain", "x")
    finally:
        os.umask(before)
    files.write_atomic(tmp_path / "tool", "x", mode=0o750)
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "tool").stat().st_mode) == 0o750


def test_failed_write_leaves_the_old_file_and_no_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "file"
    files.write_atomic(target, "old")

    def no_space(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(HostError, match="cannot write a file") as caught:
        files.write_atomic(target, "new")
    assert re.fullmatch(r"No space left on device: [\d,]+ bytes are free, 3 are needed", caught.value.why)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_write_into_a_file_as_directory_is_a_host_error(tmp_path: Path) -> None:
    files.write_atomic(tmp_path / "file", "x")
    with pytest.raises(HostError):
        files.write_atomic(tmp_path / "file" / "below", "x")


def test_what_a_stream_is_written_from_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    """Errors of a download are OSErrors, too: those of requests."""

    class ConnectionLostError(OSError):
        pass

    with pytest.raises(ConnectionLostError), files.stream_atomic(tmp_path / "x"):
        raise ConnectionLostError("the server closed the connection")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(HostError, match="cannot write"), files.stream_atomic(tmp_path / "x"):
        raise OSError(28, "No space left on device")


def test_replace_moves(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "d" / "target"
    source.write_text("new")
    files.replace_atomic(source, target)
    assert target.read_text() == "new"
    assert not source.exists()


def test_replace_across_file_systems(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs /dev/shm on a file system of its own")
    source = other / f"tk-test-{os.getpid()}"
    source.write_text("new")
    source.chmod(0o755)
    files.replace_atomic(source, tmp_path / "target")
    assert (tmp_path / "target").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o755
    assert not source.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_private_directory_is_private_and_goes_away() -> None:
    with files.private_directory("tk-test") as directory:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        (directory / "x").write_text("x")
    assert not directory.exists()


def test_private_directory_where_folders_take_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, free = tmp_path / "full", tmp_path / "free"
    for name, folder in (("TMPDIR", tmp_path / "missing"), ("TEMP", full), ("TMP", free)):
        monkeypatch.setenv(name, str(folder))
    full.mkdir()
    free.mkdir()

    def full_below(*folders: Path) -> disk.Hook:
        def fail(call: disk.DiskCall) -> None:
            if call.name == "write" and any(call.path.is_relative_to(folder) for folder in folders):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(call.path))

        return fail

    with disk.hooked(full_below(full)), files.private_directory("tk-test") as made:
        assert (made.parent, list(made.iterdir()), list(full.iterdir())) == (free, [], [])
    with (
        disk.hooked(full_below(Path("/"))),
        pytest.raises(HostError, match=r"No space left on device: .* bytes are free") as told,
        files.private_directory("tk-test"),
    ):
        pass
    monkeypatch.undo()
    assert (str(told.value.where), [*full.iterdir(), *free.iterdir()]) == (str(full), [])


def test_a_kill_while_a_temporary_folder_is_looked_for(tmp_path: Path) -> None:
    calls = DiskLog()
    environ = environment({"TMPDIR": str(tmp_path)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path))
        with disk.hooked(calls), files.private_directory("tk-test"):
            pass
    for number in range(1, len(calls.calls) + 1):
        argv = [sys.executable, "-c", _LOOKING, str(number)]
        assert subprocess.run(argv, env=environ, check=False).returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir())
    done = subprocess.run([sys.executable, "-c", _LOOKING, "0"], env=environ, check=False)
    assert (done.returncode, list(tmp_path.iterdir())) == (0, [])


def test_a_private_stream_is_read_again() -> None:
    with files.private_stream("tk-test") as stream:
        stream.write(b"content")
        stream.seek(0)
        assert stream.read() == b"content"


_LOOKING = """
import sys
from compiler.core import disk, files
from tests.support.disk_faults import DiskFault
number = int(sys.argv[1])
if number == 0:
    files.remove_abandoned_directories("tk-test")
with disk.hooked(DiskFault(number or 10**6, "KILL")), files.private_directory("tk-test"):
    pass
"""


def test_digests(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert files.sha256_bytes(b"abc") == expected
    assert files.sha256_file(tmp_path / "x") == expected


_WRITER = """
import sys
from pathlib import Path
from compiler.core.files import write_atomic
target = Path(sys.argv[1])
print("ready", flush=True)
while True:
    write_atomic(target, b"a" * 4_000_000)
    write_atomic(target, b"b" * 4_000_000)
"""


def test_kill_leaves_old_or_new(tmp_path: Path) -> None:
    target = tmp_path / "file"
    for round_number in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(target)], env=environment(), stdout=subprocess.PIPE
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(0.02 + 0.013 * round_number)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        if target.exists():
            data = target.read_bytes()
            assert len(data) == 4_000_000
            assert len(set(data)) == 1


def test_what_others_named_alike_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    theirs = [tmp_path / "tk-notes", tmp_path / ".model.so.old.part", tmp_path / "tk-link-abcdefgh"]
    ours = [tmp_path / f"tk-link-{'0' * 16}.part", tmp_path / f".model.so.{'f' * 16}.part"]
    for path in (*theirs, *ours):
        path.mkdir()
        (path / "file").touch()
    files.remove_abandoned_directories("tk")
    with files.staging_directory(tmp_path / "model.so"):
        pass
    assert sorted(tmp_path.iterdir()) == sorted(theirs)
    with files.private_directory("tk-link") as held:
        files.remove_abandoned_directories("tk")
        assert (held.is_dir(), held.stat().st_mode & 0o777) == (True, 0o700)
