"""What instructions of matrix units mean to the interpreter: made from their records, told on demand.

Apart from the records, because who prints kernels needs those and no numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from compiler.loops import intrinsics
from compiler.loops.interp_threads import Thread
from compiler.loops.interp_values import COMPUTE, ProgramError
from compiler.loops.intrinsics import Intrinsic
from compiler.loops.matrix_units.modes import size_of
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit


def register_units(units: Iterable[MatrixUnit]) -> None:
    """Let the interpreter know the calls of these instructions."""
    for unit in units:
        intrinsics.register_intrinsic(Intrinsic(unit.name, collective=partial(multiply, unit)))


def multiply(unit: MatrixUnit, _threads: Sequence[Thread], args: Sequence[Sequence[Any]]) -> list[Any]:
    """The sums that each lane holds afterwards, from what each brings: its sums, then its operands."""
    if len(args) != unit.lanes:
        raise ProgramError(
            f"`{unit.name}` needs a sub-group of {unit.lanes} lanes, this one has {len(args)}",
            hint="bind a loop of that extent to threadIdx.x",
        )
    ends = 1 + unit.operands()[0]
    wide = np.float32 if unit.total.is_float else np.int64
    a = _gathered(unit, unit.a, [own[1:ends] for own in args]).astype(wide)
    b = _gathered(unit, unit.b, [own[ends:] for own in args]).astype(wide)
    kind = COMPUTE[unit.total.name]
    product = (a @ b.T).astype(kind)
    return [
        np.array([own[0][n] + product[unit.c.place(lane, n)] for n in range(unit.c.registers)], kind)
        for lane, own in enumerate(args)
    ]


def _gathered(unit: MatrixUnit, fragment: Fragment, operands: Sequence[Sequence[Any]]) -> Any:
    """The tile that the lanes hold together; those that hold the same element have to agree."""
    tile = np.zeros((size_of(fragment.rows), size_of(fragment.columns)), COMPUTE[unit.factor.name])
    seen: set[tuple[int, int]] = set()
    for lane, own in enumerate(operands):
        for number in range(fragment.registers):
            value = np.atleast_1d(own[number // unit.pack])[number % unit.pack]
            place = fragment.place(lane, number)
            if place in seen and not np.array_equal(tile[place], value, equal_nan=unit.factor.is_float):
                raise ProgramError(f"lanes of `{unit.name}` hold different values of element {place}")
            seen.add(place)
            tile[place] = value
    return tile
