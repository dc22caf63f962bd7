"""Reads AMD code objects: which bundle member is wanted, and what its metadata says about each kernel."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from compiler.core.diagnostics import BuildError
from compiler.targets.device import Resource

_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
_ELF = b"\x7fELF"
_NOTE_SECTION = 7
_METADATA_NOTE = 32
_REGISTER_BYTES = 4


def unbundled(data: bytes, arch: str) -> bytes:
    """The code object of an architecture in an offload bundle (or the only one); a bare code object as it is.

    Format: Clang documentation, "Clang Offload Bundler". Raises BuildError when it is not in there.
    """
    if data.startswith(_ELF):
        return data
    for name, member in _members(data):
        if name.startswith("hip") and name.rpartition("--")[2].split(":")[0] == arch:
            return member
    raise BuildError(f"hipcc made no code object for {arch}", why=f"its output begins with {data[:24]!r}")


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    if not data.startswith(_MAGIC):
        return
    at = len(_MAGIC)
    (count,) = struct.unpack_from("<Q", data, at)
    at += 8
    for _ in range(count):
        offset, size, length = struct.unpack_from("<QQQ", data, at)
        at += 24
        yield data[at : at + length].decode(), data[offset : offset + size]
        at += length


def resources(code_object: bytes, arch: str) -> tuple[Resource, ...]:
    """Vector registers, and bytes of spills, shared and private, of each kernel.

    LLVM, "User Guide for AMDGPU Backend", section "Code Object Metadata".
    """
    rows = [
        Resource(
            kernel=str(kernel[".name"]),
            arch=arch,
            registers=int(kernel[".vgpr_count"]),
            spills=_REGISTER_BYTES * int(kernel.get(".vgpr_spill_count", 0)),
            shared_bytes=int(kernel[".group_segment_fixed_size"]),
            private_bytes=int(kernel[".private_segment_fixed_size"]),
        )
        for note in _notes(code_object)
        for kernel in note.get("amdhsa.kernels", ())
    ]
    return tuple(sorted(rows, key=lambda row: row.kernel))


def _notes(elf: bytes) -> Iterator[dict[str, Any]]:
    """The metadata of a 64-bit little-endian ELF file (System V ABI, sections and notes)."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry, count = struct.unpack_from("<HH", elf, 58)
    for number in range(count):
        kind, _, _, offset, size = struct.unpack_from("<IQQQQ", elf, table + number * entry + 4)
        if kind != _NOTE_SECTION:
            continue
        at, end = offset, offset + size
        while at < end:
            name_bytes, data_bytes, note_type = struct.unpack_from("<III", elf, at)
            start = at + 12 + (name_bytes + 3) // 4 * 4
            if note_type == _METADATA_NOTE:
                yield _Reader(elf[start : start + data_bytes]).value()
            at = start + (data_bytes + 3) // 4 * 4


_FIXED = {
    0xCC: "B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: "b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
    0xCA: ">f", 0xCB: ">d",
}  # fmt: skip
_SIZED = {
    0xD9: "B", 0xDA: ">H", 0xDB: ">I", 0xC4: "B", 0xC5: ">H", 0xC6: ">I",
    0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I",
}  # fmt: skip
"""MessagePack: codes of values of fixed size, and of those whose size comes next."""


class _Reader:
    """MessagePack, as far as metadata uses it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def value(self) -> Any:
        """The next value."""
        code = self._unpack("B")
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 0x100
        if code < 0xC0:
            return self._short(code)
        if code in (0xC0, 0xC2, 0xC3):
            return None if code == 0xC0 else code == 0xC3
        if code in _FIXED:
            return self._unpack(_FIXED[code])
        size = self._unpack(_SIZED[code])
        if code in (0xDC, 0xDD):
            return self._array(size)
        return self._map(size) if code in (0xDE, 0xDF) else self._text(size)

    def _short(self, code: int) -> Any:
        if code < 0x90:
            return self._map(code & 0x0F)
        return self._array(code & 0x0F) if code < 0xA0 else self._text(code & 0x1F)

    def _map(self, size: int) -> dict[str, Any]:
        return {str(self.value()): self.value() for _ in range(size)}

    def _array(self, size: int) -> list[Any]:
        return [self.value() for _ in range(size)]

    def _text(self, size: int) -> str:
        self._at += size
        return self._data[self._at - size : self._at].decode(errors="replace")

    def _unpack(self, form: str) -> Any:
        found = struct.unpack_from(form, self._data, self._at)[0]
        self._at += struct.calcsize(form)
        return found
