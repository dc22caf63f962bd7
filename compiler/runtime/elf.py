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
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from compiler.core.diagnostics import BadInputError, BuildError, InternalError, TkError

TABLE_SECTION = ".tk_blobs"  # begins with struct tk_blobs of tk_blobs.h
CONSTANTS_SECTION = ".tk_constants"

_PAGE = {62: 0x1000, 183: 0x10000}  # largest usual page of x86-64 and aarch64, by e_machine
_PT_LOAD, _PT_NOTE = 1, 4
_PF_R = 4
_SHT_PROGBITS = 1
_SHF_ALLOC = 2
_ALIGNMENT = 64


class _Header(NamedTuple):
    """Elf64_Ehdr after e_ident."""

    e_type: int
    machine: int
    version: int
    entry: int
    phoff: int
    shoff: int
    flags: int
    ehsize: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int


class _Segment(NamedTuple):
    """Elf64_Phdr."""

    p_type: int
    flags: int
    offset: int
    vaddr: int
    paddr: int
    filesz: int
    memsz: int
    align: int


class _Section(NamedTuple):
    """Elf64_Shdr."""

    name: int
    sh_type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    info: int
    addralign: int
    entsize: int


_HEADER, _HEADER_AT = struct.Struct("<HHIQQQIHHHHHH"), 16
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TABLE = struct.Struct("<qq")  # constants, constants_bytes; the manifest, names and images alike
_IMAGES = 3  # how many such pairs stand in front of the images
_IMAGE = struct.Struct("<qqqq")  # tk_blob_image


@dataclass(slots=True)
class _Image:
    """A small linked library in memory."""

    data: bytes | bytearray | mmap.mmap
    header: _Header
    segments: list[_Segment]
    sections: list[_Section]

    @classmethod
    def parse(cls, data: bytes | bytearray | mmap.mmap) -> Self:
        if data[:6] != b"\x7fELF\x02\x01":
            raise BuildError("it is no 64-bit little-endian ELF file")
        header = _Header._make(_HEADER.unpack_from(data, _HEADER_AT))
        if header.machine not in _PAGE:
            raise BuildError("it is neither for x86-64 nor for aarch64", why=f"e_machine is {header.machine}")
        segments = [
            _Segment._make(_SEGMENT.unpack_from(data, header.phoff + i * header.phentsize))
            for i in range(header.phnum)
        ]
        sections = [
            _Section._make(_SECTION.unpack_from(data, header.shoff + i * header.shentsize))
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
            _SEGMENT.pack_into(data, self.header.phoff + index * self.header.phentsize, *segment)
        for index, section in enumerate(self.sections):
            _SECTION.pack_into(data, self.header.shoff + index * self.header.shentsize, *section)
        return data


def append_constants(linked: bytes, write: Callable[[BinaryIO], object], stream: BinaryIO) -> int:
    """Write the library `linked` to the empty `stream`, and behind it the constants that `write` produces.

    Returns the size of the library in bytes; constants may have any size that the file system takes. Their
    place in memory is aligned to a page. Raises BuildError for a library of another format.
    """
    image = _Image.parse(linked)
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


def _describe(image: _Image, offset: int, size: int) -> tuple[_Section, int]:
    """Enter `size` bytes at `offset` of the file into the headers; returns the table and their address."""
    end = max(item.vaddr + item.memsz for item in image.segments if item.p_type == _PT_LOAD)
    address = _round_up(end, image.page)
    image.add_segment(_Segment(_PT_LOAD, _PF_R, offset, address, address, size, size, image.page))
    index = image.section_index(CONSTANTS_SECTION)
    image.sections[index] = image.sections[index]._replace(
        sh_type=_SHT_PROGBITS, flags=_SHF_ALLOC, addr=address, offset=offset, size=size, addralign=_ALIGNMENT
    )
    return image.sections[image.section_index(TABLE_SECTION)], address


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def check_library(path: Path) -> None:
    """Make sure that `path` is a complete model library: loading half a file ends the process.

    Reads headers only. Raises BadInputError.
    """
    with _opened(path) as view:
        _table(view)


def read_manifest(path: Path) -> bytes:
    """The manifest of the library `path`, read without running any of its code.

    Raises BadInputError when the file cannot be read or is no model library.
    """
    with _opened(path) as view:
        section = _table(view)
        place, size = _TABLE.unpack_from(view, section.offset + _TABLE.size)
        if place < 0 or size < 0 or place + size > section.size:
            raise BuildError("its table of contents is damaged")
        return view[section.offset + place : section.offset + place + size]


def read_images(path: Path) -> tuple[tuple[str, str, bytes], ...]:
    """Kind, arch and bytes of each image for a device in the library `path`; runs none of its code.

    Raises BadInputError when the file cannot be read or is no model library.
    """
    with _opened(path) as view:
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
def _opened(path: Path) -> Iterator[mmap.mmap]:
    """The bytes of a file; whatever is found wrong with them becomes a BadInputError."""
    try:
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as view:
            yield view
    except (OSError, ValueError, struct.error, IndexError, TkError) as error:
        why = error.what if isinstance(error, TkError) else getattr(error, "strerror", None) or str(error)
        raise BadInputError("this file is no model library", where=str(path), why=why) from error


def _table(view: mmap.mmap) -> _Section:
    """The section with the table of contents, after a look at all that must be there."""
    image = _Image.parse(view)
    for segment in image.segments:
        if segment.p_type == _PT_LOAD and segment.offset + segment.filesz > len(view):
            raise BuildError(f"it ends after {len(view)} of {segment.offset + segment.filesz} bytes")
    return image.sections[image.section_index(TABLE_SECTION)]
