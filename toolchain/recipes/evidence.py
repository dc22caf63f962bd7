"""What was shown to work: records of renders, dry builds, builds, images in a registry and runs on devices.

A record counts only while the recipe is the same: with another recipe hash it proves nothing about today's.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from compiler import BadInputError, write_atomic
from toolchain.data import data_directory
from toolchain.exclusive import exclusively

State = Literal["rendered", "dry-built", "built", "published", "run-on-device"]
STATES: tuple[State, ...] = ("rendered", "dry-built", "built", "published", "run-on-device")
FILE = "evidence.json"


@dataclass(frozen=True, slots=True, order=True)
class Evidence:
    """One proof: what was shown of which image, and by what (a test or a command).

    `built` means on the recipe's own base, its smoke tests passed, and what is in it was what was locked.
    `plan` is the key of the plan that was built; `image` is where it lies (`reference@sha256:...`).
    """

    name: str
    state: State
    recipe_hash: str
    by: str
    plan: str = ""
    image: str = ""


def load_evidence(path: Path | None = None) -> tuple[Evidence, ...]:
    """The records of a file, by default the shipped one; none where there is no file.

    Raises BadInputError for a file that is not what `record_evidence` writes.
    """
    path = path or data_directory("recipes") / FILE
    if not path.exists():
        return ()
    try:
        records = json.loads(path.read_bytes())["evidence"]
        return tuple(_record(one) for one in records)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError("a file of evidence is broken", where=str(path), why=str(error)) from error


def record_evidence(found: Iterable[Evidence], path: Path) -> None:
    """Add records to a file; an older one of the same image and state is replaced.

    Raises BadInputError as `load_evidence`, and HostError when file or cache cannot be written.
    """
    with exclusively("evidence", str(path.resolve())):
        kept = {(one.name, one.state): one for one in load_evidence(path)}
        kept |= {(one.name, one.state): one for one in found}
        document = {"evidence": [_fields(one) for one in sorted(kept.values())]}
        write_atomic(path, (json.dumps(document, indent=1) + "\n").encode())


def _fields(record: Evidence) -> dict[str, str]:
    """What is worth writing: not what is empty and may be."""
    return {key: text for key, text in asdict(record).items() if text or key not in ("plan", "image")}


def states(names: Container[str], recipe_hash: str, records: Sequence[Evidence]) -> dict[State, str]:
    """`yes` for what is proved of this very recipe, `unknown` where it has changed since, `no` otherwise.

    names: what the image is called, as typed and in full.
    """
    own = [one for one in records if one.name in names]
    return {state: _state([one for one in own if one.state == state], recipe_hash) for state in STATES}


def _state(records: Sequence[Evidence], recipe_hash: str) -> str:
    if any(one.recipe_hash == recipe_hash for one in records):
        return "yes"
    return "unknown" if records else "no"


def _record(fields: Any) -> Evidence:
    record = Evidence(**fields)
    if record.state not in STATES or not all(isinstance(one, str) for one in asdict(record).values()):
        raise ValueError(f"no evidence: {fields}")
    return record
