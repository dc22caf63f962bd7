"""The kernels of a view: what the library says of them, their texts, and their machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from compiler.core.diagnostics import TkError
from compiler.core.settings import load_settings
from compiler.loops.text import print_func
from compiler.reports import KernelInfo
from compiler.runtime.elf import read_images
from compiler.stages.kernels import Kernel, ReplayedKernel
from compiler.targets import Target
from compiler.targets.assembly import innermost_loops
from compiler.targets.device_assembly import device_assembly
from compiler.targets.disassembly import disassemble, find_objdump
from compiler.view.report import InnerLoop, Unseen, ViewedKernel

_MOST_FILES = 1000
_NO_TEXT = "a device runs the kernels, and what its toolchain made of them is no text"


def viewed_kernel(
    info: KernelInfo,
    ops: Sequence[str],
    steps: Sequence[int],
    made: Kernel | ReplayedKernel | None,
    assembly: str,
) -> ViewedKernel:
    """One kernel; `made` has its texts after each stage, None where nobody knows them."""
    return ViewedKernel(
        number=info.index,
        kind=info.kind,
        ops=tuple(ops),
        steps=tuple(steps),
        origin=info.nodes,
        flops=info.flops,
        bytes=info.bytes,
        loops=info.func,
        trace=info.trace,
        scheduled=print_func(made.scheduled) if made else "",
        lowered=print_func(made.lowered) if made else "",
        source=made.text if made else "",
        assembly=assembly,
        inner_loops=_inner_loops(assembly),
        launches=info.launches,
    )


def read_assembly(
    target: Target, library: Path, objects: Sequence[Path]
) -> tuple[Mapping[int, str], tuple[Unseen, ...]]:
    """The assembly of each kernel of a library, read from the objects that it is linked of if there are any.

    And what of it cannot be had.
    """
    if target.device is not None:
        made = device_assembly(read_images(library), load_settings())
        reasons = made.missing or (() if made.texts else (_NO_TEXT,))
        return made.texts, tuple(Unseen("assembly", one) for one in reasons)
    files = objects or [library]
    texts: dict[int, str] = {}
    try:
        objdump = find_objdump(target.cxx(load_settings()))
        for first in range(0, len(files), _MOST_FILES):
            texts |= disassemble(objdump, files[first : first + _MOST_FILES])
    except TkError as error:
        return {}, (Unseen("assembly", told(error)),)
    if not texts:
        return {}, (Unseen("assembly", "the file has no names of functions: it was stripped"),)
    return texts, ()


def told(error: TkError) -> str:
    """An error as the reason why something is not there."""
    return f"{error.what}: {error.why}" if error.why else error.what


def _inner_loops(assembly: str) -> tuple[InnerLoop, ...]:
    """Those that compute: with multiply-adds, the longest first."""
    found = [
        InnerLoop(one.label, len(one.instructions), one.multiply_adds, len(one.spills))
        for one in innermost_loops(assembly)
    ]
    return tuple(sorted((one for one in found if one.multiply_adds), key=lambda one: -one.multiply_adds))
