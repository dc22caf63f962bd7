"""P11: a process that is killed, or whose disk fails, leaves old or new, and the next run goes on."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from compiler.core.files import sha256_file
from tests.promises.commands import Conditions, read_log
from tests.promises.commands import Ended as Run
from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import Bench, Shop, shop

_RANDOM_KILLS = 100
_KINDS = ("EIO", "ENOSPC", "EACCES", "SHORT")


@dataclass(frozen=True, slots=True)
class Work:
    """What is interrupted: the arguments of a command, what has to be there before it, and what is looked at.

    is_whole: whether a bench has the old or the new state of what the command makes. step: it is killed at
    each call of the disk, or at each third.
    """

    name: str
    words: Callable[[Bench], list[object]]
    before: Callable[[Bench], object]
    is_whole: Callable[[Bench], bool]
    step: int = 1


def _nothing(_bench: Bench) -> None:
    pass


def _compiled(bench: Bench) -> None:
    ended = bench.tk(bench.compile_new)
    if ended.code != 0:
        raise RuntimeError(ended.short)
    bench.output.unlink()  # the cache may have the same file
    bench.output.write_bytes(bench.shop.library("old"))


def _old_or_new(bench: Bench) -> bool:
    return bench.found() in ("old", "new")


def _package(bench: Bench) -> Path:
    return bench.root / "out" / "package"


def _package_is_whole(bench: Bench) -> bool:
    """Its list of checksums is there, and right; or there is no package."""
    package = _package(bench)
    if not package.exists():
        return True
    sums = [line.split("  ", 1) for line in (package / "SHA256SUMS").read_text().splitlines()]
    return all(sha256_file(package / name) == digest for digest, name in sums)


def _dumping(bench: Bench) -> list[object]:
    return [*bench.compile_new, "--dump", bench.root / "out" / "dump"]


WORKS = (
    Work("compile", lambda bench: bench.compile_new, _nothing, _old_or_new),
    Work("compile what is cached", lambda bench: bench.compile_new, _compiled, _old_or_new),
    Work("compile and dump", _dumping, _nothing, _old_or_new, step=3),
    Work(
        "package",
        lambda bench: ["package", bench.output, "-o", _package(bench), "--format", "dir"],
        _nothing,
        _package_is_whole,
        step=3,
    ),
)


def interrupted(work: Work, root: Path, *faults: tuple[int, str, bool]) -> Ended:
    """Run a command with each of these faults, one after the other, and then without one."""
    bench = Bench.at(root / "bench", shop())
    work.before(bench)
    how = []
    for fault in faults:
        ended = bench.tk(work.words(bench), fault=fault)
        if not (ended.is_clean or (ended.code == -9 and fault[1] == "KILL")):
            return Ended("not clean", ended.short)
        if not work.is_whole(bench):
            return Ended("torn", f"neither old nor new after {ended.short}")
        how.append({0: "done all the same", 4: "refused"}.get(ended.code or 0, "killed"))
    return _goes_on(work, bench, ", ".join(how))


def _goes_on(work: Work, bench: Bench, how: str) -> Ended:
    """The next run, that nothing disturbs."""
    if work.name == "package" and _package(bench).exists():
        how = f"{how}, whole"
    else:
        ended = bench.tk(work.words(bench))
        if ended.code != 0 or not work.is_whole(bench):
            return Ended("stuck", f"{how}; then the next run: {ended.short}")
    if litter := bench.litter():
        return Ended("litter", f"{how}; the next run leaves {litter}")
    if work.name != "package" and bench.found() != "new":
        return Ended("stale", f"{how}; then the library is {bench.found()}")
    return Ended(how)


def killed_at(moment: float, root: Path) -> Ended:
    """Kill a compile at a part of the time that a whole one took; its compilers run."""
    bench = Bench.at(root / "bench", shop())
    work = WORKS[0]
    seconds = _whole_seconds(bench.shop)
    running = bench.start(work.words(bench), Conditions())
    time.sleep(moment * seconds)
    running.kill()
    ended = running.wait()
    if not work.is_whole(bench):
        return Ended("torn", f"neither old nor new after {ended.short}")
    return _goes_on(work, bench, "done before the kill" if ended.code == 0 else "killed at some moment")


_measured: list[float] = []


def _whole_seconds(made: Shop) -> float:
    """Of a compile whose compilers run, measured once."""
    if not _measured:
        with tempfile.TemporaryDirectory(prefix="promise-") as folder:
            bench = Bench.at(Path(folder, "bench"), made)
            started = time.monotonic()
            bench.tk(bench.compile_new, Conditions())
            _measured.append(time.monotonic() - started)
    return _measured[0]


def calls_of(work: Work, root: Path) -> int:
    """How many calls of the disk a command makes."""
    bench = Bench.at(root, shop())
    work.before(bench)
    log = bench.root / "log"
    ended: Run = bench.tk(work.words(bench), log=log)
    if ended.code != 0:
        raise RuntimeError(ended.short)
    return len(read_log(log))


def cases(drawn: random.Random) -> Iterator[Case]:
    """Every call of every command is one to be killed at, and in a compile one that fails."""
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        counts = {work.name: calls_of(work, Path(folder, work.name)) for work in WORKS}
    for work in WORKS:
        for number in range(1, counts[work.name] + 1, work.step):
            yield _case(work, (number, "KILL", False))
    work, count = WORKS[0], counts[WORKS[0].name]
    for number in range(1, count + 1):
        yield _case(work, (number, _KINDS[number % 4], number % 8 >= 4))
    for number in range(1, count + 1, 3):
        yield _case(work, (number, "KILL", False), (drawn.randint(1, count), "KILL", False))
    for number in range(_RANDOM_KILLS):
        moment = drawn.uniform(0.02, 1.1)
        yield Case(f"kill {number}", lambda root, moment=moment: killed_at(moment, root))


def _case(work: Work, *faults: tuple[int, str, bool]) -> Case:
    texts = [f"{kind} at call {number}{' and after' * forever}" for number, kind, forever in faults]
    return Case(f"{work.name}: {', then '.join(texts)}", lambda root: interrupted(work, root, *faults))


PROMISE = Promise(
    name="P11",
    promised="a process that is killed, or whose disk fails, leaves old or new, never half",
    trials="interrupted commands",
    criterion="the result is the old or the new one, byte for byte; an error of the disk ends with exit "
    "code 0 or 4; the next run succeeds without a hand's help and removes what was left",
    least=250,
    share=0.005,
    cases=cases,
)
