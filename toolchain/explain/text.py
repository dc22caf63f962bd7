"""Logs as they come, made readable: whole lines of any encoding, without colours and time stamps."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import BinaryIO

BLOCK_BYTES = 1 << 20
OVERLAP_BYTES = 1 << 10
"""Of a line longer than a block: what its next part repeats, so that nothing is lost between parts."""
_LONGEST_SHOWN = 300

_COMMANDS = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)  # ECMA-48: control sequences, operating system commands, other escapes
_PREFIX = re.compile(
    r"""
    \#\d+\ \d+\.\d+\ +                                              # BuildKit: step, seconds
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ :]*   # ISO 8601
    | \[\d\d:\d\d:\d\d(?:\.\d+)?\]\ *
    | [\w.-]{1,40}\ +\|\ +                                          # compose: container
    """,
    re.VERBOSE,
)
_MOST_PREFIXES = 3
_BOMS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class LineCutter:
    """Cuts what arrives in pieces into blocks of whole lines; of a very long line into parts."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def cut(self, data: bytes) -> bytes:
        """The lines that are whole now; empty while the line goes on."""
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end:
            block = bytes(self._rest + data[:end])
            self._rest = bytearray(data[end:])
            return block
        self._rest += data
        if len(self._rest) < BLOCK_BYTES:
            return b""
        block = bytes(self._rest)
        self._rest = bytearray(block[-OVERLAP_BYTES:])
        return block

    def rest(self) -> bytes:
        """The last line, which has no end."""
        return bytes(self._rest)


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """A log in blocks of whole lines; UTF-16, which shells of Windows write, as UTF-8."""
    cutter = LineCutter()
    decoder: codecs.IncrementalDecoder | None = None
    first = True
    while data := stream.read(BLOCK_BYTES):
        if first:
            first = False
            name = next((name for bom, name in _BOMS if data.startswith(bom)), "")
            decoder = codecs.getincrementaldecoder(name)("replace") if name else None
        if decoder is not None:
            data = decoder.decode(data).encode(errors="replace")
        if block := cutter.cut(data):
            yield block
    if rest := cutter.rest():
        yield rest


def without_commands(block: bytes) -> bytes:
    """Text without what commands a terminal, and without zero bytes."""
    plain = block.replace(b"\x00", b"")
    return _COMMANDS.sub(b"", plain) if b"\x1b" in plain else plain


def shown_line(line: bytes, around: int = 0) -> str:
    """A line for people: no time stamp or step before it, and of a long one what is around a place in it."""
    if len(line) > _LONGEST_SHOWN:
        start = max(0, min(around - _LONGEST_SHOWN // 3, len(line) - _LONGEST_SHOWN))
        line = line[start : start + _LONGEST_SHOWN]
    return without_prefix(line.decode(errors="replace").strip())


def without_prefix(line: str) -> str:
    """A line without what builders and runners put before it: steps, times, the container's name."""
    for _ in range(_MOST_PREFIXES):
        found = _PREFIX.match(line)
        if found is None:
            break
        line = line[found.end() :]
    return line
