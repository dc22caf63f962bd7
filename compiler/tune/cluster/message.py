"""What tuner and workers send each other: one line of JSON, and files behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from compiler.tune.record import Environment, Measured

_FILES = "files"
Header = Mapping[str, Any]


def pack_message(header: Header, files: Sequence[bytes] = ()) -> bytes:
    """A message: its header as JSON, and files as they are."""
    line = json.dumps({**header, _FILES: [len(one) for one in files]})
    return b"".join((line.encode(), b"\n", *files))


def unpack_message(message: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """The header and the files of a message; raises ValueError for what is none."""
    line, newline, rest = message.partition(b"\n")
    header = json.loads(line)
    if not newline or not isinstance(header, dict) or sum(header[_FILES]) != len(rest):
        raise ValueError("a message is cut off")
    files, at = [], 0
    for size in header.pop(_FILES):
        files.append(rest[at : at + size])
        at += size
    return header, files


def measured_from(fields: Header) -> Measured:
    """What became of a candidate, from JSON."""
    return Measured(fields["status"], tuple(fields["seconds"]), fields["message"], fields["checked_by"])


def environment_from(fields: Header) -> Environment:
    """An environment from JSON; raises TypeError where it has other fields."""
    return Environment(**fields)


def fields_of(one: Environment | Measured) -> dict[str, Any]:
    """As JSON takes it."""
    return asdict(one)
