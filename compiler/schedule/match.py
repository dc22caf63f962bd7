"""Whether two stores compute the same on different buffers, and where these lie in one another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.node import IRNode
from compiler.core.types import INDEX
from compiler.loops.ir import Binary, Buffer, Const, Expr, Indexed, Ramp, Store, Var
from compiler.loops.queries import variables
from compiler.loops.simplify import Simplifier

_COMMUTATIVE = frozenset({"add", "mul", "min", "max"})


@dataclass(frozen=True, slots=True)
class Places:
    """A tile of `buffer`: element (i, j, ...) of the tile is at `base` with i, j, ... added in `dims`.

    `dims[k]` is the dimension of the buffer along which dimension k of the tile runs; None for extent 1.
    """

    buffer: Buffer
    base: tuple[Expr, ...]
    dims: tuple[int | None, ...]

    def at(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """The indices in the buffer of an element of the tile; a ramp stays a ramp."""
        found = list(self.base)
        for dim, index in zip(self.dims, indices, strict=True):
            if dim is not None:
                found[dim] = _plus(found[dim], index)
        return tuple(found)

    def extended(self, values: Sequence[Expr], other: Expr) -> tuple[Expr, ...]:
        """One value for each dimension of the buffer; `other` where the tile does not move."""
        found = [other for _ in self.base]
        for dim, value in zip(self.dims, values, strict=True):
            if dim is not None:
                found[dim] = value
        return tuple(found)

    @property
    def keeps_last(self) -> bool:
        """Whether neighbours along the last dimension of the tile are neighbours in the buffer."""
        return bool(self.dims) and self.dims[-1] == len(self.base) - 1


def _plus(base: Expr, index: Expr) -> Expr:
    if isinstance(index, Ramp):
        return index.replace(base=base + index.base)
    return base + index


def match(pattern: Store, target: Store, moving: set[str], known: Simplifier) -> dict[str, Places] | None:
    """Where the buffers of the pattern lie, when the target computes the same; None when it does not.

    moving: the loop variables that both share; all others stand still.
    """
    found: dict[str, Places] = {}
    return found if _same(pattern, target, moving, known, found) else None


def _same(a: IRNode, b: IRNode, moving: set[str], known: Simplifier, found: dict[str, Places]) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Expr) and isinstance(b, Expr) and a.dtype != b.dtype:
        return False
    if isinstance(a, Indexed) and isinstance(b, Indexed):
        return _same_access(a, b, moving, known, found)
    if isinstance(a, Binary) and isinstance(b, Binary) and a.op in _COMMUTATIVE and a.op == b.op:
        return _either_order(a, b, moving, known, found)
    if isinstance(a, Var | Const):
        return a == b
    return _same_fields(a, b, moving, known, found)


def _either_order(
    a: Binary, b: Binary, moving: set[str], known: Simplifier, found: dict[str, Places]
) -> bool:
    for first, second in ((b.a, b.b), (b.b, b.a)):
        attempt = dict(found)
        if _same(a.a, first, moving, known, attempt) and _same(a.b, second, moving, known, attempt):
            found.update(attempt)
            return True
    return False


def _same_fields(a: IRNode, b: IRNode, moving: set[str], known: Simplifier, found: dict[str, Places]) -> bool:
    mine, theirs = a.children(), b.children()
    if len(mine) != len(theirs):
        return False
    for name in a.FIELDS:
        x, y = getattr(a, name), getattr(b, name)
        if not isinstance(x, IRNode | tuple) and x != y:
            return False
    return all(_same(x, y, moving, known, found) for x, y in zip(mine, theirs, strict=True))


def _same_access(
    a: Indexed,
    b: Indexed,
    moving: set[str],
    known: Simplifier,
    found: dict[str, Places],
) -> bool:
    if a.buffer.dtype != b.buffer.dtype or getattr(b, "mask", None) is not None:
        return False
    place = _place(a.indices, b.buffer, b.indices, moving, known)
    if place is None or found.setdefault(a.buffer.name, place) != place:
        return False
    if isinstance(a, Store) and isinstance(b, Store):
        return _same(a.value, b.value, moving, known, found)
    return True


def _place(
    pattern: Sequence[Expr], buffer: Buffer, indices: Sequence[Expr], moving: set[str], known: Simplifier
) -> Places | None:
    """Match the dimensions that move, in order."""
    free = [number for number, item in enumerate(indices) if not variables(item).isdisjoint(moving)]
    base: list[Expr] = list(indices)
    dims: list[int | None] = []
    for item in pattern:
        if variables(item).isdisjoint(moving):
            if not (isinstance(item, Const) and item.value == 0):
                return None
            dims.append(None)
            continue
        if not free:
            return None
        dim = free.pop(0)
        rest = known.linear(indices[dim]).plus(known.linear(item), -1)
        base[dim] = known.emit(rest)
        if base[dim].dtype != INDEX or not variables(base[dim]).isdisjoint(moving):
            return None
        dims.append(dim)
    return None if free else Places(buffer, tuple(base), tuple(dims))
