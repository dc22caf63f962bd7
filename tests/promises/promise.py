"""What a promise is: cases that try to break it, how each ends, and the sums that are kept."""

from __future__ import annotations

import fnmatch
import json
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

MODULES = {
    "P5": "renamed",
    "P7": "malformed",
    "P8": "hostile",
    "P9": "paths",
    "P11": "kill",
    "P12": "power",
    "P13": "full_disk",
    "P14": "concurrent",
    "P18": "tampering",
    "P19": "cache_keys",
    "P20": "reproducible",
}
"""Where each promise is, below `tests.promises`: a module with a `PROMISE`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a case ended, in words that many cases share; `fault` says how that breaks the promise."""

    how: str
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One trial; `run` is given an empty folder of its own. The name tells it from all others."""

    name: str
    run: Callable[[Path], Ended]


@dataclass(frozen=True, slots=True)
class Promise:
    """What is promised, and how that is tried.

    name: as `P7`. trials: what one case is, in the plural. criterion: what is no fault. least: cases that all
    of it must have. share: the part of them that the test suite runs. cases: of a seed, always the same.
    """

    name: str
    promised: str
    trials: str
    criterion: str
    least: int
    share: float
    cases: Callable[[random.Random], Iterable[Case]]


@dataclass(frozen=True, slots=True)
class Sums:
    """What came of the cases of a promise: how many ended how, and what broke it, by the case's name."""

    ended: Mapping[str, int]
    faults: Mapping[str, str]
    seconds: float

    @property
    def trials(self) -> int:
        return sum(self.ended.values())


@dataclass(frozen=True, slots=True)
class Selection:
    """Which cases are run: a share of all, drawn by the seed, or those whose name fits a pattern."""

    share: float = 1.0
    seed: int = 0
    only: Sequence[str] = field(default=())

    @property
    def is_all(self) -> bool:
        return self.share == 1 and not self.only

    def of(self, promise: Promise) -> list[Case]:
        """Those of a promise, in its order."""
        cases = list(promise.cases(random.Random(self.seed)))
        if len({case.name for case in cases}) < len(cases):
            raise ValueError(f"{promise.name} has two cases of one name")
        if self.only:
            return [one for one in cases if any(fnmatch.fnmatchcase(one.name, text) for text in self.only)]
        count = min(len(cases), max(1, round(self.share * len(cases))))
        chosen = random.Random(self.seed).sample(range(len(cases)), count)
        return [cases[number] for number in sorted(chosen)]


@dataclass(frozen=True, slots=True)
class KeptEnd:
    """How a case ended, and the seconds between the end of the case before and its own."""

    ended: Ended
    seconds: float


@dataclass(frozen=True, slots=True)
class Kept:
    """Ends of cases in a file, a line each, so that a run that was stopped goes on.

    made_with: what they were made with, the promise and the seed among it; others do not count.
    """

    path: Path
    made_with: str

    def read(self) -> Mapping[str, KeptEnd]:
        """By name of the case; a line that a killed process left half written is ignored."""
        found = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            if line.startswith("[") and line.endswith("]"):
                made_with, name, how, fault, seconds = json.loads(line)
                if made_with == self.made_with:
                    found[name] = KeptEnd(Ended(how, fault), seconds)
        return found

    def add(self, name: str, end: KeptEnd) -> None:
        """Append one."""
        row = (self.made_with, name, end.ended.how, end.ended.fault, end.seconds)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(f"\n{json.dumps(row)}\n")


_left: list[Case] = []
"""What copies of this process run: cases are functions, which cannot be sent to them."""


def promise_of(name: str) -> Promise:
    """The promise of this name."""
    found = import_module(f"tests.promises.{MODULES[name]}").PROMISE
    assert isinstance(found, Promise)
    return found


def try_promise(
    promise: Promise,
    selection: Selection,
    tell: Callable[[str, str], object] | None = None,
    jobs: int = 1,
    kept: Kept | None = None,
) -> Sums:
    """Run cases, `jobs` at a time, but those whose ends are kept.

    tell: hears how far it is, and what was wrong with the last.
    """
    cases = selection.of(promise)
    known = kept.read() if kept is not None else {}
    done = [known[case.name] for case in cases if case.name in known]
    ended = Counter(one.ended.how for one in done)
    faults = {case.name: known[case.name].ended.fault for case in cases if case.name in known}
    left = [case for case in cases if case.name not in known]
    ends = map(_run, left) if jobs == 1 else _run_in_copies(left, jobs)
    seconds, last = sum(one.seconds for one in done), time.monotonic()
    for number, (case, one) in enumerate(zip(left, ends, strict=True), len(done) + 1):
        took, last = time.monotonic() - last, time.monotonic()
        seconds += took
        ended[one.how] += 1
        faults[case.name] = one.fault
        if kept is not None:
            kept.add(case.name, KeptEnd(one, took))
        if tell is not None:
            tell(f"{number} of {len(cases)}", f"{case.name}: {one.fault}" if one.fault else "")
    broken = {name: fault for name, fault in faults.items() if fault}
    return Sums(dict(sorted(ended.items())), broken, seconds)


def _run(case: Case) -> Ended:
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        return case.run(Path(folder))


def _run_in_copies(cases: Sequence[Case], jobs: int) -> Iterator[Ended]:
    """In copies of this process, which have the cases already."""
    _left[:] = cases
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(_run_numbered, range(len(cases)))


def _run_numbered(number: int) -> Ended:
    return _run(_left[number])
