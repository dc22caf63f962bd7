"""Appends the constants of a model to a linked library as one more read-only segment.

Assemblers and linkers copy data several times and disagree about sections above 2 GiB (clang 14 and lld 14
know no large sections). So the linker sees no constants at all: they are written behind its output, once, and
the table of program headers is told about them. The linker is given a note segment whose entry in that
table is not needed, and an empty section whose header then describes the constants, so that tools such as
`strip` keep them.

Source of the formats: System V gABI, chapters 4 and 5.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Callable, Iterator
from ctypes import LittleEndianStructure, c_uint8, c_uint16, c_uint32, c_uint64, sizeof
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, Self

from compiler.core.diagnostics import BadInputError, BuildError, InternalError, TkError

TABLE_SECTION = ".tk_blobs"  # begins with struct tk_blobs of tk_blobs.h
CONSTANTS_SECTION = ".tk_constants"

_PAGE = {62: 0x1000, 183: 0x10000}  # largest usual page of x86-64 and aarch64, by e_machine
MACHINES = {62: "x86_64", 183: "aarch64"}
"""Names of machines, as `uname -m` says them, by e_machine."""
_PT_LOAD, _PT_NOTE = 1, 4
_PF_R = 4
_SHT_PROGBITS = 1
_SHF_ALLOC = 2
_ALIGNMENT = 64


class _Header(LittleEndianStructure):
    """Elf64_Ehdr."""

    _fields_: ClassVar = [
        ("ident", c_uint8 * 16),
        ("e_type", c_uint16),
        ("machine", c_uint16),
        ("version", c_uint32),
        ("entry", c_uint64),
        ("phoff", c_uint64),
        ("shoff", c_uint64),
        ("flags", c_uint32),
        ("ehsize", c_uint16),
        ("phentsize", c_uint16),
        ("phnum", c_uint16),
        ("shentsize", c_uint16),
        ("shnum", c_uint16),
        ("shstrndx", c_uint16),
    ]


class _Segment(LittleEndianStructure):
    """Elf64_Phdr."""

    _fields_: ClassVar = [
        ("p_type", c_uint32),
        ("flags", c_uint32),
        ("offset", c_uint64),
        ("vaddr", c_uint64),
        ("paddr", c_uint64),
        ("filesz", c_uint64),
        ("memsz", c_uint64),
        ("align", c_uint64),
    ]


class ElfSection(LittleEndianStructure):
    """Elf64_Shdr."""

    _fields_: ClassVar = [
        ("name", c_uint32),
        ("sh_type", c_uint32),
        ("flags", c_uint64),
        ("addr", c_uint64),
        ("offset", c_uint64),
        ("size", c_uint64),
        ("link", c_uint32),
        ("info", c_uint32),
        ("addralign", c_uint64),
        ("entsize", c_uint64),
    ]


_TABLE = struct.Struct("<qq")  # constants, constants_bytes; the manifest, names and images alike
_IMAGES = 3  # how many such pairs stand in front of the images
_IMAGE = struct.Struct("<qqqq")  # tk_blob_image


@dataclass(slots=True)
class ElfImage:
    """A small linked library in memory."""

    data: bytes | bytearray | mmap.mmap
    header: _Header
    segments: list[_Segment]
    sections: list[ElfSection]

    @classmethod
    def parse(cls, data: bytes | bytearray | mmap.mmap) -> Self:
        if data[:6] != b"\x7fELF\x02\x01":
            raise BuildError("it is no 64-bit little-endian ELF file")
        header = _Header.from_buffer_copy(data)
        if header.machine not in _PAGE:
            raise BuildError("it is neither for x86-64 nor for aarch64", why=f"e_machine is {header.machine}")
        segments = [
            _Segment.from_buffer_copy(data, header.phoff + i * header.phentsize) for i in range(header.phnum)
        ]
        sections = [
            ElfSection.from_buffer_copy(data, header.shoff + i * header.shentsize)
            for i in range(header.shnum)
        ]
        return cls(data, header, segments, sections)

    @property
    def page(self) -> int:
        return _PAGE[self.header.machine]

    def section_index(self, name: str) -> int:
        strings = self.sections[self.header.shstrndx].offset
        wanted = name.encode() + b"\0"
        for index, section in enumerate(self.sections):
            start = strings + section.name
            if self.data[start : start + len(wanted)] == wanted:
                return index
        raise BuildError(f"it has no section {name}")

    def add_segment(self, segment: _Segment) -> None:
        """Put a loaded segment behind the other loaded ones, in place of a note."""
        notes = [index for index, item in enumerate(self.segments) if item.p_type == _PT_NOTE]
        if not notes:
            raise InternalError("the linked library has no note segment to give up")
        del self.segments[notes[-1]]
        last_load = max(index for index, item in enumerate(self.segments) if item.p_type == _PT_LOAD)
        self.segments.insert(last_load + 1, segment)

    def stored(self) -> bytearray:
        data = bytearray(self.data)
        for index, segment in enumerate(self.segments):
            at = self.header.phoff + index * self.header.phentsize
            data[at : at + sizeof(segment)] = bytes(segment)
        for index, section in enumerate(self.sections):
            at = self.header.shoff + index * self.header.shentsize
            data[at : at + sizeof(section)] = bytes(section)
        return data


def append_constants(linked: bytes, write: Callable[[BinaryIO], object], stream: BinaryIO) -> int:
    """Write the library `linked` to the empty `stream`, and behind it the constants that `write` produces.

    Returns the size of the library in bytes; constants may have any size that the file system takes. Their
    place in memory is aligned to a page. Raises BuildError for a library of another format.
    """
    image = ElfImage.parse(linked)
    offset = _round_up(len(linked), image.page)
    stream.seek(offset)
    write(stream)
    size = stream.tell() - offset
    data = bytearray(linked)
    if size:
        table, address = _describe(image, offset, size)
        data = image.stored()
        _TABLE.pack_into(data, table.offset, address - table.addr, size)
    stream.seek(0)
    stream.write(data)
    total = offset + size if size else len(linked)
    stream.truncate(total)
    return total


def _describe(image: ElfImage, offset: int, size: int) -> tuple[ElfSection, int]:
    """Enter `size` bytes at `offset` of the file into the headers; returns the table and their address."""
    end = max(item.vaddr + item.memsz for item in image.segments if item.p_type == _PT_LOAD)
    address = _round_up(end, image.page)
    image.add_segment(_Segment(_PT_LOAD, _PF_R, offset, address, address, size, size, image.page))
    index = image.section_index(CONSTANTS_SECTION)
    old = image.sections[index]
    place = (_SHT_PROGBITS, _SHF_ALLOC, address, offset, size)
    image.sections[index] = ElfSection(old.name, *place, old.link, old.info, _ALIGNMENT, old.entsize)
    return image.sections[image.section_index(TABLE_SECTION)], address


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def check_library(path: Path) -> None:
    """Make sure that `path` is a complete model library: loading half a file ends the process.

    Reads headers only. Raises BadInputError.
    """
    with opened_elf(path) as view:
        _table(view)


def machine_of(path: Path) -> str:
    """Whose code is in the library `path`, as `uname -m` says it; raises BadInputError for another file."""
    with opened_elf(path) as view:
        return MACHINES[ElfImage.parse(view).header.machine]


def read_manifest(path: Path) -> bytes:
    """The manifest of the library `path`, read without running any of its code.

    Raises BadInputError when the file cannot be read or is no model library.
    """
    with opened_elf(path) as view:
        section = _table(view)
        place, size = _TABLE.unpack_from(view, section.offset + _TABLE.size)
        if place < 0 or size < 0 or place + size > section.size:
            raise BuildError("its table of contents is damaged")
        return view[section.offset + place : section.offset + place + size]


def read_images(path: Path) -> tuple[tuple[str, str, bytes], ...]:
    """Kind, arch and bytes of each image for a device in the library `path`; runs none of its code.

    Raises BadInputError when the file cannot be read or is no model library.
    """
    with opened_elf(path) as view:
        section = _table(view)
        place, count = _TABLE.unpack_from(view, section.offset + _IMAGES * _TABLE.size)
        if not 0 <= place <= section.size or not 0 <= count * _IMAGE.size <= section.size - place:
            raise BuildError("its table of images is damaged")
        entries = [_IMAGE.unpack_from(view, section.offset + place + n * _IMAGE.size) for n in range(count)]
        table = view[section.offset : section.offset + section.size]
        return tuple(
            (_text(table, kind), _text(table, arch), table[at : at + n]) for kind, arch, at, n in entries
        )


def _text(table: bytes, place: int) -> str:
    if not 0 <= place < len(table):
        raise BuildError("its table of images is damaged")
    return table[place : table.index(b"\0", place)].decode()


@contextlib.contextmanager
def opened_elf(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a file; whatever is found wrong with them becomes a BadInputError."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
            yield view
    except (OSError, ValueError, struct.error, IndexError, TkError) as error:
        why = error.what if isinstance(error, TkError) else getattr(error, "strerror", None) or str(error)
        raise BadInputError("this file is no model library", where=str(path), why=why) from error


def _table(view: mmap.mmap) -> ElfSection:
    """The section with the table of contents, after a look at all that must be there."""
    image = ElfImage.parse(view)
    for segment in image.segments:
        if segment.p_type == _PT_LOAD and segment.offset + segment.filesz > len(view):
            raise BuildError(f"it ends after {len(view)} of {segment.offset + segment.filesz} bytes")
    return image.sections[image.section_index(TABLE_SECTION)]
