"""`tk cache`: what is there, what goes, and what cannot be read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result

Tk = Callable[..., Result]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache of three objects: used now, yesterday, two months ago."""
    root = tmp_path / "cache"
    for days in (0, 1, 60):
        path = root / "objects" / f"{days:02}" / "key" / f"{days}.o"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 1000)
        used = time.time() - days * 86400
        os.utime(path, (used, used))
    return root


def objects(cache: Path) -> list[str]:
    return sorted(path.stem for path in cache.rglob("*.o"))


def test_show(tk: Tk, cache: Path) -> None:
    env = {"TK_CACHE_DIR": str(cache), "TK_CACHE_SIZE": "5 GB"}
    shown = tk("cache", env=env)
    assert shown.out.splitlines() == [
        str(cache),
        "kind     entries  size",
        "objects        3  3.0 kB",
        "total          3  3.0 kB",
        "limit 5.0 GB (TK_CACHE_SIZE)",
    ]
    assert tk("cache", "--json", env=env).json == {
        "path": str(cache),
        "limit_bytes": 5 * 10**9,
        "kinds": [{"kind": "objects", "entries": 3, "bytes": 3000}],
        "entries": 3,
        "bytes": 3000,
    }


def test_prune_and_clear(tk: Tk, cache: Path) -> None:
    env = {"TK_CACHE_DIR": str(cache)}
    tried = tk("cache", "prune", "--older-than", "30d", "--dry-run", env=env)
    assert tried.out == "would remove 1 entry, 1.0 kB\nleft 2 entries, 2.0 kB\n"
    assert objects(cache) == ["0", "1", "60"]
    assert tk("cache", "prune", env=env).out.startswith("removed 0 entries")
    assert tk("cache", "prune", "--older-than", "30d", "--json", env=env).json["removed_entries"] == 1
    assert objects(cache) == ["0", "1"]
    assert tk("cache", "prune", "--max-size", "1k", env=env).code == 0
    assert objects(cache) == ["0"]
    assert tk("cache", "clear", env=env).out == "removed 1 entry, 1.0 kB\nleft 0 entries, 0 B\n"
    assert objects(cache) == []


@pytest.mark.parametrize(
    ("arguments", "env", "message"),
    [
        (("prune", "--older-than", "a while"), {}, "`a while` is no time"),
        (("prune", "--max-size", "big"), {}, "`big` is no size"),
        ((), {"TK_CACHE_SIZE": "huge"}, "TK_CACHE_SIZE is no size"),
        (("purge",), {}, "no such command"),
    ],
)
def test_what_cannot_be_read(tk: Tk, arguments: tuple[str, ...], env: dict[str, str], message: str) -> None:
    result = tk("cache", *arguments, env=env)
    assert result.code == 2
    assert message in result.err
    assert "hint: " in result.err
