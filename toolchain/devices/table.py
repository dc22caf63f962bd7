"""The file of chips: `recipes/devices.yaml`, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from toolchain.devices.arch import Chip, ChipTable, Vendor
from toolchain.recipes.check import Problems, refused, validate
from toolchain.recipes.grammar import FORMS, Arch, Name, Text
from toolchain.recipes.schema import Model
from toolchain.recipes.strict_yaml import read_strict

_PCI_ID, _CHIP = r"^[0-9a-f]{4}$", r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
FORMS[_PCI_ID] = "four hexadecimal digits, small letters"
FORMS[_CHIP] = "letters, digits, `-` and `_`"
PciId = Annotated[str, Field(pattern=_PCI_ID)]
ChipName = Annotated[str, Field(pattern=_CHIP, max_length=40)]


class ChipRow(Model):
    """Device ids of one chip; `source` is a key of the file's sources."""

    vendor: Literal["nvidia", "amd", "hygon", "intel"]
    chip: ChipName
    arch: Arch
    ids: Annotated[tuple[PciId, ...], Field(min_length=1)]
    source: Name


class DeviceFile(Model):
    """The whole file."""

    sources: dict[Name, Text]
    chips: tuple[ChipRow, ...]


def read_table(path: Path) -> ChipTable:
    """Chips by vendor and device id; raises BadInputError that lists every problem with its file:line."""
    root = read_strict(path)
    problems: Problems = []
    document = validate(DeviceFile, root, problems)
    if document is None:
        raise refused(problems)
    table: dict[tuple[Vendor, int], Chip] = {}
    for row, node in zip(document.chips, root.entries()["chips"].items(), strict=True):
        if row.source not in document.sources:
            problems.append((node.where, f"`source`: `{row.source}` is not among the file's sources"))
            continue
        for text in row.ids:
            key = (row.vendor, int(text, 16))
            if key in table:
                problems.append((node.where, f"`ids`: {row.vendor} {text} is {table[key].name}, too"))
            table[key] = Chip(row.vendor, row.chip, row.arch, document.sources[row.source])
    if problems:
        raise refused(problems)
    return table
