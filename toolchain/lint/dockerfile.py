"""A foreign Dockerfile as instructions with line numbers: dockerfile-parse, and what it leaves out.

The library knows no here-documents and no empty lines in a continued instruction
(https://docs.docker.com/reference/dockerfile/). Those are put into its words first, line for line, so that
its line numbers stay right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

from compiler import BadInputError
from toolchain.lint.shell import ShellCommand, commands

_MOST_BYTES = 1 << 20
_KNOWN = {
    "FROM", "RUN", "CMD", "LABEL", "MAINTAINER", "EXPOSE", "ENV", "ADD", "COPY", "ENTRYPOINT", "VOLUME",
    "USER", "WORKDIR", "ARG", "ONBUILD", "STOPSIGNAL", "HEALTHCHECK", "SHELL",
}  # fmt: skip
_HEREDOC = re.compile(r"<<-?\s*(?P<quote>['\"]?)(?P<word>[A-Za-z_][\w.]*)(?P=quote)")
_FLAG = re.compile(r"--(?P<name>[a-z-]+)(?:=(?P<value>\S+))?\s+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its upper-case name, its flags (`--mount=...`), the rest of its line, here-documents.

    `first` and `last` are line numbers from 1; `raw` are the lines as written; `stage` counts FROMs from 0,
    -1 before the first.
    """

    name: str
    flags: tuple[str, ...]
    value: str
    heredoc: str
    first: int
    last: int
    raw: tuple[str, ...]
    stage: int

    @property
    def script(self) -> str:
        """What a RUN hands to the shell; the words of its JSON form joined."""
        if self.heredoc:
            return f"{_HEREDOC.sub('', self.value)}\n{self.heredoc}"
        return " ".join(self.words) if self.is_exec else self.value

    @property
    def is_exec(self) -> bool:
        """Whether the value is in JSON form, which no shell reads."""
        return self.value.startswith("[") and bool(self.words)

    @property
    def words(self) -> tuple[str, ...]:
        """The strings of the JSON form, else the value split at blanks."""
        try:
            read = json.loads(self.value) if self.value.startswith("[") else None
        except ValueError:
            read = None
        if isinstance(read, list) and all(isinstance(one, str) for one in read):
            return tuple(read)
        return tuple(self.value.split())

    @property
    def commands(self) -> tuple[ShellCommand, ...]:
        """The simple commands of a RUN; none for other instructions."""
        return commands(self.script) if self.name == "RUN" else ()

    def line_of(self, text: str) -> int:
        """The line on which `text` stands; the first line when it is not found in one piece."""
        for offset, line in enumerate(self.raw):
            if text and text in line:
                return self.first + offset
        return self.first


class _Part(NamedTuple):
    """What dockerfile-parse gives for one instruction; lines count from 0."""

    name: str
    value: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment and its line number from 1."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A whole file, in order."""

    where: str
    instructions: tuple[Instruction, ...]
    comments: tuple[Comment, ...]

    def named(self, *names: str) -> tuple[Instruction, ...]:
        """The instructions with one of these names."""
        return tuple(one for one in self.instructions if one.name in names)

    @property
    def last_stage(self) -> tuple[Instruction, ...]:
        """The instructions of the stage that becomes the image."""
        last = max((one.stage for one in self.instructions), default=-1)
        return tuple(one for one in self.instructions if one.stage == last)


