"""What an accelerator is called for a compiler: from what its driver says, else from its PCI device id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from toolchain.data import data_directory

Vendor = Literal["nvidia", "amd", "hygon", "intel"]
VENDORS: tuple[Vendor, ...] = ("nvidia", "amd", "hygon", "intel")


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip: its name, its architecture for compilers, and where that is written."""

    vendor: Vendor
    name: str
    arch: str
    source: str


ChipTable = Mapping[tuple[Vendor, int], Chip]
"""Chips by vendor and PCI device id."""


def decode_gfx_target_version(value: int) -> str:
    """The name of an AMD architecture from KFD's decimal MMmmss: 90006 is gfx906, 90010 gfx90a.

    Minor version and stepping are one hexadecimal digit each. Empty for 0, which CPU nodes and old kernels
    say. Source: clang/tools/offload-arch/AMDGPUArchByKFD.cpp (LLVM); read-outs of real devices agree.
    """
    if value <= 0:
        return ""
    return f"gfx{value // 10000}{value // 100 % 100:x}{value % 100:x}"


@cache
def load_chips(path: Path | None = None) -> ChipTable:
    """Read the table of chips, by default the shipped `devices.yaml`; raises BadInputError for a bad one."""
    from toolchain.devices.table import read_table

    return read_table(path or data_directory("recipes") / "devices.yaml")
