"""The cache gives back what was put in, or nothing."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from compiler.core.cache import ContentCache, checked_content, content_key
from compiler.core.diagnostics import HostError, InternalError

KEY = content_key("a key")


def test_miss_then_hit(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path)
    assert cache.get(KEY, ".o") is None
    path = cache.put(KEY, b"data", ".o")
    assert cache.get(KEY, ".o") == path
    assert path.read_bytes() == b"data"
    assert cache.get(KEY, ".so") is None


@pytest.mark.parametrize("damage", [b"", b"dat", b"datA", b"data+"])
def test_damage_is_a_miss_and_is_removed(tmp_path: Path, damage: bytes) -> None:
    cache = ContentCache(tmp_path)
    path = cache.put(KEY, b"data")
    path.write_bytes(damage)
    assert cache.get(KEY) is None
    assert not path.exists()
    cache.put(KEY, b"data")
    assert cache.get(KEY) == path


def test_every_flipped_byte_is_noticed(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path)
    data = bytes(range(64))
    for position in range(len(data)):
        path = cache.put(KEY, data)
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        assert cache.get(KEY) is None


def test_an_entry_that_changes_while_it_is_used_is_refused(tmp_path: Path) -> None:
    path = ContentCache(tmp_path).put(KEY, b"data", ".o")
    assert checked_content(path) == b"data"
    path.write_bytes(b"date")
    with pytest.raises(HostError, match="changed while it was used"):
        checked_content(path)
    path.unlink()
    with pytest.raises(HostError, match="changed while it was used"):
        checked_content(path)
    (tmp_path / "plain.o").write_bytes(b"anything")
    assert checked_content(tmp_path / "plain.o") == b"anything"


def test_other_content_of_one_key_stays_valid(tmp_path: Path) -> None:
    """Compilers are not always deterministic: both results are right, and a user of one must not lose it."""
    cache = ContentCache(tmp_path)
    first, second = cache.put(KEY, b"one"), cache.put(KEY, b"two")
    assert first.exists()
    assert second.exists()
    assert cache.get(KEY) in (first, second)


def test_unfinished_files_are_not_entries(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path)
    path = cache.put(KEY, b"data")
    path.rename(path.with_name(f".{path.name}.abc.part"))
    assert cache.get(KEY) is None


@pytest.mark.parametrize("key", ["", "../../etc", "A" * 64, "a" * 63, KEY + "\n"])
def test_keys_are_digests(tmp_path: Path, key: str) -> None:
    with pytest.raises(InternalError):
        ContentCache(tmp_path).put(key, b"")


def test_suffix_cannot_leave_the_directory(tmp_path: Path) -> None:
    with pytest.raises(InternalError):
        ContentCache(tmp_path).put(KEY, b"", "/../x")


def test_keys_tell_parts_and_kinds_apart() -> None:
    keys = [
        content_key(*parts) for parts in [("ab",), ("a", "b"), ("", "ab"), (b"ab",), (), ("",), ("a", b"b")]
    ]
    assert len(set(keys)) == len(keys)


def _hammer(root: str, worker: int) -> int:
    cache = ContentCache(Path(root))
    wrong = 0
    for i in range(60):
        key = content_key(str(i % 6))
        found = cache.get(key)
        data = b"%d" % (i % 6) * 5000
        wrong += found is not None and found.read_bytes() != data
        path = cache.put(key, data)
        wrong += path.read_bytes() != data
    return wrong + 0 * worker


def test_many_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.starmap(_hammer, [(str(tmp_path), i) for i in range(3)]) == [0, 0, 0]
