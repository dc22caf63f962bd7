"""A Dockerfile's text back to instructions: what a builder will read, to compare with what was planned."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from compiler import InternalError, counted
from toolchain.images.plan import (
    PATH_DEFAULT,
    Arg,
    Cmd,
    Command,
    Copy,
    Entrypoint,
    Env,
    EnvPath,
    From,
    Instruction,
    Label,
    Mount,
    Plan,
    Run,
    User,
    Workdir,
)

_RAW_WORD = re.compile(r"(?:[^\s'\"\\]|'[^']*'|\"(?:[^\"\\]|\\.)*\")+")
_ACTIVE = re.compile(r"[$`;|<>&*?()\[\]{}#!~\\]")
_QUOTED = re.compile(r"'[^']*'" r'|"\'"')
_PAIR = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_][A-Za-z0-9_]*))="((?:[^"\\$]|\\.)*)"(?:\s+|$)')
_COPY = re.compile(r"(?:--from=(\S+) )?(\S.*) (\S+)")


def parse_rendered(text: str) -> tuple[Instruction, ...]:
    """Read the instructions of a Dockerfile that render.py wrote; raises InternalError for any other form."""
    import dockerfile_parse

    stream: Any = io.BytesIO(text.encode())  # its annotation says text, its code reads bytes
    parser = dockerfile_parse.DockerfileParser(fileobj=stream)
    found = []
    for entry in parser.structure:
        name = entry["instruction"]
        if name == "COMMENT":
            continue
        if name not in _READERS:
            raise _unexpected(entry["content"])
        found.append(_READERS[name](entry["value"]))
    return tuple(found)


def check_parses_back(plan: Plan, text: str) -> None:
    """Raise InternalError unless the text's instructions are exactly the plan's."""
    expected = [_written(one) for stage in plan.stages for one in stage.instructions]
    found = parse_rendered(text)
    for index, (have, want) in enumerate(zip(found, expected, strict=False)):
        if have != want:
            raise InternalError(
                f"instruction {index + 1} of the Dockerfile is not what was planned",
                where=plan.name,
                why=f"planned {want}, written {have}",
            )
    if len(found) != len(expected):
        count = counted(len(found), "instruction")
        raise InternalError(f"the Dockerfile has {count}, the plan {len(expected)}", where=plan.name)


def _written(one: Instruction) -> Instruction:
    return From(image=one.mirror or one.image, stage=one.stage) if isinstance(one, From) else one


def _from(value: str) -> From:
    name, keyword, stage = value.split()
    if keyword != "AS":
        raise _unexpected(value)
    return From(image=name, stage=stage)


def _arg(value: str) -> Arg:
    ((name, text),) = _pairs(value)
    return Arg(name, text)


def _env(value: str) -> Env | EnvPath:
    name, _, rest = value.partition("=")
    if rest.startswith('"'):
        return Env(_pairs(value))
    tail = f":${{PATH:-{PATH_DEFAULT}}}" if name == "PATH" else f"${{{name}:+:${{{name}}}}}"
    entries = rest.removesuffix(tail)
    if entries == rest or "$" in entries or " " in entries:
        raise _unexpected(value)
    return EnvPath(name, tuple(entries.split(":")))


def _label(value: str) -> Label:
    return Label(_pairs(value))


def _pairs(value: str) -> tuple[tuple[str, str], ...]:
    pairs = []
    position = 0
    while position < len(value):
        match = _PAIR.match(value, position)
        if not match:
            raise _unexpected(value)
        name = match[2] if match[1] is None else _unescaped(match[1])
        pairs.append((name, _unescaped(match[3])))
        position = match.end()
    return tuple(pairs)


def _unescaped(text: str) -> str:
    return re.sub(r'\\([\\"$])', r"\1", text)


def _run(value: str) -> Run:
    raw = _raw_words(value)
    mounts = []
    while raw and raw[0].startswith("--mount="):
        mounts.append(_mount(raw.pop(0)))
    commands: list[list[str]] = [[]]
    for one in raw:
        if one == "&&":
            commands.append([])
        else:
            commands[-1].append(_literal(one))
    if not all(commands):
        raise _unexpected(value)
    return Run(tuple(tuple(one) for one in commands), tuple(mounts))


def _raw_words(value: str) -> list[str]:
    words = []
    position = 0
    while position < len(value):
        if value[position].isspace():
            position += 1
            continue
        match = _RAW_WORD.match(value, position)
        if not match:
            raise _unexpected(value)
        words.append(match[0])
        position = match.end()
    return words


def _literal(raw: str) -> str:
    """A shell word that stands for itself: whatever a shell would act on must be within single quotes."""
    bare = _QUOTED.sub("", raw)
    if _ACTIVE.search(bare) or '"' in bare:
        raise _unexpected(raw)
    (text,) = shlex.split(raw)
    return text


def _mount(raw: str) -> Mount:
    fields = dict(one.split("=", 1) for one in raw.removeprefix("--mount=").split(","))
    kind: Any = fields["type"]
    shared = fields.get("sharing") == "shared"
    target, name, source, stage = (fields.get(key, "") for key in ("target", "id", "source", "from"))
    return Mount(kind, target, name, source, stage, shared)


def _copy(value: str) -> Copy:
    match = _COPY.fullmatch(value)
    if not match:
        raise _unexpected(value)
    return Copy(tuple(match[2].split()), match[3], match[1] or "")


def _argv(value: str) -> Command:
    return tuple(json.loads(value))


def _unexpected(text: str) -> InternalError:
    return InternalError("a Dockerfile that was just written cannot be read back", where=text.strip()[:200])


_READERS: dict[str, Callable[[str], Instruction]] = {
    "FROM": _from,
    "ARG": _arg,
    "ENV": _env,
    "RUN": _run,
    "COPY": _copy,
    "WORKDIR": Workdir,
    "USER": User,
    "LABEL": _label,
    "ENTRYPOINT": lambda value: Entrypoint(_argv(value)),
    "CMD": lambda value: Cmd(_argv(value)),
}
