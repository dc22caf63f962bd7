"""P12: a loss of power never has wrong bytes served, and what was acknowledged is there."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from compiler.core import disk
from compiler.core.cache import ContentCache
from compiler.core.diagnostics import HostError
from compiler.core.disk import DiskCall
from compiler.core.files import sha256_file
from compiler.stages.finished import FinishedLibraries
from tests.promises.commands import read_log
from tests.promises.crash_states import CrashDisk
from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import Bench, shop
from tests.support.disk_faults import DiskLog
from tests.support.records import trial
from toolchain.records.store import RecordStore

_STATES = 2400
_RECOVERIES, _STATES_OF_EACH = 20, 30
_COMPILED_AGAIN = 60  # of so many states one is given to a compile


@dataclass(frozen=True, slots=True)
class History:
    """What was done to a folder: its state before, the calls, and what it may hold afterwards.

    before: a folder as it was when the first call was made, which itself was at `at`. acknowledged: after how
    many calls the command had ended, so that its result is there for sure.
    """

    before: Path
    at: Path
    calls: tuple[DiskCall, ...]
    digests: frozenset[str]
    acknowledged: Mapping[int, str]


@cache
def _held() -> Path:
    held = tempfile.mkdtemp(prefix="promise-power-")
    atexit.register(shutil.rmtree, held, ignore_errors=True)
    return Path(held)


@cache
def compiled() -> History:
    """A compile of the new model over the old library, and one that finds it in the cache."""
    bench = Bench.at(_held() / "compiled", shop())
    before = _copied(bench.root, "compiled-before")
    calls, acknowledged = list[DiskCall](), dict[int, str]()
    for _ in range(2):
        ended = bench.tk(bench.compile_new, log=bench.root / "state" / "log")
        if ended.code != 0:
            raise RuntimeError(ended.short)
        calls += read_log(bench.root / "state" / "log")
        acknowledged[len(calls)] = "new"
    return History(before, bench.root, tuple(calls), _digests(bench.root), acknowledged)


@cache
def recovered(seed: int) -> History:
    """A compile after a loss of power during `compiled`: what it does is interrupted by another one."""
    first = compiled()
    drawn = random.Random(seed)
    root = _held() / f"recovered-{seed}-{os.getpid()}"
    made = CrashDisk.of(first.at, first.before)
    made.play(first.calls[: drawn.randrange(len(first.calls))])
    made.crash(root, drawn)
    _folders(root)
    before = _copied(root, f"{root.name}-before")
    bench = Bench(root, shop())
    ended = bench.tk(bench.compile_new, log=root / "state" / "log")
    if ended.code != 0:
        raise RuntimeError(ended.short)
    calls = read_log(root / "state" / "log")
    return History(before, root, tuple(calls), first.digests | _digests(root), {len(calls): "new"})


@cache
def noted() -> History:
    """Records that are added, each acknowledged when `append` returns."""
    root = _held() / "noted"
    root.mkdir()
    before = _copied(root, "noted-before")
    log, acknowledged = DiskLog(), dict[int, str]()
    store = RecordStore(root / "records")
    with disk.hooked(log):
        for number in range(4):
            made = trial("one", "here", id=f"20260102T030405{number:06}-0000000{number}")
            store.append(made)
            acknowledged[len(log.calls)] = made.id
    return History(before, root, tuple(log.calls), frozenset(), acknowledged)


def _copied(root: Path, name: str) -> Path:
    return Path(shutil.copytree(root, _held() / name))


def _folders(root: Path) -> None:
    for name in ("out", "tmp", "state", "data", "cache"):
        (root / name).mkdir(exist_ok=True)


def _digests(root: Path) -> frozenset[str]:
    return frozenset(sha256_file(path) for path in (root / "cache").rglob("*") if path.is_file())


def _crashed(history: History, seed: str, root: Path) -> tuple[random.Random, int]:
    """Make a state as a folder; after how many calls the power was lost."""
    drawn = random.Random(seed)
    count = drawn.randrange(len(history.calls) + 1)
    made = CrashDisk.of(history.at, history.before)
    made.play(history.calls[:count])
    made.crash(root, drawn)
    _folders(root)
    return drawn, count


def _of_a_compile(history: History, seed: str, root: Path) -> Ended:
    """Everything that a reader can be handed is whole."""
    drawn, count = _crashed(history, seed, root / "bench")
    bench = Bench(root / "bench", shop())
    sure = [name for after, name in history.acknowledged.items() if after <= count]
    allowed = ("new",) if sure else ("old", "new")
    if bench.found() not in allowed:
        return Ended("wrong", f"the library is {bench.found()} after {count} calls")
    served = _served(bench, root / "taken")
    if strange := served - history.digests:
        return Ended("wrong", f"the cache serves {strange}")
    how = "acknowledged, and there" if sure else f"the {bench.found()} library"
    if drawn.randrange(_COMPILED_AGAIN):
        return Ended(how)
    ended = bench.tk(bench.compile_new)
    if ended.code != 0 or bench.found() != "new":
        return Ended("stuck", f"compiled again: {ended.short}, library {bench.found()}")
    return Ended("compiled again after the loss")


def _served(bench: Bench, taken: Path) -> set[str]:
    """Digests of all that the cache hands out."""
    found = set()
    cache_folder = bench.root / "cache"
    libraries = FinishedLibraries(cache_folder / "libraries", 1 << 40)
    for path in (cache_folder / "libraries").glob("*.json"):
        kept = libraries.find(path.stem)
        if kept is not None and libraries.take(kept, taken):
            found.add(sha256_file(taken))
    objects = ContentCache(cache_folder / "objects")
    for folder in (cache_folder / "objects").glob("*/*"):
        entry = objects.get(folder.name, ".o")
        if entry is not None:
            found.add(sha256_file(entry))
    return found


def _of_records(seed: str, root: Path) -> Ended:
    """Each record that was acknowledged is read, and none is broken."""
    history = noted()
    _, count = _crashed(history, seed, root / "bench")
    store = RecordStore(root / "bench" / "records")
    read = {one.id for one in store.read()} if store.directory.exists() else set()
    lost = {name for after, name in history.acknowledged.items() if after <= count} - read
    if lost or store.broken:
        return Ended("lost", f"after {count} calls: lost {sorted(lost)}, broken {list(store.broken)}")
    try:
        store.append(trial("one", "here", id="20260102T030405999999-ffffffff"))
    except HostError as error:
        return Ended("stuck", str(error))
    return Ended(f"{len(read)} records read")


def cases(drawn: random.Random) -> Iterator[Case]:
    """States after compiles, after compiles that followed a loss of power, and after records."""
    seed = drawn.randrange(1 << 30)
    compiled()
    noted()
    for number in range(_STATES):
        name = f"{seed}-{number}"
        yield Case(f"compile, state {number}", lambda root, name=name: _of_a_compile(compiled(), name, root))
    for recovery in range(_RECOVERIES):
        for number in range(_STATES_OF_EACH):
            name = f"{seed}-{recovery}-{number}"
            again = partial(_recovery, seed + recovery, name)
            yield Case(f"recovery {recovery}, state {number}", again)
    for number in range(200):
        yield Case(f"records, state {number}", partial(_of_records, f"{seed}-{number}"))


def _recovery(seed: int, name: str, root: Path) -> Ended:
    ended = _of_a_compile(recovered(seed), name, root)
    return Ended(f"second loss: {ended.how}", ended.fault)


PROMISE = Promise(
    name="P12",
    promised="a loss of power never has wrong bytes served, and loses nothing that was acknowledged",
    trials="states of a disk after a loss of power",
    criterion="the library is the old or the new one, the new one if the compile had ended; all that the "
    "cache hands out is whole; each acknowledged record is read; what is compiled then is right",
    least=3000,
    share=0.004,
    cases=cases,
)
