"""Make the reference page of the command line from the code: `python -m toolchain.reference docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from compiler import KNOBS, ExitCode, write_atomic

_INTRODUCTION = """\
# The command line

Made from the code by `bin/just docs`; do not edit. Data goes to standard output, everything else to standard
error. `--debug`, anywhere on the line, shows tracebacks.

With `--json` a command prints one JSON document, always. Where it fails before it has a result, also over an
unknown option, that document is

```json
{"error": {"what": "cannot read a file", "where": "x.onnx", "why": "No such file or directory",
           "hint": "check the path", "code": 3}}
```

`where`, `why` and `hint` are empty texts where there is nothing to say, `code` is the exit code; people find
the same on standard error. `tk compile` for several targets prints a list, in which each target that failed
has such an `error`; `tk image build` of several names prints `images`, a list in their order, likewise.
Characters that would command a terminal (names in a model may hold them) are shown as
escapes. On a terminal tables are fitted to its width; into pipes and files they go as wide as they are.

tk runs on Linux with glibc and Python 3.11 or newer. On macOS, Windows, a musl system or an older Python it
says so in one message, and what works there, with exit code 4.
"""
_EXIT_CODES = {
    ExitCode.OK: "done",
    ExitCode.DIFFERENCES: "differences were found by a command that looks for them",
    ExitCode.USAGE: "the command is wrong: unknown name, missing or contradicting option",
    ExitCode.BAD_INPUT: "a file or tensor cannot be used: broken, unsupported, of the wrong shape",
    ExitCode.HOST: "this machine lacks something: a program, a CPU feature, space, a permission",
    ExitCode.BUILD: "the C++ compiler, the linker, or a step of an image's build refused",
    ExitCode.WRONG_RESULT: "a result is not within its tolerance",
    ExitCode.CRASHED: "compiled code crashed or did not end in time",
    ExitCode.INTERNAL: "a defect of tk",
}


def reference_page() -> str:
    """The whole page as Markdown."""
    from toolchain.main import tk_app

    group: Any = typer.main.get_command(tk_app())
    parts = [_INTRODUCTION, *_commands("tk", group), _exit_codes(), _knobs()]
    return "\n".join(parts)


def _commands(path: str, command: Any) -> Iterator[str]:
    """One section for each command that does something, in the order of `tk --help`."""
    children = getattr(command, "commands", {})
    if not children or command.invoke_without_command:
        yield _section(path, command)
    for name, child in children.items():
        if child.hidden:
            continue
        yield from _commands(f"{path} {name}", child)


def _section(path: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not _is_hidden(one)]
    usage = " ".join(
        [path, *(one.metavar.strip("{}") for one in arguments), *(["[OPTIONS]"] if options else [])]
    )
    rows = [f"| `{one.metavar.strip('[]')}` | {one.help}{_default(one)} |" for one in arguments]
    rows += [f"| {_spelling(one)} | {one.help}{_default(one)} |" for one in options]
    table = "\n".join(["| | |", "|---|---|", *rows]) if rows else ""
    return f"## `{usage}`\n\n{_help(command)}\n\n{table}\n"


def _is_hidden(option: Any) -> bool:
    return option.name == "help" or bool(option.hidden)


def _help(command: Any) -> str:
    return "\n".join(line.strip() for line in (command.help or "").strip().splitlines())


def _spelling(option: Any) -> str:
    value = "" if option.is_flag else f" {option.metavar or 'VALUE'}"
    return ", ".join(f"`{name}{value}`" for name in option.opts)


def _default(option: Any) -> str:
    if getattr(option, "is_flag", False) or option.default is None or option.default == []:
        return " Required." if option.required and option.param_type_name == "option" else ""
    return f" Default: `{option.default}`."


def _exit_codes() -> str:
    rows = [f"| {code.value} | {_EXIT_CODES[code]} |" for code in ExitCode]
    rows += [
        "| 130 | interrupted (Ctrl-C) |",
        "| 141 | whoever read standard output stopped, as `head` does |",
        "| 143 | terminated (SIGTERM) |",
    ]
    return "\n".join(["## Exit codes", "", "| code | meaning |", "|---|---|", *rows, ""])


def _knobs() -> str:
    rows = [f"| `{knob.name}` | {knob.meaning} | {knob.default} |" for knob in KNOBS]
    rows += [
        "| `NO_COLOR` | set: no colour | unset |",
        "| `FORCE_COLOR` | set: colour, also into files | unset |",
    ]
    header = ["## Environment variables", "", "| variable | meaning | default |", "|---|---|---|"]
    return "\n".join([*header, *rows, ""])


if __name__ == "__main__":
    write_atomic(Path(sys.argv[1]), reference_page())
