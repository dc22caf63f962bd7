"""How `tk` talks: data to standard output, everything else to standard error, readable without colour."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import itertools
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from compiler import HostError, TkError, cut_numbers, visible
from toolchain.settings import console_settings

if TYPE_CHECKING:
    from compiler import ExitCode

_PIECE = re.compile(r"[^ ,/+]*[ ,/+]+|[^ ,/+]+")
_GAP = 2
_NARROWEST = 8  # columns of a text in a table
_MOST_DIMS = 12  # of a shape; no network has as many
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "hint": "\x1b[1;36m"}
_NOT_ASCII = re.compile(r"[^\n -~]")
_RESET = "\x1b[0m"


class ReaderGoneError(Exception):
    """Whoever read our standard output has had enough, as `head` has: no reason to go on, and no mistake."""


class _Output:
    """Remembers which standard output was written to: a command's may be replaced while it runs."""

    written: object = None


def data(text: str) -> None:
    """Write a line of the command's result to standard output; raises HostError if it cannot be written.

    What does not print is written as an escape. Raises ReaderGoneError when nobody reads any more.
    """
    verbatim(visible(text, keep="\n\t") + "\n")


def verbatim(text: str) -> None:
    """Write to standard output what a `tk` in a container made; raises as `data` does."""
    with _writing():
        _Output.written = sys.stdout
        sys.stdout.write(text)


def has_data() -> bool:
    """Whether anything was written to standard output as it is now."""
    return _Output.written is sys.stdout


def expect_nothing_written() -> None:
    """Begin anew: nothing was written to standard output."""
    _Output.written = None


def flush() -> None:
    """Make sure that standard output has everything; raises as `data` does."""
    with _writing():
        sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and not sys.stdout.closed:
            raise
        with contextlib.suppress(OSError):
            sys.stdout.close()  # else Python tries again at its end, and complains in its own way
        if isinstance(error, (BrokenPipeError, ValueError)):
            raise ReaderGoneError from error
        raise HostError("cannot write to standard output", why=error.strerror or str(error)) from error


def talk(text: str) -> None:
    """Write a line for the person to standard error; nobody listening is no reason to fail."""
    _say(_readable(text))


def warn(text: str) -> None:
    """Write a warning to standard error."""
    _say(f"{_styled('warning')}: {_readable(text)}")


def _readable(text: str) -> str:
    return cut_numbers(visible(text, keep="\n\t"))


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")


def can_ask() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty() and console_settings().interactive


def ask(question: str, *, default: bool) -> bool | None:
    """Ask a person yes or no, on the terminal; None where there is nobody to be asked."""
    if not can_ask():
        return None
    import typer

    return typer.confirm(question, default=default, err=True)


def show_error(error: TkError) -> None:
    """Write the error's lines to standard error: `error:`, `where:`, `why:`, `hint:`."""
    for line in error.lines():
        label, _, text = line.partition(": ")
        first, *more = text.splitlines() or [""]
        _say(f"{_styled(label)}: {first}")
        for part in more:
            _say(f"  {part}")


def error_document(error: TkError) -> dict[str, Any]:
    """The error for programs: what, where, why and hint, empty where nothing is to be said, and the code."""
    return {**dict(error.fields()), "code": int(error.code)}


def failed_document(name: str, error: TkError) -> dict[str, Any]:
    """One of several things, for programs, that ended with an error."""
    return {"name": name, "exit_code": int(error.code), "error": error_document(error)}


def failure_without_words(code: int) -> TkError:
    """The error for programs where only standard error and the exit code say what went wrong."""
    return TkError("the command failed", why="standard error says why", code=cast("ExitCode", code))


def data_json(value: object) -> None:
    """Write one JSON document to standard output."""
    text = json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False)
    verbatim(_NOT_ASCII.sub(_json_escape, text) + "\n")


def _json_escape(found: re.Match[str]) -> str:
    """A character inside of a JSON string: in JSON's own spelling where it would command a terminal."""
    one = found[0]
    if one.isprintable():
        return one
    return "\\u007f" if one == "\x7f" else json.dumps(one)[1:-1]


def jsonable(value: object) -> Any:
    """Turn records, paths and numbers of any kind into what JSON can say; NaN and infinities become text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: jsonable(getattr(value, one.name)) for one in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(one) for one in value]
    return _jsonable_leaf(value)


def _jsonable_leaf(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return jsonable(value.value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return jsonable(value.item()) if hasattr(value, "item") else str(value)


def table(header: Sequence[str], rows: Sequence[Sequence[object]], columns: int | None = None) -> str:
    """Align rows under a header: numbers right, text left, two blanks between columns.

    `columns` is the room for a line, by default that of the terminal, if standard output is one: the widest
    texts are broken into several lines then.
    """
    cells = [list(header), *([visible(_cell(one)) for one in row] for row in rows)]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    room = columns or console_settings().columns
    if room:
        widths = _fitting(cells, widths, right, room)
    pads = [f"{'>' if number else '<'}{width}" for number, width in zip(right, widths, strict=True)]
    lines = ("  ".join(map(format, line, pads)) for row in cells for line in _lines(row, widths))
    return "\n".join(line.rstrip() for line in lines)


def _fitting(
    cells: Sequence[Sequence[str]], widths: Sequence[int], fixed: Sequence[bool], room: int
) -> list[int]:
    """Widths that fit into a line: the widest texts get narrower, words are broken only when that must be."""
    found = list(widths)
    longest = [
        max(len(piece) for row in cells for piece in map(str.rstrip, _pieces(row[i])))
        for i in range(len(found))
    ]
    for least in (longest, [min(_NARROWEST, width) for width in widths]):
        while sum(found) + _GAP * (len(found) - 1) > room:
            wide = [i for i in range(len(found)) if not fixed[i] and found[i] > least[i]]
            if not wide:
                break
            found[max(wide, key=lambda i: found[i])] -= 1
    return found


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """The lines of one row, each cell within its width."""
    broken = [list(_broken(cell, width)) for cell, width in zip(row, widths, strict=True)]
    return itertools.zip_longest(*broken, fillvalue="")


def _broken(text: str, width: int) -> Iterator[str]:
    """A text as lines no longer than `width`, broken behind blanks and signs where it can be."""
    line = ""
    for piece in _pieces(text):
        if line and len(line) + len(piece.rstrip()) > width:
            yield line.rstrip()
            line = ""
        line += piece
        while len(line.rstrip()) > width:
            yield line[:width]
            line = line[width:]
    yield line.rstrip()


def _pieces(text: str) -> list[str]:
    """Where a text may be broken: behind blanks, commas, slashes and plus signs."""
    return _PIECE.findall(text) or [""]


def wrapped(text: str, indent: str) -> str:
    """A long line as several that fit the terminal, the later ones behind `indent`; unchanged without one."""
    room = console_settings().columns
    if not room or len(text) <= room:
        return text
    return textwrap.fill(text, room, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def size(count: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def shape(dims: Sequence[int | str]) -> str:
    """Dimensions as text: `1x3x224x224`, `scalar` when there are none."""
    more = f"x...({len(dims)} dimensions)" if len(dims) > _MOST_DIMS else ""
    return "x".join(str(dim) for dim in dims[:_MOST_DIMS]) + more or "scalar"


def _styled(label: str) -> str:
    if label not in _STYLES or not console_settings().color:
        return label
    return f"{_STYLES[label]}{label}{_RESET}"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)
