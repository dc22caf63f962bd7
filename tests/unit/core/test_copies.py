"""Calls in copies of this process: results in order, errors as they were raised, no copy that outlives us."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from compiler.core.copies import in_copies
from compiler.core.diagnostics import BadInputError, HostError

LIMIT_SECONDS = 20.0


def test_results_in_order() -> None:
    here, there = os.pipe()

    def call(number: int) -> tuple[int, int]:
        if number == 0:
            os.read(here, 1)  # until another has made the next
        elif number == 1:
            os.write(there, b".")
        return number, os.getpid()

    with in_copies(call, 6, 2) as results:
        numbers, processes = zip(*results, strict=True)
    os.close(here)
    os.close(there)
    assert numbers == (0, 1, 2, 3, 4, 5)
    assert os.getpid() not in processes
    assert len(set(processes)) == 2


@pytest.mark.parametrize("copies", [0, 1])
def test_too_few_to_copy(copies: int) -> None:
    called = list[int]()
    with in_copies(called.append, 3, copies) as results:
        next(results)
        assert called == [0]  # when it is asked for


@pytest.mark.parametrize("copies", [1, 2])
def test_an_error(copies: int) -> None:
    def call(number: int) -> int:
        if number == 1:
            raise BadInputError("refused", where="there", why="because", hint="do")
        return number

    with pytest.raises(BadInputError) as caught, in_copies(call, 3, copies) as results:
        list(results)
    assert caught.value.fields() == (
        ("what", "refused"),
        ("where", "there"),
        ("why", "because"),
        ("hint", "do"),
    )


def test_a_system_that_gives_no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(errno.EAGAIN, "not now")

    monkeypatch.setattr(os, "fork", refuse)
    with in_copies(lambda number: (number, os.getpid()), 3, 2) as results:
        assert list(results) == [(number, os.getpid()) for number in range(3)]


def test_what_cannot_be_sent_is_an_error() -> None:
    with in_copies(lambda _: threading.Lock(), 2, 2) as results, pytest.raises(TypeError) as caught:
        next(results)
    assert "in _answer" in "".join(caught.value.__notes__), "where that was"


@pytest.mark.parametrize("taken", [1, 20])
def test_large_results_on_their_way_at_the_end(taken: int) -> None:
    """A copy that ends in the middle of a result keeps nobody waiting."""
    for _ in range(20):
        with in_copies(lambda _: b"x" * 200_000, 20, 2) as results:
            assert [len(one) for one in itertools.islice(results, taken)] == [200_000] * taken


def test_a_copy_that_somebody_ends() -> None:
    with pytest.raises(HostError, match="was ended") as caught, in_copies(_end_own, 3, 2) as results:
        list(results)
    assert all(text for _, text in caught.value.fields()), "what, where, why and what to do"


def _end_own(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Numbers:
    """Process ids that copies have written down: they are busy from then on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def busy(self, number: int) -> None:
        (self.folder / str(os.getpid())).touch()
        if number < 2:
            time.sleep(10 * LIMIT_SECONDS)

    def begun(self) -> list[int]:
        end = time.monotonic() + LIMIT_SECONDS
        while len(found := list(self.folder.iterdir())) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return [int(one.name) for one in found]

    @staticmethod
    def are_gone(processes: list[int]) -> bool:
        end = time.monotonic() + LIMIT_SECONDS
        while any(Path(f"/proc/{one}/exe").exists() for one in processes) and time.monotonic() < end:
            time.sleep(0.01)
        return not any(Path(f"/proc/{one}/exe").exists() for one in processes)


def test_copies_end_with_the_context(tmp_path: Path) -> None:
    numbers, begun = Numbers(tmp_path), list[int]()
    started = time.monotonic()
    with contextlib.suppress(KeyboardInterrupt), in_copies(numbers.busy, 4, 2):
        begun += numbers.begun()
        raise KeyboardInterrupt
    assert time.monotonic() - started < LIMIT_SECONDS
    assert len(begun) == 2
    assert numbers.are_gone(begun)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_copies_end_with_their_original(tmp_path: Path, number: int) -> None:
    numbers = Numbers(tmp_path)
    original = os.fork()
    if original == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            with in_copies(numbers.busy, 4, 2) as results:
                list(results)
        finally:
            os._exit(1)
    begun = numbers.begun()
    os.kill(original, number)
    os.waitpid(original, 0)
    assert len(begun) == 2
    assert numbers.are_gone(begun)


def test_an_interrupt_is_not_for_copies(tmp_path: Path) -> None:
    def call(_: int) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "went on"

    with in_copies(call, 2, 2) as results:
        assert list(results) == ["went on"] * 2
