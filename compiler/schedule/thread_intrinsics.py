"""Tensor intrinsics of devices that bind threads: what they mean, how tiles lie in a sub-group, and records.

Importing this module makes them known: whoever wants them asks for them.

- `dp4a.i8`: c += the four products of neighbouring signed bytes (CUDA: `__dp4a`, from sm_61; else plain C).
  Printed as `tk_dp4a_i8`.
- `wmma.*`: c += a @ b for tiles of 16 x 16, a and b in f16, c in f32, spread over a sub-group of 32 (PTX ISA,
  `wmma.mma.sync.m16n16k16`). Fragments are opaque: which lane holds what is the device's matter. The lane
  map here, eight neighbours of the row-major tile for each lane, is the interpreter's. No language prints
  them yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from compiler.loops import intrinsics
from compiler.loops.interp_threads import Thread
from compiler.loops.interp_values import Address, ProgramError
from compiler.loops.intrinsics import Intrinsic, LaneMap
from compiler.schedule import tensor_intrinsics
from compiler.schedule.tensor_intrinsics import TensorIntrinsic

_BYTES = 4


def _dp4a(_thread: Thread, args: Sequence[Any]) -> Any:
    """`dp4a.i8(&a, &b, c)`: c plus the four products of the bytes from a and from b on; wraps around."""
    a, b, total = args
    sums = int(total) + sum(int(a.get(n)) * int(b.get(n)) for n in range(_BYTES))
    return (sums + 2**31) % 2**32 - 2**31


intrinsics.register(Intrinsic("dp4a.i8", single=_dp4a))

DP4A = tensor_intrinsics.register(
    TensorIntrinsic.from_text(
        "dp4a.i8",
        """
func dp4a(c: i32[1], a: i8[4], b: i8[4]) -> ()
  for k in 0..4
    block dp4a(vk: reduce 4 = k)
      reads a[vk], b[vk]
      writes c[0]
      c[0] += i32(a[vk]) * i32(b[vk])
""",
        """
func dp4a(c: i32[1], a: i8[4], b: i8[4]) -> ()
  c[0] = dp4a.i8:i32(&a[0], &b[0], c[0])
""",
    )
)
"""Four products of bytes at once; the bytes of both factors lie side by side, at a multiple of four."""


# ---------------------------------------------------------------- 16 x 16 x 16, f16 -> f32

_SIZE, _LANES = 16, 32
_EACH = _SIZE * _SIZE // _LANES


def _place(lane: int, register: int) -> tuple[int, int]:
    return divmod(lane * _EACH + register, _SIZE)


WMMA_MAPS = tuple(
    intrinsics.register_lane_map(LaneMap(f"wmma.m16n16k16.{name}", _SIZE, _SIZE, _LANES, _EACH, _place))
    for name in "abc"
)

_Threads = Sequence[Thread]
_Args = Sequence[Sequence[Any]]


def _fragment(addresses: Sequence[Address], names: str) -> None:
    """Check that these are fragments of a sub-group, of one of the kinds in `names`."""
    buffer = addresses[0].view.buffer
    expected = [f"wmma.m16n16k16.{name}" for name in names]
    if buffer.lane_map not in expected:
        raise ProgramError(
            f"the fragment `{buffer.name}` is laid out as {buffer.lane_map or 'nothing'}",
            why=f"{' or '.join(expected)} is needed",
        )
    if len(addresses) != _LANES:
        raise ProgramError(f"wmma needs {_LANES} lanes, the sub-group has {len(addresses)}")


def _fill(_threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.fill(&fragment, value)`."""
    _fragment([own[0] for own in args], "abc")
    for (address, value), register in product(args, range(_EACH)):
        address.put(value, register)
    return [0] * len(args)


def _load(_threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.load(&fragment, &memory, stride)`: a row-major tile whose rows are `stride` elements apart."""
    _fragment([own[0] for own in args], "abc")
    for lane, (address, memory, stride) in enumerate(args):
        for register in range(_EACH):
            row, column = _place(lane, register)
            address.put(memory.get(row * int(stride) + column), register)
    return [0] * len(args)


def _store(_threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.store(&memory, &fragment, stride)`."""
    _fragment([own[1] for own in args], "c")
    for lane, (memory, address, stride) in enumerate(args):
        for register in range(_EACH):
            row, column = _place(lane, register)
            memory.put(address.get(register), row * int(stride) + column)
    return [0] * len(args)


def _mma(_threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.mma(&c, &a, &b)`: c += a @ b."""
    a, b, c = (_tile([own[number] for own in args], name) for number, name in ((1, "a"), (2, "b"), (0, "c")))
    for lane, own in enumerate(args):
        for register in range(_EACH):
            row, column = _place(lane, register)
            total = c[row][column]
            for k in range(_SIZE):
                total = total + a[row][k] * b[k][column]
            own[0].put(total, register)
    return [0] * len(args)


def _tile(addresses: Sequence[Address], name: str) -> list[list[Any]]:
    _fragment(addresses, name)
    tile: list[list[Any]] = [[None] * _SIZE for _ in range(_SIZE)]
    for lane, address in enumerate(addresses):
        for register in range(_EACH):
            row, column = _place(lane, register)
            tile[row][column] = address.get(register)
    return tile


for _name, _run in (("fill", _fill), ("load", _load), ("store", _store), ("mma", _mma)):
    intrinsics.register(Intrinsic(f"wmma.{_name}", collective=_run))
