"""Operands of matrix units that lie in rows of shared memory: eight rows of 16 bytes at a time.

Each lane needs four bytes of a row. `ldmatrix` takes the beginning of one row from each lane, and gives every
lane its bytes of up to four matrices of eight rows (PTX ISA: "Warp-level matrix load instruction").
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
_SHARE = _ROW_BYTES // _LANE_BYTES
"""Lanes that share a row."""


@dataclass(frozen=True, slots=True)
class RowLoads:
    """Consecutive operands, one of a matrix each: where the row of every lane begins."""

    buffer: Buffer
    index: Expr
    count: int


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
    if any(load.buffer != first.buffer for load in others):
        return None
    places = [known.linear(substitute(_begin(load), dict(numbers))) for load in (first, *others)]
    steps = [place.constant - places[0].constant for place in places]
    own = {name for name in variables(known.emit(places[0])) if name in lanes}
    if len(own) != 1 or any(place.terms != places[0].terms for place in places):
        return None
    if len(steps) == 4 and steps[3] != steps[1] + steps[2]:
        return None
    index = _rows(places[0], steps, Var(own.pop()), first.buffer.dtype.bytes, known)
    return None if index is None else RowLoads(first.buffer, index, len(loads))


def _load_of(operand: Expr) -> Load | None:
    """The load of four bytes that an operand is, rounded or not."""
    load = operand.value if isinstance(operand, Cast) else operand
    if not isinstance(load, Load) or load.buffer.scope != SHARED or load.mask is not None:
        return None
    index = load.indices[0]
    whole = index.dtype.lanes == 1 or (isinstance(index, Ramp) and index.stride == const(1))
    return load if whole and index.dtype.lanes * load.buffer.dtype.bytes == _LANE_BYTES else None


def _begin(load: Load) -> Expr:
    index = load.indices[0]
    return index.base if isinstance(index, Ramp) else index


def _rows(place: Linear, steps: Sequence[int], lane: Var, size: int, known: Simplifier) -> Expr | None:
    """The place of a lane's row, from that of its own bytes in the first matrix."""
    parts = {atom: factor for atom, factor in place.terms.items() if lane.name in variables(atom)}
    if any(variables(atom) != {lane.name} for atom in parts):
        return None
    tables = [(_of_lanes(atom, lane), factor) for atom, factor in parts.items()]
    if not all(table for table, _ in tables):
        return None
    values = [sum(table[n] * factor for table, factor in tables) for n in range(LANES)]
    beside = _LANE_BYTES // size
    if any(values[n] - values[n - n % _SHARE] != n % _SHARE * beside for n in range(LANES)):
        return None
    rest = {atom: factor for atom, factor in place.terms.items() if atom not in parts}
    whole = _ROW_BYTES // size
    if any(number % whole for number in (*rest.values(), *steps, place.constant, *values[::_SHARE])):
        return None
    row = lane % _ROWS * _SHARE
    made = Linear(rest, place.constant)
    for atom, factor in parts.items():
        made = made.plus(known.linear(substitute(atom, {lane.name: row})), factor)
    if len(steps) > 1:
        made = made.plus(known.linear(lane // _ROWS % 2), steps[1])
    if len(steps) > 2:
        made = made.plus(known.linear(lane // (2 * _ROWS)), steps[2])
    return known.emit(made)


@lru_cache(maxsize=1024)
def _of_lanes(atom: Expr, lane: Var) -> tuple[int, ...]:
    """What an expression is for each lane; empty where that is not known."""
    known = Simplifier({})
    found = [int_of(known.simplify(substitute(atom, {lane.name: const(n)}))) for n in range(LANES)]
    values = tuple(value for value in found if value is not None)
    return values if len(values) == LANES else ()
