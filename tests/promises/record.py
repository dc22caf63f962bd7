"""The record of a promise that was tried in full, one file each, and the page made of them."""

from __future__ import annotations

import datetime as dt
import json
import os
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from compiler.core.files import write_atomic
from tests.promises.promise import MODULES, Promise, Sums
from toolchain.records.host import processor_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RECORDS = Path(__file__).with_name("records")

_HEAD = """# Reliability

What `tk` promises when models are hostile and machines fail, and what came of trying to break it. Written by
`just promises --write`; do not edit. `just promises P7` tries one of them in full, `bin/just test` a part.

| promise | what is promised | trials | faults |
|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Record:
    """A promise, and what came of all its cases; date: of the run. machine: the processor and its cores."""

    name: str
    promised: str
    trials: str
    criterion: str
    count: int
    ended: Mapping[str, int]
    faults: Sequence[str]
    seconds: int
    date: str
    machine: str

    @classmethod
    def of(cls, promise: Promise, sums: Sums) -> Record:
        """Of a run that has just ended."""
        return cls(
            promise.name,
            promise.promised,
            promise.trials,
            promise.criterion,
            sums.trials,
            sums.ended,
            sorted(sums.faults),
            round(sums.seconds),
            dt.datetime.now(dt.UTC).date().isoformat(),
            f"{processor_name()}, {len(os.sched_getaffinity(0))} cores",
        )


def write_record(record: Record, folder: Path = RECORDS) -> None:
    """Keep a record in place of an older one of the same promise."""
    write_atomic(folder / f"{record.name}.json", json.dumps(asdict(record), indent=1) + "\n")


def read_records(folder: Path = RECORDS) -> list[Record]:
    """All that are kept, in the order of their numbers."""
    found = [Record(**json.loads(path.read_text())) for path in folder.glob("P*.json")]
    return sorted(found, key=lambda one: int(one.name[1:]))


def page(records: Sequence[Record], names: Iterable[str] = MODULES) -> str:
    """The page of these records; of promises with these names that have none it says so."""
    left = [name for name in names if name not in {one.name for one in records}]
    rows = (
        f"| {one.name} | {one.promised} | {one.count:,} {one.trials} | {len(one.faults)} |" for one in records
    )
    rest = f"\nNot tried in full yet: {', '.join(left)}." if left else ""
    return _HEAD + "\n".join([*rows, rest, *(line for one in records for line in _section(one))]) + "\n"


def _section(one: Record) -> Iterator[str]:
    yield f"\n## {one.name}: {one.promised}\n"
    yield _filled(f"{one.criterion[:1].upper()}{one.criterion[1:]}.")
    yield _filled(f"{one.date}, {one.machine}: {one.count:,} {one.trials} in {one.seconds:,} s.")
    yield "| ended | trials |\n|---|---|"
    for how, count in sorted(one.ended.items(), key=lambda item: (-item[1], item[0])):
        yield f"| {how} | {count:,} |"
    if one.faults:
        yield "\n" + _filled(f"Faults: {', '.join(f'`{name}`' for name in one.faults)}.")


def _filled(text: str) -> str:
    """A paragraph in lines of our documents."""
    return textwrap.fill(text, 116, break_long_words=False, break_on_hyphens=False) + "\n"
