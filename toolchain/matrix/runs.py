"""What a run set out to do and how far it has come, as documents beside the records."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from compiler import BadInputError, UsageError, did_you_mean, disk, write_atomic
from toolchain.records.record import Record
from toolchain.records.store import RecordStore, read_record

_FOLDER, _PENDING, _PROGRESS = "runs", "pending", ".progress.json"
LAST, BEFORE = "last", "before"
_PROC = Path("/proc")


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlannedCell(_Document):
    """A trial of a run: its title, and the keys that its record may have."""

    title: str
    keys: tuple[str, ...]


class RunDocument(_Document):
    """What a run set out to do. id: that of its records' field `run`."""

    id: str
    started: AwareDatetime
    title: str = ""
    plan: str = ""
    cells: tuple[PlannedCell, ...]


class RunningStep(_Document):
    """A trial that is being made; since: seconds of the epoch."""

    title: str
    since: float


class RunProgress(_Document):
    """How far a run has come. born: what tells its process from a later one of the same number."""

    pid: int
    born: str
    updated: float
    done: int
    total: int
    seconds_left: float | None = None
    running: tuple[RunningStep, ...] = ()


@dataclass(frozen=True, slots=True)
class RunStore:
    """Documents of runs, and records that are still to be timed, in the folder of a store of records."""

    directory: Path

    def begin(self, run: RunDocument) -> None:
        """Keep what a run sets out to do."""
        write_atomic(self._path(run.id), run.model_dump_json(indent=1) + "\n")

    def tell(self, run: str, progress: RunProgress) -> None:
        """Keep how far it has come."""
        path = self.directory / _FOLDER / f"{run}{_PROGRESS}"
        write_atomic(path, progress.model_dump_json() + "\n")

    def progress(self, run: str) -> RunProgress | None:
        """How far a run has come; None where its process has ended."""
        try:
            path = self.directory / _FOLDER / f"{run}{_PROGRESS}"
            found = RunProgress.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None
        return found if birth(found.pid) == found.born else None

    def ids(self) -> list[str]:
        """All runs, the oldest first."""
        folder = self.directory / _FOLDER
        return sorted(one.stem for one in folder.glob("*.json") if not one.name.endswith(_PROGRESS))

    def read(self, name: str) -> RunDocument:
        """A run by its identifier or the beginning of it, `last`, or `before` for the one before the last.

        Raises UsageError where there is none, BadInputError where its document cannot be read.
        """
        ids = self.ids()
        place = {LAST: 1, BEFORE: 2}.get(name)
        if place is not None and len(ids) >= place:
            return self._read(ids[-place])
        fitting = [one for one in ids if one.startswith(name)]
        if place is not None or len(fitting) != 1:
            hint = did_you_mean(name, ids) or "a run's identifier, the beginning of one, `last` or `before`"
            what = f"no run is called {name!r}" if not fitting else f"{len(fitting)} runs begin with {name!r}"
            raise UsageError(what, where=str(self.directory), hint=hint)
        return self._read(fitting[0])

    def keep_pending(self, record: Record) -> None:
        """Keep a record whose latency is still to be measured."""
        write_atomic(self._pending(record.key), record.model_dump_json() + "\n")

    def pending(self, key: str) -> Record | None:
        """The record of a trial that was checked and not timed; None where there is none."""
        try:
            return read_record(self._pending(key))
        except BadInputError:
            return None

    def drop_pending(self, key: str) -> None:
        """Forget a record that was completed."""
        with contextlib.suppress(OSError):
            disk.remove(self._pending(key))

    def _read(self, run: str) -> RunDocument:
        try:
            return RunDocument.model_validate_json(self._path(run).read_bytes())
        except OSError as error:
            raise BadInputError("a run cannot be read", where=run, why=error.strerror or "") from error
        except ValidationError as error:
            raise BadInputError("not a run's document", where=str(self._path(run))) from error

    def _path(self, run: str) -> Path:
        return self.directory / _FOLDER / f"{run}.json"

    def _pending(self, key: str) -> Path:
        return self.directory / _PENDING / f"{key}.json"


def records_of_run(run: RunDocument, records: Iterable[Record]) -> dict[str, Record]:
    """The record of each trial of a run, by title: its own, else the newest that it found there."""
    by_key: dict[str, list[Record]] = {}
    for one in records:
        by_key.setdefault(one.key, []).append(one)
    found = {}
    for cell in run.cells:
        known = sorted((one for key in cell.keys for one in by_key.get(key, ())), key=lambda one: one.id)
        own = [one for one in known if one.run == run.id]
        earlier = [one for one in known if one.id < run.id]
        if own or earlier:
            found[cell.title] = (own or earlier)[-1]
    return found


def records_named(name: str, store: RecordStore) -> Sequence[Record]:
    """The records of a run of this store, or all of the store in a folder; raises as `RunStore.read`."""
    folder = Path(name)
    if folder.is_dir():
        return RecordStore(folder).read()
    run = RunStore(store.directory).read(name)
    return list(records_of_run(run, store.read()).values())


def birth(pid: int, proc: Path = _PROC) -> str:
    """When a process began, in ticks since the machine did (proc(5), stat); empty where there is none."""
    try:
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


class ProgressFile:
    """Keeps how far a run has come up to date; called by one thread."""

    def __init__(self, store: RunStore, run: str, total: int) -> None:
        self._store, self._run, self._total = store, run, total
        self._running: dict[str, float] = {}

    def began(self, title: str) -> None:
        """A trial began."""
        self._running[title] = time.time()

    def ended(self, title: str) -> None:
        """A trial ended."""
        self._running.pop(title, None)

    def tell(self, done: int, seconds_left: float | None) -> None:
        """Write down how far it has come."""
        running = tuple(RunningStep(title=title, since=since) for title, since in self._running.items())
        own = os.getpid()
        progress = RunProgress(
            pid=own,
            born=birth(own),
            updated=time.time(),
            done=done,
            total=self._total,
            seconds_left=seconds_left,
            running=running,
        )
        self._store.tell(self._run, progress)


def expected_seconds(titles: Mapping[str, str], records: Iterable[Record]) -> dict[str, float]:
    """How long trials may take, by title; by the newest record of each, else of its target, else of all.

    titles: the target of each. Empty where nothing was ever tried.
    """
    seconds = {one.key: (one.place.target, sum(one.seconds.values())) for one in records if one.seconds}
    if not seconds:
        return {}
    of_target: dict[str, list[float]] = {}
    for target, one in seconds.values():
        of_target.setdefault(target, []).append(one)
    everywhere = [one for _, one in seconds.values()]
    mean = {target: sum(all_of) / len(all_of) for target, all_of in of_target.items()}
    whole = sum(everywhere) / len(everywhere)
    return {title: mean.get(target, whole) for title, target in titles.items()}


def dump(value: BaseModel) -> object:
    """A document for `--json`."""
    return json.loads(value.model_dump_json())