def parse_dockerfile(data: bytes, where: str) -> Dockerfile:
    """Read a Dockerfile; `where` is how errors name it. Raises BadInputError with file:line."""
    if len(data) > _MOST_BYTES:
        raise BadInputError(
            "the Dockerfile is too large",
            where=where,
            why=f"it has {len(data)} bytes; BuildKit takes no more than {_MOST_BYTES}",
            hint="is it really a Dockerfile?",
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadInputError("the Dockerfile is not UTF-8 text", where=f"{where}:{line}") from error
    lines = text.splitlines()
    plain, heredocs = _normalise(lines)
    return _build(where, lines, _structure(plain), heredocs)


def _structure(lines: Sequence[str]) -> list[_Part]:
    from dockerfile_parse import DockerfileParser  # only here: half of the time that `tk image lint` takes

    stream: Any = BytesIO(("\n".join(lines) + "\n").encode())  # its stubs ask for text, its code for bytes
    parser = DockerfileParser(fileobj=stream, env_replace=False)
    return [
        _Part(one["instruction"], one["value"], int(one["startline"]), int(one["endline"]))
        for one in parser.structure
    ]


def _normalise(lines: Sequence[str]) -> tuple[list[str], dict[int, str]]:
    """Lines in the dialect of dockerfile-parse, and here-documents by the index of their first line."""
    escape = (
        "`" if any(re.match(r"#\s*escape\s*=\s*`\s*$", line, re.IGNORECASE) for line in lines[:5]) else "\\"
    )
    plain: list[str] = []
    heredocs: dict[int, str] = {}
    index, continued = 0, False
    while index < len(lines):
        line = lines[index].rstrip()
        if line.lstrip().startswith("#"):
            plain.append(line)
            index += 1
            continue
        if continued and not line:
            plain.append("#")
            index += 1
            continue
        words = [] if continued else _heredoc_words(line)
        continued = line.endswith(escape)
        plain.append(line)
        index += 1
        if words and not continued:
            body, index = _heredoc_bodies(lines, index, words)
            heredocs[len(plain) - 1] = body
            plain.extend([""] * (index - len(plain)))
    return plain, heredocs


def _heredoc_words(line: str) -> list[str]:
    if not re.match(r"\s*(ONBUILD\s+)?(RUN|COPY|ADD)\s", line, re.IGNORECASE):
        return []
    return [match["word"] for match in _HEREDOC.finditer(line) if "<<<" not in line]


def _heredoc_bodies(lines: Sequence[str], index: int, words: Sequence[str]) -> tuple[str, int]:
    body: list[str] = []
    for word in words:
        while index < len(lines) and lines[index].strip() != word:
            body.append(lines[index])
            index += 1
        index += 1
    return "\n".join(body), min(index, len(lines))


def _build(
    where: str, lines: Sequence[str], structure: Sequence[_Part], heredocs: dict[int, str]
) -> Dockerfile:
    instructions: list[Instruction] = []
    comments: list[Comment] = []
    stage = -1
    unknown: list[str] = []
    for part in structure:
        name, value, first, last = part
        if name == "COMMENT":
            comments.append(Comment(value, first + 1))
            continue
        if name == "ONBUILD":
            name, _, value = value.partition(" ")
            name = name.upper()
        if name not in _KNOWN:
            unknown.append(f"line {first + 1}: `{name}`")
            continue
        stage += name == "FROM"
        heredoc = heredocs.get(last, "")
        end = last + heredoc.count("\n") + 2 if heredoc else last
        flags, rest = _flags(value)
        raw = tuple(lines[first : end + 1])
        instructions.append(Instruction(name, flags, rest, heredoc, first + 1, end + 1, raw, stage))
    _check(where, instructions, unknown)
    return Dockerfile(where, tuple(instructions), tuple(comments))


def _check(where: str, instructions: Sequence[Instruction], unknown: Sequence[str]) -> None:
    if unknown:
        raise BadInputError(
            "the Dockerfile has instructions that do not exist",
            where=where,
            why="; ".join(unknown[:10]),
            hint="check the spelling, and that each continued line ends in a backslash",
        )
    if not any(one.name == "FROM" for one in instructions):
        raise BadInputError("the Dockerfile has no FROM", where=where, hint="is it really a Dockerfile?")


def _flags(value: str) -> tuple[tuple[str, ...], str]:
    flags: list[str] = []
    while match := _FLAG.match(value):
        flags.append(match[0].strip())
        value = value[match.end() :]
    return tuple(flags), value.strip()
