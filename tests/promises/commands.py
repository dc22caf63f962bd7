"""`tk` in a process of its own whose disk fails, and whose compilers' answers are remembered.

Most of a small compile's time is its C++ compiler's. Each of its runs is kept by what it was given, so that
the next one with the same is a copy: what `tk` itself does with files stays the same.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from compiler.core import compilers, disk, process
from compiler.core.disk import DiskCall
from compiler.core.process import Completed
from compiler.targets import toolchain as cxx
from tests.support import command
from tests.support.disk_faults import DiskFault

_LIMIT_SECONDS = 300.0
_owner = [os.getpid()]


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended: code as of a process, negative by a signal, None where it hangs."""

    code: int | None
    out: str
    err: str

    @property
    def is_clean(self) -> bool:
        """Whether it succeeded, or said properly that the machine is not fit."""
        return self.code in (0, 4) and "Traceback" not in self.err

    @property
    def short(self) -> str:
        """For people."""
        return f"exit code {self.code}: {' '.join(self.err.split())[:400]}"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Of a command's process.

    memory: where compilers' answers are kept; None: they run. fault: number, kind and `forever` of a
    `DiskFault`. log: where the disk's calls are noted. ran: a file with a line for each run of a compiler,
    remembered or not. slow_seconds: what each of these takes longer. prepare: called first.
    """

    memory: Path | None = None
    fault: tuple[int, str, bool] | None = None
    log: Path | None = None
    ran: Path | None = None
    slow_seconds: float = 0.0
    prepare: Callable[[], object] | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Have them in this process."""
        with ExitStack() as held:
            if self.prepare is not None:
                self.prepare()
            if self.memory is not None:
                remembered = _Remembered(self.memory, self.ran, self.slow_seconds)
                for module in (compilers, cxx):
                    held.callback(setattr, module, "run", process.run)
                    module.run = remembered  # type: ignore[assignment, attr-defined]
            if self.fault is not None:
                held.enter_context(disk.hooked(DiskFault(*self.fault)))
            if self.log is not None:
                self.log.touch()
                held.enter_context(disk.hooked(partial(_note, self.log)))
            yield


@dataclass(frozen=True, slots=True)
class Started:
    """A command that runs."""

    process: BaseProcess
    held: tempfile.TemporaryDirectory[str]

    def kill(self) -> None:
        """As `kill -9` does."""
        self.process.kill()

    def wait(self, seconds: float = _LIMIT_SECONDS) -> Ended:
        """Its end."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join()
        out, err = (Path(self.held.name, name).read_text(errors="replace") for name in ("out", "err"))
        self.held.cleanup()
        return Ended(code, out, err)


def own_forkserver() -> multiprocessing.context.ForkServerContext:
    """That of this process, which may be a copy of one that has another and may have no children."""
    if _owner[0] != os.getpid():
        _owner[0] = os.getpid()
        forkserver._forkserver.__init__()  # type: ignore[attr-defined]
        multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([command.__name__, __name__, *command._IMPORTED])
    return context


def start(args: Sequence[object], cwd: Path, env: Mapping[str, str], conditions: Conditions) -> Started:
    """Start `tk` with these arguments."""
    context = own_forkserver()
    held = tempfile.TemporaryDirectory(prefix="promise-")
    files = [Path(held.name, name) for name in ("in", "out", "err")]
    for path in files:
        path.touch()
    words = [str(arg) for arg in args]
    started = context.Process(target=_run, args=(words, cwd, command.environment(env), files, conditions))
    started.start()
    return Started(started, held)


def tk(
    args: Sequence[object], cwd: Path, env: Mapping[str, str], conditions: Conditions, **fault: Any
) -> Ended:
    """Run `tk` with these arguments."""
    return start(args, cwd, env, replace(conditions, **fault)).wait()


def _run(
    args: list[str], cwd: Path, env: Mapping[str, str], files: Sequence[Path], conditions: Conditions
) -> None:
    tempfile.tempdir = None
    with conditions.hold():
        command._forked(args, cwd, env, files)


def read_log(path: Path) -> list[DiskCall]:
    """The calls that were noted."""
    return [
        DiskCall(name, Path(at), Path(target) if target else None, offset, base64.b64decode(data))
        for name, at, target, offset, data in map(json.loads, path.read_text().splitlines())
    ]


def _note(path: Path, call: DiskCall) -> None:
    """A line of the log, also from a copy of the process."""
    data = base64.b64encode(call.data).decode()
    row = (call.name, str(call.path), str(call.target or ""), call.offset, data)
    with path.open("a") as stream:
        stream.write(f"{json.dumps(row)}\n")


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Stands for `process.run` of compilers: what a run wrote and said is kept by what it was given."""

    folder: Path
    ran: Path | None
    slow_seconds: float

    def __call__(self, argv: Sequence[str], **options: Any) -> Completed:
        place: Path | None = options.get("cwd")
        files = _content(place)
        given = json.dumps([list(argv), repr(options.get("input")), sorted(files.items())])
        known = self.folder / hashlib.sha256(given.encode()).hexdigest()
        if place is not None and self.ran is not None:
            with self.ran.open("a") as stream:
                stream.write(f"{known.name}\n")
        answer = self._answer(known, argv, options, files)
        if place is None:
            return _completed(argv, answer)
        time.sleep(self.slow_seconds)
        try:
            for name, data in answer["made"].items():
                (place / name).write_bytes(base64.b64decode(data))
        except OSError as error:  # as a compiler says it
            said = f"{argv[0]}: fatal error: error writing to {error.filename}: {error.strerror}\n"
            return Completed(tuple(argv), 1, "", said, 0.0)
        return _completed(argv, answer)

    def _answer(
        self, known: Path, argv: Sequence[str], options: Mapping[str, Any], before: Mapping[str, str]
    ) -> dict[str, Any]:
        if not known.exists():
            with known.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not known.exists():
                    done = process.run(argv, **options)
                    after = _content(options.get("cwd"))
                    made = {name: data for name, data in after.items() if name not in before}
                    answer = {"code": done.returncode, "out": done.stdout, "err": done.stderr, "made": made}
                    part = known.with_suffix(f".{os.getpid()}")
                    part.write_text(json.dumps(answer))
                    part.replace(known)
        found: dict[str, Any] = json.loads(known.read_text())
        return found


def _completed(argv: Sequence[str], answer: Mapping[str, Any]) -> Completed:
    return Completed(tuple(argv), answer["code"], answer["out"], answer["err"], 0.0)


def _content(place: Path | None) -> dict[str, str]:
    """The files in a folder, as base64."""
    if place is None:
        return {}
    files = (path for path in place.iterdir() if path.is_file())
    return {path.name: base64.b64encode(path.read_bytes()).decode() for path in files}
