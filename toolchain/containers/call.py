"""A `tk` command line as it is said inside a container: files get other paths there, the rest stays.

What is a file is decided by the parameter's name: a table for all commands that can run in a container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler import external_files
from toolchain import names, options
from toolchain.containers.job import IN, OUT

_MODELS = ("model", "beside")
"""Parameters that name an ONNX file: its external data comes along."""
_FILES = ("library", "start_from")
_INPUTS = ("inputs",)
"""Parameters of the form NAME=FILE, or FILE alone."""
_RESULTS = ("output", "output_dir", "dump")


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

    def _value(self, name: str, value: Any) -> str:
        if name in _MODELS and isinstance(value, Path):
            return self._bring_model(value)
        if name in _FILES and isinstance(value, Path):
            return self._bring(value)
        if name in _RESULTS and isinstance(value, Path):
            return self._expect(name, value)
        if name in _INPUTS:
            tensor, equals, path = str(value).rpartition("=")
            return f"{tensor}{equals}{self._bring(Path(path))}"
        return str(value)

    def add(self, name: str, flag: str, value: Any) -> None:
        """Add one option (`flag`), or an argument when `flag` is empty, with its value or values."""
        if isinstance(value, bool):
            self.argv += [flag] * value
            return
        for one in value if isinstance(value, (list, tuple)) else (value,):
            text = self._value(name, one)
            self.argv += [f"{flag}={text}"] if flag else [text]


def call_of(command: str, values: Mapping[str, Any], flags: Mapping[str, str]) -> Call:
    """The call of `tk command` with the parameters `values` that were given.

    `flags` maps a parameter's name to its long option, empty for an argument. Raises BadInputError for a file
    that cannot be read.
    """
    call = Call([command])
    for name, value in values.items():
        if value is not None:
            call.add(name, flags[name], value)
    call.argv.append("--no-container")
    return call
