"""Dimensions of inputs that the model leaves open: all of them in one error, with options that would do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.core.diagnostics import UsageError
from compiler.core.units import counted
from compiler.core.visible import some, visible

Declared = tuple[int | str, ...]
"""Extents and symbols; an empty symbol stands for a dimension without name."""

_SHOWN = 12
_IMAGE = 224  # rows and columns that most networks for images take
_SEQUENCE = 128
_CHANNELS = 3
_GUESSES = (
    (("height", "width", "rows", "cols", "image_size"), _IMAGE),
    (("channel",), _CHANNELS),
    (("seq", "length", "len", "tokens", "time"), _SEQUENCE),
)
_LETTERS = {"h": _IMAGE, "w": _IMAGE, "c": _CHANNELS}


@dataclass(frozen=True, slots=True)
class OpenInput:
    """An input with open dimensions: its declared shape (None: not even the rank), symbols still unknown."""

    name: str
    declared: Declared | None
    symbols: tuple[str, ...]


class OpenDimensionsError(UsageError):
    """Inputs have dimensions without a value; `options` are words of a command line that would give them.

    not_free: why a library for any extents of them cannot be made.
    """

    def __init__(self, inputs: Sequence[OpenInput], where: str, not_free: str = "") -> None:
        self.inputs = tuple(inputs)
        self.options = example(self.inputs)
        self.not_free = not_free
        count = len(_free(self.inputs))
        fixed = [f"they cannot all stay free: {not_free}"] if not_free else []
        super().__init__(
            f"the model has {counted(count, 'dimension')} without a value",
            where=where,
            why="\n".join(["", *_rows(self.inputs), *fixed]),
            hint=f"give values, for example {shlex.join(self.options)}",
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Copy with the inputs, also across process pools."""
        return (OpenDimensionsError, (self.inputs, self.where, self.not_free))


def open_dimensions(
    declared: Mapping[str, Declared | None], symbols: Mapping[str, int]
) -> tuple[OpenInput, ...]:
    """The inputs of which not all is known when `symbols` have these values."""
    found = []
    for name, shape in declared.items():
        left = tuple(dict.fromkeys(one for one in shape or () if isinstance(one, str) and one not in symbols))
        if shape is None or left:
            # What is known of a shape is written into it.
            known = None if shape is None else tuple(symbols.get(one, one) for one in shape)  # type: ignore[arg-type]
            found.append(OpenInput(name, known, left))
    return tuple(found)


def batch_name(inputs: Sequence[OpenInput]) -> str | None:
    """What a model calls the first dimension of its inputs, where no other one is open; "batch" without name.

    None where more is open, or dimensions of several names.
    """
    firsts = {one.declared[0] for one in inputs if one.declared}
    others = [item for one in inputs for item in (one.declared or ("",))[1:] if isinstance(item, str)]
    if len(firsts) != 1 or others or any(not one.declared for one in inputs):
        return None
    name = str(next(iter(firsts)))
    return name or ("batch" if len(inputs) == 1 else None)


def declared_text(declared: Declared) -> str:
    """A shape as the model says it: `[batch, 3, ?, ?]`."""
    return f"[{', '.join(str(item) if item != '' else '?' for item in declared)}]"


def example(inputs: Sequence[OpenInput]) -> tuple[str, ...]:
    """Options that give every open dimension a value: `--dim` for symbols, `--shape` where there is none."""
    words: list[str] = []
    fixed: set[str] = set()
    for one in inputs:
        if one.declared is None:
            words += ["--shape", f"{one.name}=1,{_CHANNELS},{_IMAGE},{_IMAGE}"]
        elif "" in one.symbols:
            extents = [_guess(one.declared, at) for at in range(len(one.declared))]
            words += ["--shape", f"{one.name}={','.join(map(str, extents))}"]
            fixed.update(one.symbols)
    named = dict.fromkeys(symbol for one in inputs for symbol in one.symbols)
    for symbol in named:
        if symbol not in fixed:
            words += ["--dim", f"{symbol}={_of_symbol(symbol)}"]
    return tuple(words)


def _guess(declared: Declared, at: int) -> int:
    """A value for one dimension that many networks take: an image's where there are four."""
    item = declared[at]
    if isinstance(item, int):
        return item
    if item:
        return _of_symbol(item)
    if len(declared) != 4 or at == 0:
        return 1
    channels_last = isinstance(declared[3], int)
    if at == 1 and not channels_last:
        return _CHANNELS
    return _IMAGE


def _of_symbol(symbol: str) -> int:
    name = symbol.casefold()
    if name in _LETTERS:
        return _LETTERS[name]
    return next((value for parts, value in _GUESSES if any(part in name for part in parts)), 1)


def _free(inputs: Sequence[OpenInput]) -> list[str]:
    """Each free dimension: a symbol once, those without a name each, and inputs without a shape."""
    named = dict.fromkeys(symbol for one in inputs for symbol in one.symbols if symbol)
    plain = [one.name for one in inputs for item in one.declared or () if item == ""]
    return [*named, *plain, *(one.name for one in inputs if one.declared is None)]


def _rows(inputs: Sequence[OpenInput]) -> list[str]:
    rows = [f"{visible(one.name)} {_shape(one)}" for one in inputs[:_SHOWN]]
    if len(inputs) > _SHOWN:
        rows.append(f"and {len(inputs) - _SHOWN} more inputs")
    symbols = list(dict.fromkeys(symbol for one in inputs for symbol in one.symbols if symbol))
    return [*rows, f"free: {some(symbols, 40)}"] if symbols else rows


def _shape(one: OpenInput) -> str:
    return (
        "of a shape that the model does not say"
        if one.declared is None
        else visible(declared_text(one.declared))
    )
