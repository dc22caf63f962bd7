"""What several processes want is made by one of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from compiler.core import single_flight as module
from compiler.core.cache import ContentCache, content_key
from compiler.core.single_flight import single_flight
from tests.support.command import environment

KEY = content_key("a key")
_OWNER = """
import sys, time
from pathlib import Path
from compiler.core.single_flight import single_flight
with single_flight(Path(sys.argv[1]), sys.argv[2]):
    print("in", flush=True)
    time.sleep(60)
"""


def test_threads_make_it_once(tmp_path: Path) -> None:
    cache, made = ContentCache(tmp_path), list[int]()

    def make() -> bytes:
        made.append(1)
        time.sleep(0.05)
        return b"data"

    threads = [threading.Thread(target=cache.made, args=(KEY, make)) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


def test_other_keys_do_not_wait(tmp_path: Path) -> None:
    with single_flight(tmp_path, KEY) as first, single_flight(tmp_path, content_key("another")) as second:
        assert (first, second) == (False, False)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", _OWNER, str(tmp_path), KEY]
    with subprocess.Popen(argv, env=environment(), stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"in\n"
        killer = threading.Timer(0.2, os.kill, (owner.pid, signal.SIGKILL))
        killer.start()
        with single_flight(tmp_path, KEY) as waited:
            assert waited
    with single_flight(tmp_path, KEY) as waited:
        assert not waited


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONGEST_SECONDS", 0.05)
    with single_flight(tmp_path, KEY), single_flight(tmp_path, KEY) as waited:
        assert waited


def test_where_no_lock_can_be_nothing_waits(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with single_flight(tmp_path / "file", KEY) as waited:
        assert not waited
