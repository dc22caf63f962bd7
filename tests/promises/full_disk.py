"""P13: a full disk is an error that says so; the old result is whole, and nothing stays behind."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn

from tests.promises.commands import Conditions, own_forkserver
from tests.promises.promise import Case, Ended, Promise
from tests.promises.shop import Bench, Shop, shop
from tests.support import command
from tests.support.own_disk import own_disk

_LEVELS, _DISK_BYTES = 64, 4 << 20
_MOST_BYTES = {"compile": 640 << 10, "package": 256 << 10, "zoo": 48 << 10}
_LIMITS = 32
_MESSAGE = re.compile(r"(/[^\s:]+).*\b[\d,]+ bytes", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Task:
    """A trial in a process of its own: `command` is done with `free` bytes on a disk, or files of `limit`."""

    command: str
    root: Path
    free: int | None
    limit: int | None
    shop: Shop


def _attempt(task: Task) -> dict[str, Any]:
    """Do the command, look at what is there, make room, and do it again."""
    if task.free is not None:
        task.root.mkdir()
        own_disk(task.root, _DISK_BYTES)
    bench = Bench.at(task.root / "bench", task.shop)
    if task.free is not None:
        _fill(task.root, task.free)
    words = _words(task.command, bench)
    code, said = _forked_tk(words, bench, task.shop.remembering, task.limit)
    found = {
        "code": code,
        "said": said,
        "library": bench.found(),
        "litter": bench.litter(),
    }
    (task.root / "filling").unlink(missing_ok=True)
    again, said_again = _forked_tk(words, bench, task.shop.remembering, None)
    return found | {
        "again": again,
        "said again": said_again,
        "at last": bench.found(),
        "left": bench.litter(),
    }


def _words(name: str, bench: Bench) -> list[object]:
    package = bench.root / "out" / "package.tar"
    return {
        "compile": bench.compile_new,
        "package": ["package", bench.output, "-o", package, "--format", "tar"],
        "zoo": ["zoo", "make", "mnist", "-o", bench.root / "out" / "zoo.onnx"],
    }[name]


def _fill(root: Path, free: int) -> None:
    facts = os.statvfs(root)
    size = facts.f_bavail * facts.f_frsize - free
    with (root / "filling").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(size, 1))


def _forked_tk(
    words: list[object], bench: Bench, conditions: Conditions, limit: int | None
) -> tuple[int, str]:
    """Run `tk` in a copy of this process, whose output goes to memory."""
    out = os.memfd_create("out")
    child = os.fork()
    if child == 0:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        files = [Path("/dev/null"), *[Path(f"/proc/self/fd/{out}")] * 2]
        code = 70
        try:
            tempfile.tempdir = None
            with conditions.hold():
                env = command.environment(bench.environment)
                command._forked(list(map(str, words)), bench.root / "out", env, files)
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    with os.fdopen(out, "rb") as stream:
        stream.seek(0)
        return os.waitstatus_to_exitcode(status), stream.read().decode(errors="replace")


def _answer(task: Task, answer: Path) -> None:
    _in_a_copy(lambda: answer.write_text(json.dumps(_attempt(task))))


def _try_disk(folder: Path) -> None:
    _in_a_copy(lambda: own_disk(folder, 1 << 20))


def _in_a_copy(call: Callable[[], object]) -> NoReturn:
    """Make a call in a copy of this process, and end like it.

    onnxruntime starts a thread when it is imported, and a process of several threads gets no user namespace.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call()
            code = 0
        except Exception:  # noqa: BLE001 - there is nobody else to tell
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


@cache
def _why_not() -> str:
    """Why this machine has no disks of one's own; empty where it has."""
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        process = own_forkserver().Process(target=_try_disk, args=(Path(folder),))
        process.start()
        process.join()
        return "" if process.exitcode == 0 else "no user namespace with a tmpfs of its own here"


def _trial(name: str, free: int | None, limit: int | None, root: Path) -> Ended:
    if free is not None and _why_not():
        return Ended(f"not run: {_why_not()}")
    task = Task(name, root / "disk", free, limit, shop())
    if limit is not None:
        task.root.mkdir()
    process = own_forkserver().Process(target=_answer, args=(task, root / "answer"))
    process.start()
    process.join()
    if process.exitcode != 0:
        return Ended("broken", f"the trial itself ended with {process.exitcode}")
    return _judged(name, json.loads((root / "answer").read_text()))


def _judged(name: str, found: Mapping[str, Any]) -> Ended:
    code, said = found["code"], " ".join(found["said"].split())[:500]
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("unclean", lambda: code in (0, 4) and "Traceback" not in said),
        ("says too little", lambda: code == 0 or bool(_MESSAGE.search(found["said"]))),
        ("torn", lambda: found["library"] == ("new" if name == "compile" and code == 0 else "old")),
        ("litter", lambda: not found["litter"]),
        ("stuck", lambda: found["again"] == 0),
        ("wrong", lambda: found["at last"] == ("new" if name == "compile" else "old")),
        ("litter at last", lambda: not found["left"]),
    )
    for how, holds in checks:
        if not holds():
            return Ended(how, f"exit code {code}: {said}; {dict(found) | {'said': ''}}"[:900])
    return Ended(f"{name}: {'done' if code == 0 else 'refused'}")


def cases(drawn: random.Random) -> Iterator[Case]:
    """Levels of free space, with a page more or less, and limits of a file's size."""
    shop()
    for name, most in _MOST_BYTES.items():
        for level in range(_LEVELS):
            free = level * most // _LEVELS + drawn.randrange(4096)
            yield Case(f"{name} with {free} bytes free", partial(_trial, name, free, None))
    for number in range(_LIMITS):
        limit = 2048 + number * (96 << 10) // _LIMITS
        yield Case(f"compile with files of {limit} bytes", partial(_trial, "compile", None, limit))


PROMISE = Promise(
    name="P13",
    promised="a full disk is an error that says so, and nothing else",
    trials="commands on a disk with little space, or with a limit of a file's size",
    criterion="exit code 0, or 4 with a message that names a path and bytes; the old library is whole; no "
    "temporary file stays; the same command succeeds when there is space",
    least=192,
    share=0.01,
    cases=cases,
)
