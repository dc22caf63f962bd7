"""P18: what was changed in the cache is found before any of it runs."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from compiler.core import disk
from compiler.core.cache import ContentCache
from compiler.core.disk import DiskCall
from compiler.stages.finished import FinishedLibraries
from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import Bench, shop

_LIBRARY_FLIPS, _OBJECT_FLIPS, _SWAPS = 700, 300, 50
_NO_LIMIT = 1 << 40
_HELD = ExitStack()
"""As long as a process of a trial lasts."""


def _only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def _flip(path: Path, at: int, bits: int) -> None:
    """Change one byte of a file, which becomes one of its own."""
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= bits
    path.unlink()
    path.write_bytes(data)


def _record(at: int, bits: int, root: Path) -> Ended:
    """A record says which library is handed out: another byte, and it says nothing."""
    libraries = Path(shutil.copytree(shop().root / "cache" / "libraries", root / "libraries"))
    kept = FinishedLibraries(libraries, _NO_LIMIT)
    record = _only(libraries, "*.json")
    before = kept.find(record.stem)
    _flip(record, at, bits)
    found = kept.find(record.stem)
    if found is None:
        return Ended("a record that is none")
    return Ended("the same record") if found == before else Ended("believed", f"{found}")


def _library(at: int, bits: int, root: Path) -> Ended:
    """A library is copied and checked in one step."""
    libraries = Path(shutil.copytree(shop().root / "cache" / "libraries", root / "libraries"))
    kept = FinishedLibraries(libraries, _NO_LIMIT)
    found = kept.find(_only(libraries, "*.json").stem)
    _flip(_only(libraries, "*.so"), at, bits)
    if found is None or kept.take(found, root / "taken") or (root / "taken").exists():
        return Ended("handed out", "a library with another byte")
    gone = not list(libraries.glob("*.so"))
    return Ended("a library refused and removed" if gone else "refused", "" if gone else "it stays")


def _object(number: int, at: int, bits: int, root: Path) -> Ended:
    """Objects are checked when they are read."""
    source = sorted((shop().root / "cache" / "objects").rglob("*.o"))
    path = source[number % len(source)]
    copy = root / path.relative_to(shop().root / "cache")
    copy.parent.mkdir(parents=True)
    shutil.copy(path, copy)
    _flip(copy, at, bits)
    found = ContentCache(root / "objects").get(copy.parent.name, ".o")
    return Ended("handed out", str(found)) if found else Ended("an object refused and removed")


@dataclass(frozen=True, slots=True)
class Swap:
    """Puts other bytes in place of an object or a library in the cache at the n-th change of a compile."""

    folder: Path
    number: int
    at: float

    def __call__(self) -> None:
        """Begin; called in the process of the compile, which it lasts as long as."""
        seen = 0

        def hook(_call: DiskCall) -> None:
            nonlocal seen
            seen += 1
            if seen == self.number:
                self.swap()

        _HELD.enter_context(disk.hooked(hook))

    def swap(self) -> None:
        """Do it."""
        entries = [path for path in sorted(self.folder.rglob("*")) if path.suffix in (".o", ".so")]
        path = entries[int(self.at * len(entries))]
        _flip(path, path.stat().st_size // 2, 255)


def _swapped(number: int, at: float, root: Path) -> Ended:
    """Between the look at an entry and its use somebody puts something else there."""
    bench = Bench.at(root / "bench", shop())
    swap = Swap(bench.root / "cache", number, at)
    ended = bench.tk(bench.compile_new, replace(shop().remembering, prepare=swap))
    if not ended.is_clean:
        return Ended("not clean", ended.short)
    if bench.found() != ("new" if ended.code == 0 else "old"):
        return Ended("used", f"the library is {bench.found()} after {ended.short}")
    again = bench.tk(bench.compile_new)
    if again.code != 0 or bench.found() != "new":
        return Ended("stuck", f"{again.short}; the library is {bench.found()}")
    return Ended("swapped, and not used" if ended.code == 0 else "swapped, and refused")


def cases(drawn: random.Random) -> Iterator[Case]:
    """Every byte of a record; bytes of libraries and objects; swaps while a compile runs."""
    size = _only(shop().root / "cache" / "libraries", "*.json").stat().st_size

    def flip(trial: Callable[..., Ended], *place: int) -> Callable[[Path], Ended]:
        return partial(trial, *place, drawn.randrange(1, 256))

    for at in range(size):
        yield Case(f"record, byte {at}", flip(_record, at))
    for number in range(_LIBRARY_FLIPS):
        yield Case(f"library {number}", flip(_library, drawn.randrange(1 << 30)))
    for number in range(_OBJECT_FLIPS):
        yield Case(f"object {number}", flip(_object, drawn.randrange(99), drawn.randrange(1 << 30)))
    for number in range(_SWAPS):
        yield Case(f"swap {number}", partial(_swapped, 1 + number, drawn.random()))


PROMISE = Promise(
    name="P18",
    promised="what was changed in the cache is found before any of it runs",
    trials="changed records, libraries and objects, and swaps while a compile runs",
    criterion="nothing with another byte is handed out or linked; a compile makes the right library, or "
    "refuses and leaves the old one",
    least=1050,
    share=0.01,
    cases=cases,
)
