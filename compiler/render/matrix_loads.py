"""Operands of matrix units that lie in rows of shared memory: eight rows of 16 bytes at a time.

Each lane needs four bytes of a row. `ldmatrix` takes the beginning of one row from each lane, and gives every
lane its bytes of up to four matrices of eight rows; or, with `.trans`, two neighbours of a column of 16 bits
(PTX ISA: "Warp-level matrix load instruction").
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from compiler.loops.ir import SHARED, Buffer, Cast, Expr, Load, Ramp, Var, const
from compiler.loops.linear import Linear
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute

LANES = 32
_ROWS, _ROW_BYTES, _LANE_BYTES = 8, 16, 4
_TURNED_BYTES = 2
"""Of an element that is read by columns."""

_SHARE = _ROW_BYTES // _LANE_BYTES
"""Lanes that share a row."""


@dataclass(frozen=True, slots=True)
class RowLoads:
    """Consecutive operands, one of a matrix each: where the row of every lane begins.

    turned: a lane gets neighbours of a column, not of a row.
    """

    buffer: Buffer
    index: Expr
    count: int
    turned: bool


def row_loads(
    operands: Sequence[Expr], lanes: Collection[str], numbers: Mapping[str, Expr], known: Simplifier
) -> RowLoads | None:
    """How to load all of the operands at once; None where they do not lie so.

    lanes: variables that are the number of the lane. numbers: what is known of other variables.
    """
    loads = [_load_of(item) for item in operands]
    if any(load is None for load in loads) or len(loads) not in (1, 2, 4):
        return None
    (first, *others) = (load for load in loads if load is not None)
    between = _between(first)
    if any(load.buffer != first.buffer or _between(load) != between for load in others):
        return None
    places = [known.linear(substitute(_begin(load), dict(numbers))) for load in (first, *others)]
    steps = [place.constant - places[0].constant for place in places]
    own = {name for name in variables(known.emit(places[0])) if name in lanes}
    if len(own) != 1 or any(place.terms != places[0].terms for place in places):
        return None
    if len(steps) == 4 and steps[3] != steps[1] + steps[2]:
        return None
    lane, size = Var(own.pop()), first.buffer.dtype.bytes
    index = _rows(places[0], steps, lane, between, size, known)
    return None if index is None else RowLoads(first.buffer, index, len(loads), turned=between > 1)


def _load_of(operand: Expr) -> Load | None:
    """The load of four bytes that an operand is, rounded or not."""
    load = operand.value if isinstance(operand, Cast) else operand
    if not isinstance(load, Load) or load.buffer.scope != SHARED or load.mask is not None:
        return None
    index = load.indices[0]
    whole = index.dtype.lanes == 1 or (isinstance(index, Ramp) and int_of(index.stride) is not None)
    return load if whole and index.dtype.lanes * load.buffer.dtype.bytes == _LANE_BYTES else None


def _between(load: Load) -> int:
    """Elements from one that a lane needs to the next one."""
    index = load.indices[0]
    return (int_of(index.stride) or 0) if isinstance(index, Ramp) else 1


def _begin(load: Load) -> Expr:
    index = load.indices[0]
    return index.base if isinstance(index, Ramp) else index


def _rows(
    place: Linear, steps: Sequence[int], lane: Var, between: int, size: int, known: Simplifier
) -> Expr | None:
    """The place of a lane's row, from that of its own bytes in the first matrix.

    between: elements from one that a lane needs to the next one; several where rows are read by columns.
    """
    parts = {atom: factor for atom, factor in place.terms.items() if lane.name in variables(atom)}
    if any(variables(atom) != {lane.name} for atom in parts):
        return None
    tables = [(_of_lanes(atom, lane), factor) for atom, factor in parts.items()]
    if not all(table for table, _ in tables):
        return None
    values = [sum(table[n] * factor for table, factor in tables) for n in range(LANES)]
    rest = {atom: factor for atom, factor in place.terms.items() if atom not in parts}
    begins = values[::_SHARE] if between == 1 else [values[0], between]
    whole = _ROW_BYTES // size
    if any(number % whole for number in (*rest.values(), *steps, place.constant, *begins)):
        return None
    made, row = Linear(rest, place.constant), lane % _ROWS
    if between == 1 and _along_rows(values, _LANE_BYTES // size):
        for atom, factor in parts.items():
            made = made.plus(known.linear(substitute(atom, {lane.name: row * _SHARE})), factor)
    elif between > 1 and size == _TURNED_BYTES and values == _along_columns(values[0], between):
        made = made.plus(known.linear(row), between).plus(Linear({}, values[0]))
    else:
        return None
    if len(steps) > 1:
        made = made.plus(known.linear(lane // _ROWS % 2), steps[1])
    if len(steps) > 2:
        made = made.plus(known.linear(lane // (2 * _ROWS)), steps[2])
    return known.emit(made)


def _along_rows(values: Sequence[int], beside: int) -> bool:
    """Whether each four lanes have what lies side by side, so many elements each."""
    return all(values[n] - values[n - n % _SHARE] == n % _SHARE * beside for n in range(LANES))


def _along_columns(first: int, between: int) -> list[int]:
    """Where lanes find their first element, if each has two neighbours of a column."""
    return [first + n % _SHARE * 2 * between + n // _SHARE for n in range(LANES)]


@lru_cache(maxsize=1024)
def _of_lanes(atom: Expr, lane: Var) -> tuple[int, ...]:
    """What an expression is for each lane; empty where that is not known."""
    known = Simplifier({})
    found = [int_of(known.simplify(substitute(atom, {lane.name: const(n)}))) for n in range(LANES)]
    values = tuple(value for value in found if value is not None)
    return values if len(values) == LANES else ()
