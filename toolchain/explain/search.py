"""Known issues and whatever looks like an error, found in a text of any length with little memory.

Every pattern has up to eight bytes that each match contains. The first four of them are looked up at each
place of a block, in one table with numpy, then the others; only lines with all of them are compared. So time
hardly depends on the number of patterns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from toolchain.explain.issue import LogLine, Searched, Sighting
from toolchain.explain.pattern import (
    KEY_BYTES,
    LONG_KEY_BYTES,
    Pattern,
    comparable,
    plain_spelling,
    read_pattern,
)
from toolchain.explain.text import blocks, shown_line, without_commands
from toolchain.explain.unknown import KEYS, looks_wrong

NEAR_LINES = 25
"""How far apart lines that belong together may stand."""
KEPT_LINES = 5
"""Lines that look like an error: so many of the first and of the last ones are kept."""
_MORE_BYTES = LONG_KEY_BYTES - KEY_BYTES
_FACTOR, _SHIFT = np.uint32(2654435761), np.uint32(12)  # Knuth's multiplicative hash to 20 bits
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Needle:
    """A pattern and what it is part of: alone an issue, or one line of a group of an issue."""

    pattern: Pattern
    issue: int
    group: int = -1
    member: int = 0


@dataclass(slots=True)
class _Group:
    """Lines that have to stand near each other: where each was seen last."""

    lines: list[LogLine | None]

    def complete(self) -> LogLine | None:
        """The first of them, when all are there."""
        seen = [one for one in self.lines if one is not None]
        numbers = [one.number for one in seen]
        if len(seen) < len(self.lines) or max(numbers) - min(numbers) > NEAR_LINES:
            return None
        self.lines = [None] * len(self.lines)
        return min(seen, key=lambda one: one.number)


@dataclass(slots=True)
class Wrong:
    """Lines that look like an error: the first and the last ones."""

    first: list[LogLine] = field(default_factory=list)
    last: deque[LogLine] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def add(self, line: LogLine) -> None:
        if len(self.first) < KEPT_LINES:
            self.first.append(line)
        else:
            self.last.append(line)

    def lines(self) -> tuple[LogLine, ...]:
        return (*self.first, *self.last)


class Search:
    """Looks through a text block by block; blocks are whole lines."""

    def __init__(self, issues: Iterable[Searched]) -> None:
        self._needles: dict[bytes, list[_Needle]] = {}
        self._groups: list[_Group] = []
        for index, issue in enumerate(issues):
            self._add(index, issue)
        names = sorted({*self._needles, *KEYS}, key=lambda one: int.from_bytes(one, "little"))
        self._names = names
        self._keys = np.array([int.from_bytes(one, "little") for one in names], np.uint32)
        self._more = np.array([list(self._common_end(one)) for one in names], np.uint8)
        self._near = np.zeros(1 << (32 - int(_SHIFT)), np.bool_)
        self._near[(self._keys * _FACTOR) >> _SHIFT] = True
        self._is_known = np.array([one in self._needles for one in names])
        self._is_wrong = np.array([one in KEYS for one in names])
        self._number = 1
        self._found: dict[int, Sighting] = {}
        self.wrong = Wrong()

    def _add(self, index: int, issue: Searched) -> None:
        for text in issue.patterns:
            pattern = read_pattern(text)
            self._needles.setdefault(pattern.key[:KEY_BYTES], []).append(_Needle(pattern, index))
        for texts in issue.together:
            for member, text in enumerate(texts):
                pattern = read_pattern(text)
                needle = _Needle(pattern, index, len(self._groups), member)
                self._needles.setdefault(pattern.key[:KEY_BYTES], []).append(needle)
            self._groups.append(_Group([None] * len(texts)))

    def _common_end(self, name: bytes) -> bytes:
        """What follows a key's first four bytes in every pattern that has them; zeros where they differ."""
        if name in KEYS:
            return bytes(_MORE_BYTES)
        ends = {one.pattern.key[KEY_BYTES:].ljust(_MORE_BYTES, b"\0") for one in self._needles[name]}
        return bytes(one[0] if len({*one}) == 1 else 0 for one in zip(*ends, strict=True))

    def read(self, stream: BinaryIO) -> Search:
        """Look through a whole stream."""
        for block in blocks(stream):
            self.feed(block)
        return self

    def found(self) -> tuple[Sighting, ...]:
        """What was found, by the number of the issue."""
        return tuple(self._found[index] for index in sorted(self._found))

    def feed(self, block: bytes) -> None:
        """Look through the next lines."""
        text = plain_spelling(without_commands(block))
        small = text.lower()
        data = np.frombuffer(small, np.uint8)
        ends: _Numbers = np.flatnonzero((data == ord("\n")) | (data == ord("\r")))
        feeds = np.cumsum(data[ends] == ord("\n"))
        places, keys = self._places(small)
        lines = np.searchsorted(ends, places)

        def line_at(line: int) -> tuple[int, bytes]:
            """Its number in the whole text, and the line."""
            start = int(ends[line - 1]) + 1 if line else 0
            end = int(ends[line]) if line < len(ends) else len(text)
            return self._number + (int(feeds[line - 1]) if line else 0), text[start:end]

        hits = _once((lines * len(self._names) + keys)[self._is_known[keys]])
        for line, group in groupby(hits, lambda one: one // len(self._names)):
            self._compare(*line_at(line), [self._names[one % len(self._names)] for one in group])
        self._look(_once(lines[self._is_wrong[keys]]), line_at)
        self._number += int(feeds[-1]) if len(feeds) else 0

    def _places(self, text: bytes) -> tuple[_Numbers, _Numbers]:
        """Where a key stands, and which one."""
        places, keys = [], []
        for shift in range(KEY_BYTES):
            count = (len(text) - shift) // KEY_BYTES
            if count < 1:
                continue
            words = np.frombuffer(text, "<u4", count, shift)
            near = np.flatnonzero(self._near[(words * _FACTOR) >> _SHIFT])
            which = np.searchsorted(self._keys, words[near])
            which[which == len(self._keys)] = 0
            right = self._keys[which] == words[near]
            where, which = near[right] * KEY_BYTES + shift, which[right]
            right = self._goes_on(text, where, which)
            places.append(where[right])
            keys.append(which[right])
        empty = np.zeros(0, np.int64)
        return np.concatenate([empty, *places]), np.concatenate([empty, *keys])

    def _goes_on(self, text: bytes, places: _Numbers, keys: _Numbers) -> npt.NDArray[np.bool_]:
        """Whether the rest of the key follows, too."""
        data = np.frombuffer(text + bytes(_MORE_BYTES), np.uint8)
        seen = data[places[:, None] + np.arange(KEY_BYTES, LONG_KEY_BYTES)]
        wanted = self._more[keys]
        fits: npt.NDArray[np.bool_] = ((wanted == 0) | (wanted == seen)).all(axis=1)
        return fits

    def _compare(self, number: int, line: bytes, names: list[bytes]) -> None:
        """Compare a line with the patterns whose keys it has."""
        seen = comparable(line)
        needles = [one for name in names for one in self._needles.get(name, ()) if one.pattern.is_in(seen)]
        if needles:
            around = line.lower().find(needles[0].pattern.key)
            for one in needles:
                self._note(one, LogLine(number, shown_line(line, around)))

    def _look(self, lines: list[int], line_at: Callable[[int], tuple[int, bytes]]) -> None:
        """Keep the first and the last lines that look like an error; those between are not even read."""
        first = list(islice(_wrong_ones(map(line_at, lines)), KEPT_LINES))
        last = list(islice(_wrong_ones(map(line_at, reversed(lines))), KEPT_LINES))
        for one in dict.fromkeys((*first, *reversed(last))):
            self.wrong.add(one)

    def _note(self, needle: _Needle, line: LogLine) -> None:
        if needle.group >= 0:
            group = self._groups[needle.group]
            group.lines[needle.member] = line
            first = group.complete()
            if first is None:
                return
            line = first
        known = self._found.get(needle.issue)
        if known is None:
            self._found[needle.issue] = Sighting(needle.issue, line, 1, line.number)
        elif known.last != line.number:
            known.times += 1
            known.last = line.number


def _once(numbers: _Numbers) -> list[int]:
    """Sorted, each number once."""
    ordered = np.sort(numbers)
    return [int(one) for one in ordered[np.diff(ordered, prepend=-1) != 0]]


def _wrong_ones(lines: Iterable[tuple[int, bytes]]) -> Iterator[LogLine]:
    for number, line in lines:
        text = shown_line(line)
        if looks_wrong(text):
            yield LogLine(number, text)


def search_lines(lines: Iterable[str], issues: Iterable[Searched]) -> Iterator[Sighting]:
    """Search a few lines that are there already."""
    search = Search(issues)
    search.feed("\n".join(lines).encode(errors="replace"))
    yield from search.found()
