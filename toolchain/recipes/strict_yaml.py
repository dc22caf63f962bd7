"""A small part of YAML, read strictly: mappings, lists and scalars as written, each with its file and line.

Nothing is interpreted: `3.10` stays `3.10`, `no` stays `no`. Tags, anchors, aliases, merge keys, duplicate
keys, directives and several documents in a file are refused, and so are files, texts and nestings beyond a
limit.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from compiler import BadInputError

MOST_BYTES = 256 * 1024
MOST_NODES = 20_000
MOST_DEPTH = 16
MOST_SCALAR = 4096

_HIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b\u2028-\u202e\u2066-\u2069\ufeff]")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A scalar's text, a list's items or a mapping's entries; `key_lines` says where each key stands."""

    content: str | tuple[YamlNode, ...] | Mapping[str, YamlNode]
    file: str
    line: int
    key_lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def plain(self) -> Any:
        """The same as `str`, `list` and `dict`."""
        if isinstance(self.content, str):
            return self.content
        if isinstance(self.content, tuple):
            return [one.plain() for one in self.content]
        return {key: one.plain() for key, one in self.content.items()}

    def entries(self) -> Mapping[str, YamlNode]:
        """The entries of a mapping; none for anything else."""
        return self.content if isinstance(self.content, Mapping) else {}

    def items(self) -> tuple[YamlNode, ...]:
        """The items of a list; none for anything else."""
        return self.content if isinstance(self.content, tuple) else ()


def read_strict(path: Path, shown: str | None = None) -> YamlNode:
    """Read a file; `shown` is how messages name it. Raises BadInputError with file:line."""
    name = shown or str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInputError("a recipe is not a regular file", where=name)
        if status.st_size > MOST_BYTES:
            raise _too_much(f"{name}:1", f"the file has {status.st_size} bytes", MOST_BYTES, "bytes")
        with path.open("rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadInputError("cannot read a recipe", where=name, why=error.strerror or str(error)) from error
    if len(raw) > MOST_BYTES:
        raise _too_much(f"{name}:1", "the file grew while it was read", MOST_BYTES, "bytes")
    return parse_strict(raw, name)


def parse_strict(raw: bytes, name: str) -> YamlNode:
    """Read the bytes of one document called `name`; raises BadInputError with file:line."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadInputError("a recipe is not UTF-8 text", where=f"{name}:{line}", why=error.reason) from error
    _refuse_controls(text, name)
    try:
        return _Reader(name, yaml.parse(text, Loader=_LOADER)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        if "nesting depth" in str(error):  # libyaml's own limit, which it looks ahead for, so before ours
            raise _too_much(where, "nested too deeply", MOST_DEPTH, "levels") from error
        raise BadInputError("a recipe is not YAML", where=where, why=error.problem or str(error)) from error
    except yaml.YAMLError as error:
        raise BadInputError("a recipe is not YAML", where=f"{name}:1", why=str(error)) from error


def _refuse_controls(text: str, name: str) -> None:
    """Characters that an editor does not show, or shows in another order than they are read."""
    found = _HIDDEN.search(text)
    if found:
        raise BadInputError(
            "a recipe contains a control character",
            where=f"{name}:{text.count(chr(10), 0, found.start()) + 1}",
            why=f"character U+{ord(found[0]):04X}",
            hint="indent with blanks, end lines with a line feed, save as UTF-8 without byte order mark",
        )


class _Reader:
    """Turns the parser's events into nodes, without recursion deeper than the limit."""

    def __init__(self, name: str, events: Iterator[Any]) -> None:
        self._name = name
        self._events = events
        self._count = 0

    def document(self) -> YamlNode:
        root: YamlNode | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if event.version or event.tags:
                    raise self._refused(event, "a directive", "leave out the lines that begin with %")
                if root is not None:
                    raise self._refused(event, "a second document", "use one file for each document")
                root = self._node(next(self._events), 0)
        if root is None:
            raise BadInputError("a recipe is empty", where=f"{self._name}:1")
        return root

    def _node(self, event: Any, depth: int) -> YamlNode:
        self._check(event, depth)
        if isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MOST_SCALAR:
                raise _too_much(self._where(event), "a text is too long", MOST_SCALAR, "characters")
            return YamlNode(event.value, self._name, self._line(event))
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlNode(tuple(self._items(depth)), self._name, self._line(event))
        return self._mapping(event, depth)

    def _items(self, depth: int) -> Iterator[YamlNode]:
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, depth + 1)

    def _mapping(self, start: Any, depth: int) -> YamlNode:
        entries: dict[str, YamlNode] = {}
        lines: dict[str, int] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event, depth)
            if key in entries:
                why = f"`{key}` stands in line {lines[key]}, too"
                raise BadInputError("a recipe has a duplicate key", where=self._where(event), why=why)
            lines[key] = self._line(event)
            entries[key] = self._node(next(self._events), depth + 1)
        return YamlNode(entries, self._name, self._line(start), lines)

    def _key(self, event: Any, depth: int) -> str:
        self._check(event, depth)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refused(event, "a list or mapping as a key", "keys are words")
        if event.value == "<<":
            raise self._refused(event, "a merge key", "write the values out, or use `each`")
        return str(event.value)

    def _check(self, event: Any, depth: int) -> None:
        self._count += 1
        if self._count > MOST_NODES:
            raise _too_much(self._where(event), "too many values", MOST_NODES, "values")
        if depth > MOST_DEPTH:
            raise _too_much(self._where(event), "nested too deeply", MOST_DEPTH, "levels")
        if isinstance(event, yaml.AliasEvent):
            raise self._refused(event, "an alias", "write the value out, or use `each`")
        if event.anchor is not None:
            raise self._refused(event, "an anchor", "write the value out, or use `each`")
        if event.tag is not None:
            raise self._refused(event, "a tag", f"leave out `{event.tag}`")

    def _refused(self, event: Any, what: str, hint: str) -> BadInputError:
        return BadInputError(f"a recipe contains {what}", where=self._where(event), hint=hint)

    def _where(self, event: Any) -> str:
        return f"{self._name}:{self._line(event)}"

    @staticmethod
    def _line(event: Any) -> int:
        return int(event.start_mark.line) + 1


def _too_much(where: str, why: str, limit: int, unit: str) -> BadInputError:
    return BadInputError("a recipe is too large", where=where, why=f"{why}; the limit is {limit:,} {unit}")
