"""Tensor intrinsics of devices that bind threads: what they mean, how tiles lie in a sub-group, and records.

Importing this module makes them known: whoever wants them asks for them.

- `dp4a.i8`: c += the four products of neighbouring signed bytes (CUDA: `__dp4a`, from sm_61; else plain C).
  Printed as `tk_dp4a_i8`.
- `wmma.*`: c += a @ b for tiles of f16 or bf16 with sums in f32, spread over a sub-group (CUDA from sm_70
  on: `wmma` of the PTX ISA; SYCL: `joint_matrix`; records: `compiler.loops.matrix_units.wmma`). Fragments
  are opaque: which lane holds what is the device's matter, so an epilogue reads what was stored of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from compiler.loops import intrinsics
from compiler.loops.interp_threads import Thread
from compiler.loops.interp_values import Address, ProgramError
from compiler.loops.intrinsics import Intrinsic
from compiler.loops.matrix_units import MatrixUnit, wmma
from compiler.loops.matrix_units.meaning import multiply
from compiler.loops.matrix_units.tile_calls import FILL, LOADS, PRODUCTS, STORE, tile_intrinsics
from compiler.schedule import tensor_intrinsics
from compiler.schedule.tensor_intrinsics import TensorIntrinsic

_BYTES = 4


def _dp4a(_thread: Thread, args: Sequence[Any]) -> Any:
    """`dp4a.i8(&a, &b, c)`: c plus the four products of the bytes from a and from b on; wraps around."""
    a, b, total = args
    sums = int(total) + sum(int(a.get(n)) * int(b.get(n)) for n in range(_BYTES))
    return (sums + 2**31) % 2**32 - 2**31


intrinsics.register_intrinsic(Intrinsic("dp4a.i8", single=_dp4a))

DP4A = tensor_intrinsics.register_tensor_intrinsic(
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


# ---------------------------------------------------------------- opaque fragments

_Threads = Sequence[Thread]
_Args = Sequence[Sequence[Any]]


def _unit(addresses: Sequence[Address], part: str) -> MatrixUnit:
    """Check that these are fragments of a whole sub-group, of this part; gives whose."""
    buffer = addresses[0].view.buffer
    found = wmma.unit_of(buffer.lane_map)
    if found is None or found[1] != part:
        raise ProgramError(
            f"the fragment `{buffer.name}` is laid out as {buffer.lane_map or 'nothing'}",
            why=f"{part} of one of these is needed: {', '.join(wmma.OPAQUE)}",
        )
    unit = found[0]
    if len(addresses) != unit.lanes:
        raise ProgramError(f"{unit.name} needs {unit.lanes} lanes, the sub-group has {len(addresses)}")
    return unit


def _fill(_threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.fill(&c, value)`."""
    fragment = _unit([own[0] for own in args], "c").c
    for (address, value), register in product(args, range(fragment.registers)):
        address.put(value, register)
    return [0] * len(args)


def _load(part: str) -> Callable[[_Threads, _Args], list[Any]]:
    """`wmma.load_a(&a, &memory, stride)`: a row-major tile whose rows are `stride` elements apart.

    Lanes that hold the same elements may still share the memory of them: one of them writes it then.
    """

    def run(_threads: _Threads, args: _Args) -> list[Any]:
        unit = _unit([own[0] for own in args], part)
        written: set[tuple[int, int]] = set()
        for lane, (address, memory, stride) in enumerate(args):
            if (id(address.view), address.flat) in written:
                continue
            written.add((id(address.view), address.flat))
            for register in range(wmma.fragment_of(unit, part).registers):
                row, column = wmma.memory_place(unit, part, lane, register)
                address.put(memory.get(row * _stride(memory, stride) + column), register)
        return [0] * len(args)

    return run


def _stride(memory: Address, stride: Any) -> int:
    """Elements between rows, which may be said by the address of the next one."""
    return stride.flat - memory.flat if isinstance(stride, Address) else int(stride)


def _store(_threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.store(&memory, &c, stride)`."""
    fragment = _unit([own[1] for own in args], "c").c
    for lane, (memory, address, stride) in enumerate(args):
        for register in range(fragment.registers):
            row, column = fragment.place(lane, register)
            memory.put(address.get(register), row * _stride(memory, stride) + column)
    return [0] * len(args)


def _product(parts: Sequence[str]) -> Callable[[_Threads, _Args], list[Any]]:
    return lambda threads, args: _mma(parts, threads, args)


def _mma(parts: Sequence[str], threads: _Threads, args: _Args) -> list[Any]:
    """`wmma.mma(&c, &a, &b)`: c += a @ b, of fragments of these parts."""
    units = [_unit([own[number] for own in args], part) for number, part in enumerate(parts)]
    unit = units[0]
    if any(item != unit for item in units):
        raise ProgramError(
            f"fragments of {' and '.join(dict.fromkeys(u.name for u in units))} are multiplied"
        )
    registers = (unit.c.registers, unit.a.registers, unit.b.registers)
    held = [
        [np.array([own[number].get(n) for n in range(count)]) for number, count in enumerate(registers)]
        for own in args
    ]
    for own, sums in zip(args, multiply(unit, threads, held), strict=True):
        for register, value in enumerate(sums):
            own[0].put(value, register)
    return [0] * len(args)


intrinsics.register_intrinsic(Intrinsic(FILL, collective=_fill))
for _name, _part in LOADS.items():
    intrinsics.register_intrinsic(Intrinsic(_name, collective=_load(_part)))
intrinsics.register_intrinsic(Intrinsic(STORE, collective=_store))
for _name, _part in PRODUCTS.items():
    intrinsics.register_intrinsic(Intrinsic(_name, collective=_product(("c", "a", _part))))

TILE_INTRINSICS = {
    name: tensor_intrinsics.register_tensor_intrinsic(TensorIntrinsic.from_text(name, *texts))
    for unit in wmma.OPAQUE.values()
    for name, texts in tile_intrinsics(unit).items()
}
"""Descriptions and implementations of the calls on fragments, of each unit."""
