"""Every `tk ...` that a document shows is a command as it is now: its name, its options, what they take."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.command import ROOT
from toolchain.main import tk_app

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_END = {"|", ">", "<", "&&", "||", ";", "&", "then", "--", "..."}
_CHANGES = "CHANGELOG.md"


def blocks(text: str) -> Iterator[str]:
    """Command lines in fenced blocks: those of shells, and those after `$` in consoles."""
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            if language in ("", "sh", "console"):
                yield from re.split(r"&&|\|", line.removeprefix("$ "))


def spans(text: str) -> Iterator[str]:
    """Command lines between backticks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (" ".join(one.split()) for one in re.findall(r"`([^`]+)`", prose))


def shown(path: Path) -> Iterator[tuple[str, bool]]:
    """Each command once, and whether it stands there whole, to be typed as it is."""
    text = path.read_text()
    found = {line.strip(): True for line in blocks(text)}
    found |= {line.strip(): False for line in spans(text) if line.strip() not in found}
    yield from ((line, whole) for line, whole in found.items() if re.match(r"tk [a-z-]", line))


SHOWN = [
    pytest.param(line, whole, id=f"{path.name}: {line}")
    for path in DOCUMENTS
    if path.name not in ("cli.md", _CHANGES)
    for line, whole in shown(path)
]


@cache
def all_commands() -> Any:
    """`tk` with its subcommands."""
    return typer.main.get_command(tk_app())


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that the words name, and what follows its name."""
    found = all_commands()
    while words and words[0] in getattr(found, "commands", {}):
        found, words = found.commands[words[0]], words[1:]
    default = getattr(found, "default_command", None)
    if words and default is not None and not words[0].startswith("-"):
        found = found.commands[default]
    return found, words


@pytest.mark.parametrize(("line", "whole"), SHOWN)
def test_it_is_a_command(line: str, whole: bool) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = words[: next((i for i, word in enumerate(words) if word in _END), len(words))]
    command, rest = command_of(words)
    if hasattr(command, "commands"):
        named = [word.rstrip(",") for word in rest if re.fullmatch(r"[a-z][a-z-]*,?", word)]
        assert [word for word in named if word not in command.commands] == [], line
        return
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    given = [re.split("[=]", word.strip("[]"))[0] for word in rest if word.lstrip("[").startswith("--")]
    assert [one for one in given if one not in {*known, "--help"}] == [], line
    if whole and "--help" not in given:
        command.make_context("tk", list(rest))  # raises where an argument is missing or has no such value


def test_there_are_commands_to_check() -> None:
    assert len(SHOWN) > 100
    assert sum(one.values[1] for one in SHOWN) > 30
