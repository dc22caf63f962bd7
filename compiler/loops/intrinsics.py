"""Meaning of target intrinsics, by name: what a call does when the interpreter meets it.

A target that brings intrinsics registers their meaning here, so that a tensorised program can be checked on
any machine. `run(thread, args)` gets what the call was given (numbers, vectors, `Address`es); a collective
one is called once for a sub-group: `run(threads, args of each)` returns one result per thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import product
from typing import Any

from compiler.core.diagnostics import InternalError
from compiler.loops.interp_math import REDUCERS
from compiler.loops.interp_threads import Thread
from compiler.loops.interp_values import Address, ProgramError


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """The meaning of one intrinsic; exactly one of `single` and `collective` is given."""

    name: str
    single: Callable[[Thread, Sequence[Any]], Any] | None = None
    collective: Callable[[Sequence[Thread], Sequence[Sequence[Any]]], Sequence[Any]] | None = None


_INTRINSICS: dict[str, Intrinsic] = {}


def register_intrinsic(item: Intrinsic) -> None:
    """Make an intrinsic known; a name has one meaning."""
    if item.name in _INTRINSICS:
        raise InternalError(f"the intrinsic {item.name} is registered twice")
    if (item.single is None) == (item.collective is None):
        raise InternalError(f"the intrinsic {item.name} needs one meaning, single or collective")
    _INTRINSICS[item.name] = item


def intrinsic(name: str) -> Intrinsic | None:
    """The intrinsic called `name`, or None."""
    return _INTRINSICS.get(name)


# ---------------------------------------------------------------- sub-groups

_Lanes = Sequence[Thread]
_Args = Sequence[Sequence[Any]]


def _pick(source: Callable[[int, Sequence[Any]], int]) -> Callable[[_Lanes, _Args], list[Any]]:
    """Each lane reads the value of lane `source(own number, own arguments)`, its own when there is none."""

    def run(_threads: _Lanes, args: _Args) -> list[Any]:
        chosen = [source(lane, own) for lane, own in enumerate(args)]
        return [args[at if 0 <= at < len(args) else lane][0] for lane, at in enumerate(chosen)]

    return run


def _combine(op: str) -> Callable[[_Lanes, _Args], list[Any]]:
    def run(_threads: _Lanes, args: _Args) -> list[Any]:
        return [reduce(REDUCERS[op], (own[0] for own in args))] * len(args)

    return run


register_intrinsic(Intrinsic("subgroup_shuffle", collective=_pick(lambda _lane, args: args[1])))
SHUFFLE_XOR = "subgroup_shuffle_xor"
"""`subgroup_shuffle_xor(value, mask)`: the value of the lane whose number differs in the bits of the mask."""

register_intrinsic(Intrinsic(SHUFFLE_XOR, collective=_pick(lambda lane, args: lane ^ args[1])))
register_intrinsic(Intrinsic("subgroup_shuffle_down", collective=_pick(lambda lane, args: lane + args[1])))
register_intrinsic(Intrinsic("subgroup_shuffle_up", collective=_pick(lambda lane, args: lane - args[1])))
for _op in ("add", "mul", "min", "max", "and", "or"):
    register_intrinsic(Intrinsic(f"subgroup_{_op}", collective=_combine(_op)))


# ---------------------------------------------------------------- atomics and hints


def _atomic(op: str) -> Callable[[Thread, Sequence[Any]], Any]:
    def run(_thread: Thread, args: Sequence[Any]) -> Any:
        address: Address = args[0]
        old = address.get()
        address.put(args[1] if op == "exchange" else REDUCERS[op](old, args[1]))
        return old

    return run


for _op in ("add", "min", "max", "bitand", "bitor", "bitxor", "exchange"):
    register_intrinsic(Intrinsic(f"atomic_{_op}", single=_atomic(_op)))


register_intrinsic(Intrinsic("prefetch", single=lambda _thread, _args: 0))


# ---------------------------------------------------------------- Intel AMX tiles

_TILE_ROWS, _TILE_BYTES = 16, 64


def _tile(address: Address, name: str) -> Address:
    view = address.view
    if view.buffer.scope != "amx.tile":
        raise ProgramError(
            f"{name} works on a tile, and `{view.buffer.name}` is in scope {view.buffer.scope}"
        )
    rows, row_bytes = view.shape[0], view.shape[-1] * address.dtype.bytes
    if rows > _TILE_ROWS or row_bytes > _TILE_BYTES:
        raise ProgramError(
            f"`{view.buffer.name}` is too large for a tile",
            why=f"{rows} rows of {row_bytes} bytes; a tile holds {_TILE_ROWS} of {_TILE_BYTES}",
        )
    return address


def _ldtilecfg(thread: Thread, _args: Sequence[Any]) -> Any:
    thread.state["amx"] = True
    return 0


def _tilerelease(thread: Thread, _name: str, _args: Sequence[Any]) -> None:
    thread.state["amx"] = False


def _tilezero(_thread: Thread, name: str, args: Sequence[Any]) -> None:
    tile = _tile(args[0], name)
    rows, columns = tile.view.shape
    for index in range(rows * columns):
        tile.put(0, index)


def _tileload(_thread: Thread, name: str, args: Sequence[Any]) -> None:
    """`amx.tileload(&tile, &memory, stride in elements)`."""
    tile, memory, stride = _tile(args[0], name), args[1], int(args[2])
    rows, columns = tile.view.shape
    for row, column in product(range(rows), range(columns)):
        tile.put(memory.get(row * stride + column), row * columns + column)


def _tilestore(_thread: Thread, name: str, args: Sequence[Any]) -> None:
    """`amx.tilestore(&memory, &tile, stride in elements)`."""
    memory, tile, stride = args[0], _tile(args[1], name), int(args[2])
    rows, columns = tile.view.shape
    for row, column in product(range(rows), range(columns)):
        memory.put(tile.get(row * columns + column), row * stride + column)


def _tile_product(pairs: int, _thread: Thread, name: str, args: Sequence[Any]) -> None:
    """c[m, n] += sum over k, p of a[m, k * pairs + p] * b[k, n * pairs + p] (Intel SDM, TDPBF16PS)."""
    c, a, b = (_tile(item, name) for item in args)
    (rows, columns), depth = c.view.shape, a.view.shape[1] // pairs
    if b.view.shape != (depth, columns * pairs) or a.view.shape != (rows, depth * pairs):
        raise ProgramError(
            f"the tiles of {name} do not fit together",
            why=f"c {c.view.shape}, a {a.view.shape}, b {b.view.shape}",
        )
    for m, n in product(range(rows), range(columns)):
        total = c.get(m * columns + n)
        for k, p in product(range(depth), range(pairs)):
            left = a.get((m * depth + k) * pairs + p)
            total = total + left * b.get((k * columns + n) * pairs + p)
        c.put(total, m * columns + n)


def _register_tile_call(name: str, run: Callable[[Thread, str, Sequence[Any]], None]) -> None:
    """Make an instruction known that needs a configured tile unit."""

    def checked(thread: Thread, args: Sequence[Any]) -> Any:
        if not thread.state.get("amx"):
            raise ProgramError(
                f"{name} runs while the tile unit is not configured",
                hint="put it into the body of `scoped`, with amx.ldtilecfg as setup",
            )
        run(thread, name, args)
        return 0

    register_intrinsic(Intrinsic(name, single=checked))


register_intrinsic(Intrinsic("amx.ldtilecfg", single=_ldtilecfg))
_register_tile_call("amx.tilerelease", _tilerelease)
_register_tile_call("amx.tilezero", _tilezero)
_register_tile_call("amx.tileload", _tileload)
_register_tile_call("amx.tilestore", _tilestore)
_register_tile_call("amx.tdpbf16ps", partial(_tile_product, 2))
_register_tile_call("amx.tdpbssd", partial(_tile_product, 4))
