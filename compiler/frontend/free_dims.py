"""Dimensions of inputs that stay free: symbols, ranges of their values, and options for one value each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compiler.frontend.open_dims import OpenInput

Range = tuple[int, int]
"""Least and largest value."""
Given = int | Range
"""A value, or a range of which a run has one."""
_TERM = re.compile(r"\s*([A-Za-z_][\w./]*|\d+)\s*")


@dataclass(frozen=True, slots=True)
class SymbolSum:
    """An extent: a number and some symbols."""

    symbols: tuple[str, ...]
    number: int = 0


@dataclass(frozen=True, slots=True)
class FreeDims:
    """The symbols of a model's inputs, and how inputs follow from their values.

    symbols: by name, with the range that the caller gave. batch: which of them is the first dimension of all
    open inputs; "" where there is none. inputs: extents of each open input, as declared and as sums.
    """

    symbols: Mapping[str, Range | None]
    batch: str
    inputs: tuple[tuple[OpenInput, tuple[int | SymbolSum, ...]], ...]

    def options(self, values: Mapping[str, int]) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
        """`--shape` and `--dim` for these values of the symbols."""
        shapes: dict[str, tuple[int, ...]] = {}
        dims: dict[str, int] = {}
        for one, extents in self.inputs:
            found = tuple(item if isinstance(item, int) else _value(item, values) for item in extents)
            names = one.declared or ()
            if all(item != "" for item in names):
                pairs = zip(names, found, strict=True)
                dims.update({item: extent for item, extent in pairs if isinstance(item, str)})
            else:
                shapes[one.name] = found
        return shapes, dims

    def with_sum(self, symbol: str, terms: tuple[str, ...], number: int = 0) -> FreeDims:
        """The same where one symbol is the sum of others and a number."""
        whole, total = SymbolSum((symbol,)), SymbolSum(terms, number)
        inputs = tuple(
            (one, tuple(total if item == whole else item for item in extents)) for one, extents in self.inputs
        )
        left = {name: item for name, item in self.symbols.items() if name != symbol}
        return replace(self, symbols=left, inputs=inputs)

    def with_values(self, values: Mapping[str, Given]) -> FreeDims:
        """The same where symbols have a value each, which are no symbols then, or other ranges."""
        fixed = {name: item for name, item in values.items() if isinstance(item, int)}
        ranges = {name: item for name, item in values.items() if not isinstance(item, int)}
        return FreeDims(
            {name: ranges.get(name, item) for name, item in self.symbols.items() if name not in fixed},
            "" if self.batch in fixed else self.batch,
            tuple(
                (one, tuple(_with_values(item, fixed) for item in extents)) for one, extents in self.inputs
            ),
        )

    def is_named(self, symbol: str) -> bool:
        """Whether the model has a name for it."""
        return any(symbol in (one.declared or ()) for one, _ in self.inputs)

    def is_term(self, symbol: str) -> bool:
        """Whether extents are the sum of this symbol and more."""
        sums = (item for _, extents in self.inputs for item in extents if isinstance(item, SymbolSum))
        return any(symbol in item.symbols and item != SymbolSum((symbol,)) for item in sums)


NOTHING_FREE = FreeDims({}, "", ())
"""Of inputs whose extents are all known."""


def free_dims(
    inputs: Sequence[OpenInput], shapes: Mapping[str, Sequence[Given]], dims: Mapping[str, Given]
) -> FreeDims | None:
    """What stays free; None where an input does not even have a rank.

    shapes, dims: what the caller gave with ranges.
    """
    if any(one.declared is None and one.name not in shapes for one in inputs):
        return None
    names = {str(item) for one in inputs for item in one.declared or () if item and not isinstance(item, int)}
    ranges: dict[str, Range | None] = {}
    rows = []
    for one in inputs:
        extents: list[int | SymbolSum] = []
        given = shapes.get(one.name)
        for axis, item in enumerate(one.declared or given or ()):
            asked = given[axis] if given is not None and axis < len(given) else None
            found = _extent(one.name, axis, item if one.declared else "", asked, names)
            extents.append(found)
            for symbol in found.symbols if isinstance(found, SymbolSum) else ():
                alone = found == SymbolSum((symbol,))
                wanted = (asked if alone else None) or dims.get(symbol)
                ranges[symbol] = (wanted if isinstance(wanted, tuple) else None) or ranges.get(symbol)
        rows.append((one, tuple(extents)))
    return FreeDims(ranges, _batch(inputs, rows), tuple(rows))


def _extent(name: str, axis: int, item: object, asked: Given | None, names: set[str]) -> int | SymbolSum:
    if isinstance(asked, int):
        return asked
    if isinstance(item, int):
        return item
    return _sum(str(item), names) if item else SymbolSum((f"{name}[{axis}]",))


def _sum(text: str, names: set[str]) -> SymbolSum:
    """A name as exporters write it: that of a symbol, or `past + 1` of others."""
    terms = [found.group(1) for part in text.split("+") if (found := _TERM.fullmatch(part))]
    if len(terms) < 2 or len(terms) != text.count("+") + 1:
        return SymbolSum((text,))
    symbols = tuple(item for item in terms if not item.isdigit())
    if not all(item in names for item in symbols):
        return SymbolSum((text,))
    return SymbolSum(symbols, sum(int(item) for item in terms if item.isdigit()))


def _batch(inputs: Sequence[OpenInput], rows: Sequence[tuple[OpenInput, tuple[int | SymbolSum, ...]]]) -> str:
    """The symbol that is the first dimension of all open inputs, and no other one."""
    firsts = {extents[0] if extents else None for _, extents in rows}
    others = {item for _, extents in rows for item in extents[1:]}
    first = next(iter(firsts))
    if len(firsts) != 1 or not isinstance(first, SymbolSum) or len(first.symbols) != 1 or first.number:
        return ""
    named = bool(inputs[0].declared and inputs[0].declared[0])
    uses = {symbol for item in others if isinstance(item, SymbolSum) for symbol in item.symbols}
    return first.symbols[0] if first.symbols[0] not in uses and (named or len(inputs) == 1) else ""


def _with_values(item: int | SymbolSum, values: Mapping[str, int]) -> int | SymbolSum:
    if isinstance(item, int):
        return item
    left = tuple(symbol for symbol in item.symbols if symbol not in values)
    number = item.number + sum(values.get(symbol, 0) for symbol in item.symbols)
    return SymbolSum(left, number) if left else number


def _value(item: SymbolSum, values: Mapping[str, int]) -> int:
    return item.number + sum(values[symbol] for symbol in item.symbols)
