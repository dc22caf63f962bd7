"""Waiting for an engine: as long as it lives, and not for one that hangs."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Iterator

import pytest

from compiler import HostError
from toolchain.engine.endpoint import Endpoint
from toolchain.engine.watch import Ask, HungError, Patience, Watch, WorkLostError, awaited, followed

SHORT = Patience(quiet=0.2, ask=0.2, tries=3)
ENDPOINT = Endpoint("unix:///run/e.sock", "a test")


def watch(ask: Ask) -> Watch:
    return Watch(ENDPOINT, "build x", SHORT, ask)


def no_answer(_seconds: float) -> None:
    raise TimeoutError


def silent() -> Iterator[int]:
    yield 1
    threading.Event().wait(30)


def test_all_parts_in_their_order() -> None:
    assert list(followed(lambda: iter(range(1000)), watch(no_answer))) == list(range(1000))


def test_errors_are_raised_where_it_is_followed() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ConnectionResetError(104, "reset")

    parts = followed(broken, watch(no_answer))
    assert next(parts) == 1
    with pytest.raises(ConnectionResetError):
        next(parts)


def test_silence_of_a_live_engine_is_waited_for() -> None:
    asked = []

    def slow() -> Iterator[int]:
        time.sleep(1.5)
        yield 1

    assert list(followed(slow, watch(asked.append))) == [1]
    assert 3 <= len(asked) <= 7
    assert set(asked) == {SHORT.ask}


def test_one_that_hangs_is_given_up() -> None:
    began = time.monotonic()
    with pytest.raises(HungError) as caught:
        list(followed(silent, watch(no_answer)))
    assert 0.8 <= time.monotonic() - began < 3  # once quiet, then three questions
    assert caught.value.code == 4
    [line] = caught.value.lines()
    assert re.match(
        r"error: cannot build x: nothing has come for \d s, and the engine at unix:///run/e.sock", line
    )
    assert "does not answer within 0.2 s (asked 3 times); restart it" in line


def test_one_that_refuses_at_once_is_given_the_same_time() -> None:
    def refuse(_seconds: float) -> None:
        raise ConnectionRefusedError(111, "refused")

    began = time.monotonic()
    with pytest.raises(HungError, match="no container engine answers"):
        list(followed(silent, watch(refuse)))
    assert time.monotonic() - began >= 0.8


def test_one_that_answers_again_is_waited_for() -> None:
    answers = iter([False, False, True] * 2)
    asked = 0

    def ask(_seconds: float) -> None:
        nonlocal asked
        asked += 1
        if not next(answers):
            raise TimeoutError

    def slow() -> Iterator[int]:
        until = time.monotonic() + 10
        while asked < 6 and time.monotonic() < until:
            time.sleep(0.05)
        yield 1

    assert list(followed(slow, watch(ask))) == [1]
    assert asked == 6


def test_a_question_that_never_returns_counts_as_no_answer() -> None:
    with pytest.raises(HungError, match="asked 3 times"):
        list(followed(silent, watch(lambda _seconds: time.sleep(30))))


def test_work_that_has_ended_unheard() -> None:
    def ask(_seconds: float) -> None:
        raise WorkLostError("the container x has ended without a word on its connection")

    with pytest.raises(
        HostError, match=r"the container x has ended .*\(asked 3 times\); run the command again"
    ):
        list(followed(silent, watch(ask)))


def test_who_reads_slowly_slows_the_writer_down() -> None:
    written = 0

    def many() -> Iterator[int]:
        nonlocal written
        while written < 10_000:
            written += 1
            yield written

    parts = followed(many, watch(no_answer))
    next(parts)
    time.sleep(0.3)
    assert written < 200
    assert list(parts) == list(range(2, 10_001))


def test_the_reader_ends_with_who_follows() -> None:
    gone: queue.SimpleQueue[None] = queue.SimpleQueue()

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            gone.put(None)

    parts = followed(endless, watch(no_answer))
    next(parts)
    parts.close()  # type: ignore[attr-defined]
    gone.get(timeout=5)


def test_one_answer() -> None:
    assert awaited(lambda: 42, watch(no_answer)) == 42
    with pytest.raises(HungError):
        awaited(lambda: time.sleep(30), watch(no_answer))
