"""How `tk` talks: data to standard output, everything else to standard error, readable without colour."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import HostError, Progress, TkError, silent
from toolchain.settings import console_settings

if TYPE_CHECKING:
    from toolchain.progress import Unit

_PATIENCE_SECONDS = 2.0
_STYLES = {"error": "\x1b[1;31m", "warning": "\x1b[1;33m", "hint": "\x1b[1;36m"}
_RESET = "\x1b[0m"


def data(text: str) -> None:
    """Write a line of the command's result to standard output; raises HostError if it cannot be written."""
    with _writing():
        sys.stdout.write(text + "\n")


def flush() -> None:
    """Make sure that standard output has everything; raises HostError if it cannot be written."""
    with _writing():
        sys.stdout.flush()


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            sys.stdout.close()  # else Python tries again at its end, and complains in its own way
        raise HostError("cannot write to standard output", why=error.strerror or str(error)) from error


def talk(text: str) -> None:
    """Write a line for the person to standard error."""
    sys.stderr.write(text + "\n")


def warn(text: str) -> None:
    """Write a warning to standard error."""
    talk(f"{_styled('warning')}: {text}")


def show_error(error: TkError) -> None:
    """Write the error's lines to standard error: `error:`, `where:`, `why:`, `hint:`."""
    for line in error.lines():
        label, _, text = line.partition(": ")
        first, *more = text.splitlines() or [""]
        talk(f"{_styled(label)}: {first}")
        for part in more:
            talk(f"  {part}")


def data_json(value: object) -> None:
    """Write one JSON document to standard output."""
    data(json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False))


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


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Align rows under a header: numbers right, text left, two blanks between columns."""
    cells = [[_cell(one) for one in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *cells]) for i in range(len(header))]
    right = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(header))]
    pads = [f"{'>' if number else '<'}{width}" for number, width in zip(right, widths, strict=True)]
    lines = ("  ".join(map(format, row, pads)) for row in [list(header), *cells])
    return "\n".join(line.rstrip() for line in lines)


def size(count: float) -> str:
    """Bytes for people, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def shape(dims: Sequence[int | str]) -> str:
    """Dimensions as text: `1x3x224x224`, `scalar` when there are none."""
    return "x".join(str(dim) for dim in dims) or "scalar"


@contextlib.contextmanager
def progress(doing: str, unit: Unit = "steps") -> Iterator[Progress]:
    """Show on an interactive terminal, after two seconds, what is being waited for and for how long still.

    Gives what the work is to call to tell how far it has come; without a terminal that tells nobody.
    """
    settings = console_settings()
    if not settings.interactive:
        yield silent
        return
    from toolchain.progress import ProgressBar

    bar = ProgressBar(doing, unit, settings, _PATIENCE_SECONDS)
    bar.start()
    try:
        yield bar
    finally:
        bar.close()


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
