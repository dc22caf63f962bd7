"""What an access touches under each of the loops around it, as far as strides tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.loops.ir import Binary, Broadcast, Buffer, Cast, Const, Expr, For, Indexed, Ramp, Select, Var
from compiler.loops.queries import int_of

Slopes = dict[str, float]
"""How far an index moves for a step of each variable; on average, where it is divided."""


def slopes(expr: Expr, known: Mapping[str, Slopes]) -> Slopes:
    """The slopes of an index; `known` has those of variables that stand for an expression."""
    if isinstance(expr, Var):
        return dict(known.get(expr.name, {expr.name: 1.0}))
    if isinstance(expr, Ramp):
        return slopes(expr.base, known)
    if isinstance(expr, Broadcast | Cast):
        return slopes(expr.value, known)
    if isinstance(expr, Select):
        return slopes(expr.a, known) or slopes(expr.b, known)
    if not isinstance(expr, Binary):
        return {}
    return _of_binary(expr, slopes(expr.a, known), slopes(expr.b, known))


def _of_binary(expr: Binary, a: Slopes, b: Slopes) -> Slopes:
    if expr.op in ("add", "sub"):
        sign = 1.0 if expr.op == "add" else -1.0
        return {name: a.get(name, 0.0) + sign * b.get(name, 0.0) for name in a | b}
    if expr.op == "mul":
        factor = expr.b if isinstance(expr.b, Const) else expr.a
        times = float(factor.value) if isinstance(factor, Const) else 1.0
        return {name: times * slope for name, slope in (a or b).items()}
    if expr.op in ("floordiv", "truncdiv", "floormod", "truncmod"):
        divisor = abs(int_of(expr.b) or 1)
        if expr.op.endswith("div"):
            return {name: slope / divisor for name, slope in a.items()}
        return {name: slope for name, slope in a.items() if abs(slope) < divisor}
    return a or b  # the nearer one of two places, as at the last tile of a row


@dataclass(frozen=True, slots=True)
class Touched:
    """One access under some loops, outermost first.

    unique: bytes touched by everything inside of loop number n, for each n and for the access alone. lines:
    the same in lines of the cache. strides: bytes from one iteration of each loop to the next one.
    """

    buffer: Buffer
    writes: bool
    width: int
    unique: tuple[float, ...]
    lines: tuple[float, ...]
    strides: tuple[float, ...]


_LINE = 64.0


def touched(
    access: Indexed, loops: Sequence[tuple[For, float]], known: Mapping[str, Slopes], *, writes: bool
) -> Touched:
    """What an access touches; `loops` come with their trips."""
    size = access.buffer.dtype.bytes
    index = _flat(access, known)
    steps = [abs(index.get(loop.var.name, 0.0)) * size for loop, _ in loops]
    contiguous = all(_is_row(item) for item in access.indices)
    own = float(size * (access.width if contiguous else 1))
    unique, lines = [own], [max(1.0, own / _LINE) if contiguous else float(access.width)]
    span, count = own, 1.0
    for (_, trips), step in zip(reversed(loops), reversed(steps), strict=True):
        if step > 0:
            span += step * (trips - 1)
            count *= trips
        unique.append(min(own * count, span))
        lines.append(min(lines[0] * count, max(span / _LINE, 1.0)))
    return Touched(
        access.buffer, writes, access.width, tuple(reversed(unique)), tuple(reversed(lines)), tuple(steps)
    )


def _flat(access: Indexed, known: Mapping[str, Slopes]) -> Slopes:
    """Slopes of the element's number in the buffer."""
    total: Slopes = {}
    stride = 1.0
    for index, extent in zip(reversed(access.indices), reversed(access.buffer.shape), strict=True):
        for name, slope in slopes(index, known).items():
            total[name] = total.get(name, 0.0) + stride * slope
        stride *= int_of(extent) or 1
    return total


def _is_row(index: Expr) -> bool:
    """Whether lanes lie side by side."""
    return index.dtype.lanes == 1 or (isinstance(index, Ramp) and int_of(index.stride) == 1)


def traffic(accesses: Sequence[Touched], trips: Sequence[float], room: float) -> float:
    """Bytes that come into a memory of `room` bytes for all iterations of the loops around.

    Loops whose data fits at once bring it in once; those further out bring it in again.
    """
    fits = next(
        (n for n in range(len(trips) + 1) if sum(item.unique[n] for item in accesses) <= room), len(trips)
    )
    again = math.prod(trips[:fits])
    moved = 0.0
    for item in accesses:
        # A loop that does not move an access lets it stay while the loops inside of it fit.
        stays = fits
        while stays > 0 and item.strides[stays - 1] == 0:
            stays -= 1
        moved += item.unique[fits] * (again if stays == fits else math.prod(trips[:stays]))
    return moved
