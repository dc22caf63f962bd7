"""P14: processes that compile the same at once end with the same library, and one of them does the work."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import Bench, shop

_ROUNDS, _PROCESSES = 30, 8
_COMPILER_SECONDS = 0.05
_HANGS_SECONDS = 200.0


def _round(killed_after: float | None, root: Path) -> Ended:
    """Eight compiles of one model to one output; where a moment is given, one of them is killed then."""
    bench = Bench.at(root / "bench", shop())
    ran = root / "ran"
    conditions = replace(shop().remembering, ran=ran, slow_seconds=_COMPILER_SECONDS)
    running = [bench.start(bench.compile_new, conditions) for _ in range(_PROCESSES)]
    if killed_after is not None:
        _wait_for(ran)
        time.sleep(killed_after)
        running[0].kill()
    ended = [one.wait(_HANGS_SECONDS) for one in running]
    killed = sum(one.code == -9 for one in ended)
    if killed > 1 or (killed and killed_after is None):
        return Ended("hangs", f"{killed} did not end")
    if failed := [one.short for one in ended if one.code not in (0, -9)]:
        return Ended("failed", failed[0])
    if bench.found() != "new":
        return Ended("wrong", f"the library is {bench.found()}")
    most = Counter(ran.read_text().split()).most_common(1)[0][1]
    if most > 1 + killed:
        return Ended("repeated", f"the compiler ran {most} times for the same, {killed} were killed")
    if bench.litter() and not killed:
        return Ended("litter", f"{bench.litter()}")
    whose = ", its owner too" if most == 2 else ""
    return Ended(f"one killed{whose}" if killed else "all ended")


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + _HANGS_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.002)


def cases(drawn: random.Random) -> Iterator[Case]:
    """In half of the rounds one is killed."""
    shop()
    for number in range(_ROUNDS):
        after = drawn.uniform(0, 0.5) if number % 2 else None
        yield Case(f"round {number}", partial(_round, after))


PROMISE = Promise(
    name="P14",
    promised="processes may compile the same at the same time",
    trials="rounds of eight processes with one model and one output, one killed in half of them",
    criterion="all others end with exit code 0 and the same library; the C++ compiler ran once for each "
    "source, once more where the process that had started it was killed",
    least=30,
    share=0.034,
    cases=cases,
)
