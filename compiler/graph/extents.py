"""Extents that a run decides: what its inputs say of the symbols, and the part of each tensor that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from compiler.core.diagnostics import UsageError
from compiler.graph.ir import Extent, Graph, Node, Shape, Symbol, TensorType, Value
from compiler.graph.op import Kind

_BYTE = 8

Ends = tuple[Extent | None, ...]
"""How much of each axis a run has; None: all of it."""


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
        why = f"the model takes multiples of {symbol.step}"
        raise UsageError(f"`{symbol.name}` cannot be {value}", why=why)


def with_counts(graph: Graph, symbols: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """The values of the symbols once a run has counted; raises UsageError for a count out of its range."""
    first = len(graph.symbols) - len(counts)
    for symbol, count in zip(graph.symbols[first:], counts, strict=True):
        if not symbol.minimum <= count <= symbol.maximum:
            why = f"it is from {symbol.minimum} to {symbol.maximum}"
            raise UsageError(f"`{symbol.name}` is {count} for these inputs", why=why)
    return (*symbols[:first], *counts)


def regrouped(shape: Shape, axis: int, extent: Extent, other: Shape) -> tuple[int, Extent] | None:
    """The axis of another shape of the same memory that ends where this one does, and its extent.

    None where there is none: an axis that ends, or an extent that ends, inside of an element of the other's.
    """
    row = prod(shape[axis + 1 :])
    for at, size in enumerate(other):
        other_row = prod(other[at + 1 :])
        if size > 1 and size * other_row == shape[axis] * row:
            found = _in_rows(extent, row, other_row)
            return None if found is None else (at, found)
    return None


def _in_rows(extent: Extent, row: int, other: int) -> Extent | None:
    """An extent in rows of so many elements as one in rows of as many others; None where it is not whole."""
    if row == other:
        return extent
    numbers = [number * row for number in (extent.offset, *extent.factors)]
    if extent.divisor != 1 or any(number % other for number in numbers):
        return None
    offset, *factors = (number // other for number in numbers)
    return Extent(tuple(factors), offset)


def undefined_after(graph: Graph, moved: Mapping[Value, Value], made: Graph) -> Mapping[Value, Ends]:
    """`Graph.undefined` of what a rewrite made, in which others stand for some values of the graph before.

    What stands for several has no meaning where none of these has; nor has what is seen through one view.
    """
    if not graph.undefined:
        return {}
    found: dict[Value, Ends] = {}
    for old in graph.producers:
        new, ends = moved.get(old, old), graph.undefined.get(old, (None,) * old.type.rank)
        before = found.setdefault(new, ends)
        found[new] = tuple(one if one == other else None for one, other in zip(ends, before, strict=True))
    for node in reversed(made.nodes):
        source = node.inputs[0] if node.inputs else None
        if source is None or source in found or not _is_all_of(made, node, source):
            continue
        ends = found.get(node.output, ())
        found[source] = _through(node.output.type.shape, ends, source.type.shape)
    return {value: ends for value, ends in found.items() if any(ends)}


def _is_all_of(graph: Graph, node: Node, source: Value) -> bool:
    """Whether a node is the only one that reads a tensor, and shows all of it as another shape."""
    alone = len(graph.users(source)) == 1 and source not in graph.output_set
    return node.op.kind is Kind.VIEW and source.type.size == node.output.type.size and alone


def _through(shape: Shape, ends: Ends, other: Shape) -> Ends:
    """The ends of a shape, of another one of the same memory."""
    rows = (regrouped(shape, axis, end, other) for axis, end in enumerate(ends) if end is not None)
    found = dict(item for item in rows if item is not None)
    return tuple(found.get(axis) for axis in range(len(other)))


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
