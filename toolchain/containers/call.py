"""A `tk` command line as it is said inside a container: files get other paths there, the rest stays.

What is a file is said by the role in the parameter's annotation (`options.Role`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler import UsageError, external_files
from toolchain import names, options
from toolchain.containers.job import IN, OUT
from toolchain.containers.request import Word
from toolchain.options import Role


@dataclass(slots=True)
class Call:
    """`argv` for the bundled `tk`, host files by their path below `IN`, results by theirs below `OUT`."""

    argv: list[str] = field(default_factory=list)
    inputs: dict[str, Path] = field(default_factory=dict)
    results: dict[str, Path] = field(default_factory=dict)

    def translate(self, text: bytes) -> bytes:
        """What the container printed, with the host's paths in place of its own."""
        for place, known in ((IN, self.inputs), (OUT, self.results)):
            for path, host in sorted(known.items(), reverse=True):
                text = text.replace(f"{place}/{path}".encode(), json.dumps(str(host))[1:-1].encode())
        return text

    def _bring(self, path: Path) -> str:
        """The container's path of a host file that it reads."""
        folder = str(len(self.inputs))
        inside = f"{folder}/{names.file_name(path.name)}"
        self.inputs[inside] = options.existing_file(path)
        return f"{IN}/{inside}"

    def _bring_model(self, path: Path) -> str:
        inside = self._bring(path)
        folder = inside.removeprefix(f"{IN}/").partition("/")[0]
        for name in external_files(path):
            self.inputs[f"{folder}/{name}"] = path.parent / name
        return inside

    def _expect(self, name: str, path: Path) -> str:
        """The container's path of something that it writes."""
        inside = f"{name}/{names.file_name(path.name)}"
        self.results[inside] = path
        return f"{OUT}/{inside}"

    def _value(self, name: str, role: Role | None, value: Any) -> str:
        match role:
            case Role.MODEL:
                return self._bring_model(value)
            case Role.INPUT:
                return self._bring(value)
            case Role.RESULT:
                return self._expect(name, value)
            case Role.NAMED_INPUT:
                tensor, equals, path = str(value).rpartition("=")
                return f"{tensor}{equals}{self._bring(Path(path))}"
        return str(value)

    def add(self, name: str, word: Word, value: Any) -> None:
        """Add one parameter with its value or values.

        Raises UsageError for one that belongs to this machine.
        """
        if word.role is Role.HERE:
            raise UsageError(
                f"{word.option} has no use in a container",
                where=word.option,
                why="it is about this machine, of which nothing is in there",
                hint="drop it, or let `tk matrix run` keep a record of what runs in images",
            )
        if isinstance(value, bool):
            said = word.option if value else word.negation
            self.argv += [said] if said else []
            return
        for one in value if isinstance(value, (list, tuple)) else (value,):
            text = self._value(name, word.role, one)
            self.argv += [f"{word.option}={text}"] if word.option else [text]


def call_of(command: str, values: Mapping[str, Any], words: Mapping[str, Word]) -> Call:
    """The call of `tk command` with the parameters `values` that were given, each said as `words` tells.

    Raises BadInputError for a file that cannot be read, UsageError for what belongs to this machine.
    """
    call = Call(command.split())
    for name, value in values.items():
        if value is not None:
            call.add(name, words[name], value)
    call.argv.append("--no-container")
    return call
