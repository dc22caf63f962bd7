"""What a library or program needs of other libraries and of the dynamic linker, read from its ELF sections.

Source: System V gABI, chapter 5 (dynamic section); Linux Standard Base, symbol versioning (`.gnu.version_r`).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import BuildError
from compiler.runtime.elf import MACHINES, ElfImage, ElfSection, opened_elf

_DT_NEEDED = 1
_DYNAMIC = struct.Struct("<qQ")  # Elf64_Dyn: tag, value
_VERNEED = struct.Struct("<HHIII")  # Elf64_Verneed: version, count, file, aux, next
_VERNAUX = struct.Struct("<IHHII")  # Elf64_Vernaux: hash, flags, other, name, next
_LONGEST_NAME = 4096
_VERSION = re.compile(r"([A-Z_]+)_(\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class DynamicNeeds:
    """`machine` as `uname -m` says it, `libraries` by the names that the linker looks for (`libm.so.6`).

    `versions` are the highest versions of symbols by their family, as GLIBC -> (2, 34); `interpreter` is the
    dynamic linker that a program asks for, empty for a library. `interface` is the version of the model
    interface that it exports, 0 where it is no model library.
    """

    machine: str
    libraries: tuple[str, ...]
    versions: dict[str, tuple[int, ...]]
    interpreter: str = ""
    interface: int = 0


def dynamic_needs(path: Path) -> DynamicNeeds:
    """What the ELF file at `path` needs when it is loaded; runs none of its code.

    Raises BadInputError when the file cannot be read or is no ELF file for a known machine.
    """
    with opened_elf(path) as view:
        image = ElfImage.parse(view)
        strings = _section(image, ".dynstr")
        if strings is None:
            raise BuildError("it has no dynamic section")
        return DynamicNeeds(
            MACHINES[image.header.machine],
            _libraries(image, strings),
            _highest(_versions(image, strings)),
            _interpreter(image),
            _interface(image, strings),
        )


def _section(image: ElfImage, name: str) -> ElfSection | None:
    try:
        return image.sections[image.section_index(name)]
    except BuildError:
        return None


def _text_at(image: ElfImage, place: int) -> str:
    end = image.data.find(b"\0", place, place + _LONGEST_NAME)
    if end < 0:
        raise BuildError("its table of strings is damaged")
    return bytes(image.data[place:end]).decode("utf-8", "replace")


def _libraries(image: ElfImage, strings: ElfSection) -> tuple[str, ...]:
    table = _section(image, ".dynamic")
    if table is None:
        return ()
    entries = (
        _DYNAMIC.unpack_from(image.data, table.offset + at) for at in range(0, table.size, _DYNAMIC.size)
    )
    return tuple(_text_at(image, strings.offset + value) for tag, value in entries if tag == _DT_NEEDED)


def _versions(image: ElfImage, strings: ElfSection) -> list[str]:
    table = _section(image, ".gnu.version_r")
    found: list[str] = []
    if table is None:
        return found
    place, most = table.offset, table.size // _VERNEED.size  # entries, whatever the links between them say
    for _ in range(most):
        _, count, _, first, following = _VERNEED.unpack_from(image.data, place)
        at = place + first
        for _ in range(min(count, most)):
            *_, name, step = _VERNAUX.unpack_from(image.data, at)
            found.append(_text_at(image, strings.offset + name))
            at += step
        if not following:
            break
        place += following
    return found


def _highest(names: list[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for name in names:
        if match := _VERSION.fullmatch(name):
            numbers = tuple(map(int, match[2].split(".")))
            found[match[1]] = max(found.get(match[1], ()), numbers)
    return found


def _interpreter(image: ElfImage) -> str:
    section = _section(image, ".interp")
    return "" if section is None else _text_at(image, section.offset)


def _interface(image: ElfImage, strings: ElfSection) -> int:
    names = bytes(image.data[strings.offset : strings.offset + strings.size])
    found = re.search(rb"\0tk_model_api_v(\d{1,6})\0", names)
    return int(found[1]) if found else 0
