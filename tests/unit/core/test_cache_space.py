"""Room in the cache: the least used go first, and never what another process is using."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compiler.core.cache import ContentCache, content_key
from compiler.core.cache_space import cache_in_use, cache_usage, make_room, prune_cache
from compiler.core.settings import load_settings
from compiler.core.units import read_bytes

HOUR = 3600.0


def filled(root: Path, ages: dict[str, float], size: int = 100) -> dict[str, Path]:
    """Objects of `size` bytes by name, last used `ages` seconds ago."""
    cache, paths = ContentCache(root / "objects"), {}
    for name, age in ages.items():
        paths[name] = cache.put(content_key(name), name.encode().ljust(size), ".o")
        used = time.time() - age
        os.utime(paths[name], (used, used))
    return paths


def names(paths: dict[str, Path]) -> list[str]:
    return [name for name, path in paths.items() if path.exists()]


def test_the_least_used_go_first(tmp_path: Path) -> None:
    paths = filled(tmp_path, {"new": 1, "old": 3 * HOUR, "middle": 2 * HOUR, "oldest": 9 * HOUR})
    assert ContentCache(tmp_path / "objects").get(content_key("old"), ".o") == paths["old"]  # used now
    pruned = prune_cache(tmp_path, max_bytes=200)
    assert names(paths) == ["new", "old"]
    assert (pruned.removed_entries, pruned.removed_bytes, pruned.left_bytes) == (2, 200, 200)
    assert sorted(one.name for one in (tmp_path / "objects").iterdir()) == sorted(
        {paths[name].parent.parent.name for name in ("new", "old")}
    ), "empty directories are gone"


def test_age_and_size_together(tmp_path: Path) -> None:
    paths = filled(tmp_path, {"a": 1, "b": 5 * HOUR, "c": 6 * HOUR, "d": 30 * HOUR})
    prune_cache(tmp_path, unused_seconds=24 * HOUR)
    assert names(paths) == ["a", "b", "c"]
    prune_cache(tmp_path, unused_seconds=24 * HOUR, max_bytes=250)
    assert names(paths) == ["a", "b"]
    prune_cache(tmp_path)
    assert names(paths) == ["a", "b"]


def test_dry_run_says_the_same_and_removes_nothing(tmp_path: Path) -> None:
    paths = filled(tmp_path, {"a": 1, "b": 5 * HOUR})
    tried = prune_cache(tmp_path, max_bytes=100, dry_run=True)
    assert names(paths) == ["a", "b"]
    assert prune_cache(tmp_path, max_bytes=100) == tried


def test_what_another_process_may_use_stays(tmp_path: Path) -> None:
    paths = filled(tmp_path, {"now": 1, "long ago": 2 * HOUR})
    code = (
        "import sys, pathlib\n"
        "from compiler.core.cache_space import cache_in_use\n"
        "with cache_in_use(pathlib.Path(sys.argv[1])): print('in use', flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in use\n"
        pruned = prune_cache(tmp_path, max_bytes=0)
        assert (pruned.removed_entries, pruned.in_use_entries) == (1, 1)
        other.communicate()
    assert names(paths) == ["now"]
    assert prune_cache(tmp_path, max_bytes=0).removed_entries == 1


def test_who_wants_to_use_the_cache_waits_for_no_one_who_uses_it(tmp_path: Path) -> None:
    with cache_in_use(tmp_path), cache_in_use(tmp_path):
        assert prune_cache(tmp_path, max_bytes=0).removed_entries == 0


def test_room_is_made_above_the_limit_only(tmp_path: Path) -> None:
    paths = filled(tmp_path, {str(number): (9 - number) * HOUR for number in range(8)})
    settings = load_settings({"TK_CACHE_DIR": str(tmp_path), "TK_CACHE_SIZE": "800"})
    make_room(settings)
    assert len(names(paths)) == 8
    filled(tmp_path, {"one more": 0})
    make_room(settings)
    assert names(paths) == ["2", "3", "4", "5", "6", "7"]


def test_only_entries_are_counted_and_removed(tmp_path: Path) -> None:
    filled(tmp_path, {"a": 1})
    (tmp_path / "of somebody else").mkdir()
    (tmp_path / "of somebody else" / "file").write_text("precious")
    left = tmp_path / "objects" / "00" / ".x.0123.part"
    left.parent.mkdir(exist_ok=True)
    left.write_text("left by a killed process")
    settings = load_settings({"TK_CACHE_DIR": str(tmp_path)})
    usage = cache_usage(settings)
    assert (usage.path, usage.entries, usage.bytes, usage.limit_bytes) == (tmp_path, 1, 100, 10**10)
    assert [(one.kind, one.entries) for one in usage.kinds] == [("objects", 1)]
    prune_cache(tmp_path, max_bytes=-1)
    assert not left.exists()
    assert (tmp_path / "of somebody else" / "file").exists()
    assert cache_usage(settings).entries == 0


def test_a_cache_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert cache_usage(load_settings({"TK_CACHE_DIR": str(tmp_path / "none")})).entries == 0


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("123", 123), ("10 GB", 10**10), ("500M", 5 * 10**8), ("1.5GiB", 3 << 29), ("2k", 2000)],
)
def test_sizes(text: str, count: int) -> None:
    assert read_bytes(text) == count


@pytest.mark.parametrize("text", ["", "GB", "-1", "1 XB", "1ib", "1e9", "\u0661"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        read_bytes(text)
