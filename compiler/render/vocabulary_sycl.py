"""SYCL: C++ as for processors, in kernels of a device; helpers are in `runtime/device/tk_sycl.h`.

The prelude holds the headers that kernels of processors include, so that a module is one text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from compiler.loops.ir import SHARED
from compiler.loops.matrix_units.tile_calls import CALLS
from compiler.render.matrix_text import joint_matrix_type
from compiler.render.vocabulary import LOCAL, TILES, Bounds, DeviceWords, Vocabulary
from compiler.render.vocabulary_cpp import CPP, load_aligned, store_aligned

_RUNTIME = Path(__file__).resolve().parent.parent / "runtime"
HEADER = _RUNTIME / "device" / "tk_sycl.h"
_OWN_INCLUDE = re.compile(r'^#include "(tk_\w+\.h)"\n', re.MULTILINE)
_GROUPS = ("blockIdx", "GROUP"), ("threadIdx", "LOCAL"), ("gridDim", "GROUPS")


def prelude(header: Path = HEADER, folder: Path = _RUNTIME / "include") -> str:
    """The text of a header with every header of ours put in where it is included first."""
    seen: set[str] = set()

    def put_in(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        return expanded((folder / name).read_text(encoding="utf-8"))

    def expanded(text: str) -> str:
        return _OWN_INCLUDE.sub(lambda found: put_in(found[1]), text)

    return expanded(header.read_text(encoding="utf-8"))


def _kernel(name: str, params: Sequence[str], bounds: Bounds) -> str:
    x, y, z = bounds.block
    return f"TK_KERNEL({name}, {x}, {y}, {z}, {', '.join(params)})"


def _array(element: str, name: str, size: int, scope: str) -> str:
    if scope in (SHARED, TILES, LOCAL):
        return f"TK_SHARED({element}, {name}, {size});"
    return f"alignas(64) {element} {name}[{size}];"


def _device(index: str) -> DeviceWords:
    return DeviceWords(
        kernel=_kernel,
        pointer=lambda element, _scope: f"{element} *",
        axes=MappingProxyType(
            {
                f"{unit}.{axis}": f"({index})TK_{word}_{axis.upper()}"
                for unit, word in _GROUPS
                for axis in "xyz"
            }
        ),
        array=_array,
        barriers=MappingProxyType({"shared": "TK_BARRIER();", "subgroup": "TK_SUBGROUP_BARRIER();"}),
        atomic=lambda op, kind, address, value: (
            f"tk_atomic_{op}<{CPP.memory[kind.name]}>({address}, {value})"
        ),
    )


SYCL_CPU: Vocabulary = replace(CPP, name="sycl", apart="", prelude=prelude(), device=_device("int64_t"))
"""For the cores of a processor: explicit vectors of up to 16 lanes, offsets as wide as pointers."""

_JOINT_MATRIX = (HEADER.parent / "tk_sycl_matrix.h").read_text(encoding="utf-8")

SYCL_GPU: Vocabulary = replace(
    SYCL_CPU,
    index="int",
    device=replace(_device("int"), fragment=joint_matrix_type),
    math=lambda name: CPP.math(name.replace(".", "_")),
    helpers=dict.fromkeys(CALLS, _JOINT_MATRIX),
    load_aligned=load_aligned,
    store_aligned=store_aligned,
)
"""For GPUs: offsets of 64 bits cost registers, vectors move in one piece only where they are aligned."""
