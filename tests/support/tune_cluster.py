"""A cluster of this machine for searches: its scheduler and workers as programs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.command import environment

PATIENCE = 180.0
TK = ("-m", "toolchain")


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def until(holds: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something holds; fails where that takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.05)


class Program:
    """One program with a log; `words` are its arguments for Python."""

    def __init__(self, folder: Path, name: str, words: Sequence[object]) -> None:
        self.log = folder / f"{name}.log"
        self.argv = [sys.executable, *map(str, words)]
        self.folder = folder
        self.start()

    def start(self) -> None:
        """Begin, also again after its end."""
        with self.log.open("ab") as stream:
            self.process = subprocess.Popen(
                self.argv, cwd=self.folder, env=environment(), stdout=stream, stderr=stream,
                start_new_session=True,
            )  # fmt: skip

    @property
    def text(self) -> str:
        """What it has said."""
        return self.log.read_text()

    def children(self) -> list[int]:
        """The processes of Python that it has started."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        found = [int(one) for task in tasks.iterdir() for one in (task / "children").read_text().split()]
        return [one for one in found if b"python" in Path(f"/proc/{one}/cmdline").read_bytes()]

    def kill(self) -> None:
        """End it as `kill -9` does."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """Ask it to end, and see that it does."""
        with suppress(ProcessLookupError):
            self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def cluster(
    folder: Path, workers: Sequence[Sequence[object]] = ((*TK, "tune", "worker", "--build", 2, "--measure"),)
) -> Iterator[tuple[str, list[Program]]]:
    """The address of a scheduler, and its program with those of workers, which get `--cluster ADDRESS`."""
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    made = [Program(folder, "scheduler", (*TK, "tune", "scheduler", "--port", port))]
    try:
        made += [
            Program(folder, f"worker{number}", (*words, "--cluster", address))
            for number, words in enumerate(workers)
        ]
        until(lambda: address in made[0].text, "the scheduler did not start")
        yield address, made
    finally:
        for one in reversed(made):
            one.end()
