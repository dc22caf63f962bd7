"""Extents that a run decides: what its inputs say of the symbols, and the part of each tensor that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.core.diagnostics import UsageError
from compiler.graph.ir import Extent, Graph, Shape, Symbol, TensorType, Value

_BYTE = 8


def symbol_of(extent: Extent | None) -> int | None:
    """The number of the symbol that an axis is and nothing else, or None."""
    if extent is None or extent.offset or extent.divisor != 1:
        return None
    used = [number for number, factor in enumerate(extent.factors) if factor]
    return used[0] if len(used) == 1 and extent.factors[used[0]] == 1 else None


def part_of(graph: Graph, value: Value, symbols: Sequence[int]) -> Shape:
    """The shape of the part of a tensor that a run has with these values of the symbols."""
    extents = graph.extents.get(value, (None,) * value.type.rank)
    pairs = zip(value.type.shape, extents, strict=True)
    return tuple(full if extent is None else extent.of(symbols) for full, extent in pairs)


def symbols_of(graph: Graph, shapes: Mapping[str, Shape]) -> tuple[int, ...]:
    """The values of the symbols in a run with inputs of these shapes, by name; of counted ones the largest.

    An axis that is a symbol and nothing else defines it, all others have to agree. Raises UsageError where
    they do not, and for a value out of its range.
    """
    found: dict[int, int] = {}
    operands = [
        (name, shapes[name], _extents(graph, value))
        for name, value in zip(graph.input_names, graph.operands, strict=False)
    ]
    for _, shape, extents in operands:
        for size, extent in zip(shape, extents, strict=False):
            number = symbol_of(extent)
            if number is not None:
                found.setdefault(number, size)
    for number, symbol in enumerate(graph.symbols):
        if symbol.counted:
            found[number] = symbol.maximum
        _check_value(symbol, found.get(number))
    values = tuple(found[number] for number in range(len(graph.symbols)))
    for (name, shape, _), value in zip(operands, graph.operands, strict=True):
        if shape != part_of(graph, value, values):
            why = f"with the other inputs it is {list(part_of(graph, value, values))}"
            raise UsageError(f"input {name!r} has the shape {list(shape)}", why=why)
    return values


def _check_value(symbol: Symbol, value: int | None) -> None:
    if value is None:
        raise UsageError(f"no input says what `{symbol.name}` is")
    if not symbol.minimum <= value <= symbol.maximum:
        why = f"it is from {symbol.minimum} to {symbol.maximum}"
        raise UsageError(f"`{symbol.name}` cannot be {value}", why=why)
    if value % symbol.step:
        raise UsageError(
            f"`{symbol.name}` cannot be {value}", why=f"the model takes multiples of {symbol.step}"
        )


def with_counts(graph: Graph, symbols: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """The values of the symbols once a run has counted; raises UsageError for a count out of its range."""
    first = len(graph.symbols) - len(counts)
    for symbol, count in zip(graph.symbols[first:], counts, strict=True):
        if not symbol.minimum <= count <= symbol.maximum:
            why = f"it is from {symbol.minimum} to {symbol.maximum}"
            raise UsageError(f"`{symbol.name}` is {count} for these inputs", why=why)
    return (*symbols[:first], *counts)


def _extents(graph: Graph, value: Value) -> tuple[Extent | None, ...]:
    return graph.extents.get(value, (None,) * value.type.rank)


def dims_text(graph: Graph, value: Value, kind: TensorType) -> tuple[int | str, ...]:
    """The shape of an input or output for people: names of free dimensions, and what follows from them.

    kind: its type as the model declares it.
    """
    names = [symbol.name or f"d{number}" for number, symbol in enumerate(graph.symbols)]
    extents = graph.extents.get(value, (None,) * kind.rank)
    pairs = zip(kind.shape, extents, strict=True)
    dims = [size if extent is None else extent_text(extent, names) for size, extent in pairs]
    return tuple(dims if graph.batch is None else (graph.batch.name, *dims[1:]))


def extent_text(extent: Extent, names: Sequence[str]) -> str:
    """`rows`, `past + new`, `(2*rows + 1)//2`."""
    text = ""
    for factor, name in zip(extent.factors, names, strict=True):
        if factor:
            text += _joined(text, factor, name if abs(factor) == 1 else f"{abs(factor)}*{name}")
    if extent.offset or not text:
        text += _joined(text, extent.offset, str(abs(extent.offset)))
    return text if extent.divisor == 1 else f"({text})//{extent.divisor}"


def _joined(before: str, sign: int, term: str) -> str:
    if before:
        return f" - {term}" if sign < 0 else f" + {term}"
    return f"-{term}" if sign < 0 else term


def packed_ends(graph: Graph) -> list[str]:
    """Inputs and outputs of fewer than 8 bits an element whose extents a run decides.

    Such elements are packed without gaps, so that rows would begin inside bytes.
    """
    ends = (
        *zip(graph.operands, graph.input_names, strict=False),
        *zip(graph.results, graph.output_names, strict=False),
    )
    return [name for value, name in ends if value in graph.extents and value.type.dtype.bits % _BYTE]
