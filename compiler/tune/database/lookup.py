"""What databases know of a workload: a hit, a near hit and in what it differs, or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from compiler.core.cache import ContentCache, content_key
from compiler.core.diagnostics import TkError
from compiler.core.settings import Settings
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.stages.tuned import Decisions, Tuned
from compiler.stages.workload import Workload
from compiler.targets import Target
from compiler.tune.candidate import RejectedError, make_candidate
from compiler.tune.database.errors import unused
from compiler.tune.database.rows import decisions_text
from compiler.tune.database.store import Database
from compiler.tune.environment import differences
from compiler.tune.record import Environment, Record

PROGRAM = "program"
"""In what a near hit differs where the rules of today make another kernel of its decisions."""
_CHECKED = 8
"""Of so many records, the nearest ones, the program is made to see whether it is still the same."""


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of a workload: the record that is nearest, and in what its environment differs.

    A hit differs in nothing; with `program` among the differences another kernel comes of its decisions.
    """

    record: Record | None = None
    differs: tuple[str, ...] = ()

    @property
    def kind(self) -> Literal["hit", "near", "miss"]:
        if self.record is None:
            return "miss"
        return "near" if self.differs else "hit"


@dataclass
class Lookup:
    """Finds records for one target and environment in several databases, as if they were one.

    trust: whether a near hit is compiled with. found: all that was asked for, by workload. troubles: of
    databases that cannot be read, which are left out.
    """

    paths: tuple[Path, ...]
    target: Target
    settings: Settings
    environment: Environment
    trust: bool = False
    found: dict[Workload, Found] = field(default_factory=dict)
    troubles: dict[Path, str] = field(default_factory=dict)
    _opened: dict[Path, Database] = field(default_factory=dict)

    def __call__(self, workload: Workload) -> Tuned:
        """What a compile is to do: the decisions of a hit, and of a near hit where those are trusted."""
        if workload not in self.found:
            self.found[workload] = self.find(workload)
        found = self.found[workload]
        if found.record is None or found.record.is_default or (found.differs and not self.trust):
            return Tuned()
        return Tuned(found.record.decisions, found.record.id)

    def find(self, workload: Workload) -> Found:
        """The nearest record of a workload."""

        def fastest(database: Database) -> list[Record]:
            return database.bests(workload.key)

        bests = {one.id: one for path in self.paths for one in self._asked(path, fastest)}
        if not bests:
            return Found()
        near = [Found(one, differences(self.environment, one.environment)) for one in bests.values()]
        checked = [self._checked(workload, one) for one in sorted(near, key=_distance)[:_CHECKED]]
        return min(checked, key=_distance)

    @property
    def near_hits(self) -> list[Found]:
        """What was found so far and differs."""
        return [one for one in self.found.values() if one.kind == "near"]

    def tried(self, workload: Workload) -> Iterator[Record]:
        """All records of a workload, failures too."""
        found = (self._asked(path, lambda database: database.tried(workload.key)) for path in self.paths)
        yield from {one.id: one for records in found for one in records}.values()

    def warnings(self) -> Iterator[str]:
        """Why databases are left out."""
        for path, why in self.troubles.items():
            yield unused(path, why)

    def _asked(self, path: Path, question: Callable[[Database], list[Record]]) -> list[Record]:
        if path in self.troubles:
            return []
        try:
            if path not in self._opened:
                self._opened[path] = Database.read(path)
            return question(self._opened[path])
        except TkError as error:
            self.troubles[path] = error.why or error.what
            return []

    def _checked(self, workload: Workload, found: Found) -> Found:
        """The same; of an environment like ours only if its decisions still make what was measured."""
        record = found.record
        if record is None or found.differs or record.environment.tk == self.environment.tk:
            return found
        return found if self._makes(workload, record) else Found(record, (PROGRAM,))

    def _makes(self, workload: Workload, record: Record) -> bool:
        """Whether our rules make the program of a record out of its decisions."""
        made = made_program(workload, record.decisions, self.target, self.environment, self.settings)
        return made == record.program


def made_program(
    workload: Workload, decisions: Decisions, target: Target, environment: Environment, settings: Settings
) -> str:
    """The digest of the program that our rules make of decisions, empty for none; kept in the cache."""

    def make() -> bytes:
        chooser = ReplayChooser(decisions, AnalyticChooser())
        try:
            return make_candidate(workload, target, chooser).program.encode()
        except RejectedError:
            return b""

    rules = json.dumps([environment.tk, environment.flags, target.text])
    key = content_key("candidate", rules, workload.to_json(), decisions_text(decisions))
    return ContentCache(settings.cache_dir / "candidates").made(key, make).read_bytes().decode()


def _distance(found: Found) -> tuple[int, float, str]:
    assert found.record is not None
    return len(found.differs), found.record.measured.median, found.record.id
