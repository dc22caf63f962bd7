"""Calls of an emulation that counts accesses (`runtime/emulator/access_rows.h`), and lines for its places."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from compiler.core.process import run
from compiler.verify.access_report import Grid

_KINDS = (
    "load",
    "store",
    "atomic",
    "copy",
    "shared load",
    "shared store",
    "shared atomic",
    "wait",
    "barrier",
    "branch",
    "cut",
)
_MESSAGE_BYTES = 4096
_ALIGNMENT = 256
_WIDEST = 16
"""Bytes of the largest element that a parameter may point to."""
_SIZE = re.compile(r"\[(\d+)\]")
_MODULE_LINE = re.compile(r"kernels\.cpp:(\d+)")
_PLACES_A_CALL = 2000


class _Launch(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
        ("n_args", ctypes.c_int32),
    )


class _Row(ctypes.Structure):
    _fields_ = (
        ("place", ctypes.c_uint64),
        ("kind", ctypes.c_int32),
        ("bytes", ctypes.c_int32),
        ("requests", ctypes.c_uint64),
        ("lanes", ctypes.c_uint64),
        ("units", ctypes.c_uint64),
        ("least", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
    )


_Tell = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Row))
_Measure = ctypes.CFUNCTYPE(
    ctypes.c_bool, ctypes.POINTER(_Launch), ctypes.c_uint64, _Tell, ctypes.c_char_p, ctypes.c_int64
)


class _Table(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int32), ("measure", _Measure))


@dataclass(frozen=True, slots=True)
class Counted:
    """Sums over the requests of one place in the code, in one block; see `AccessRow`."""

    place: int
    kind: str
    bytes: int
    requests: int
    lanes: int
    units: int
    least: int
    most: int


class Emulation:
    """An emulation of kernels, loaded: made by `build_emulation(..., access=True)`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._library = ctypes.CDLL(str(path))
        self._table = _Table.in_dll(self._library, "tk_emulation_access_v1")

    def measure(
        self, function: str, grid: Grid, block: Grid, sizes: Sequence[str], unit: int
    ) -> tuple[list[Counted], str]:
        """Run block `unit` of a grid, or cluster `unit` of blocks; `sizes`: parameters with their elements.

        Returns the counts, and what the emulator found wrong.
        """
        at, places = _ALIGNMENT, list[int]()
        for item in sizes:  # nobody looks there
            places.append(at)
            elements = _SIZE.search(item)
            at += (int(elements[1]) * _WIDEST // _ALIGNMENT + 2) * _ALIGNMENT if elements else _ALIGNMENT
        args = (ctypes.c_void_p * len(places))(*places)
        launch = _Launch(function.encode(), grid, block, args, len(places))
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        rows: list[Counted] = []

        def tell(row: ctypes._Pointer[_Row]) -> None:
            one = row.contents
            rows.append(
                Counted(
                    one.place,
                    _KINDS[one.kind],
                    one.bytes,
                    one.requests,
                    one.lanes,
                    one.units,
                    one.least,
                    one.most,
                )
            )

        self._table.measure(ctypes.byref(launch), unit, _Tell(tell), message, _MESSAGE_BYTES)
        return rows, message.value.decode(errors="replace")

    def lines(self, places: Iterable[int]) -> dict[int, int]:
        """By place, the line of the module; of none where binutils' addr2line is missing."""
        wanted = sorted({place for place in places if place})
        if which("addr2line") is None:
            return {}
        found: dict[int, int] = {}
        for first in range(0, len(wanted), _PLACES_A_CALL):
            found |= self._lines(wanted[first : first + _PLACES_A_CALL])
        return found

    def _lines(self, places: Sequence[int]) -> dict[int, int]:
        # A return address belongs to the call in front of it.
        argv = ["addr2line", "-a", "-i", "-e", str(self._path), *(f"{place - 1:#x}" for place in places)]
        found: dict[int, int] = {}
        place = 0
        for line in run(argv).stdout.splitlines():
            if line.startswith("0x"):
                place = int(line, 16) + 1
            elif number := _MODULE_LINE.search(line):
                found[place] = int(number[1])  # the last one is the kernel's own: others are inlined there
        return found
