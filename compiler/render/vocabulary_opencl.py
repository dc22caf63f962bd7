"""OpenCL C 1.2; helpers are in `runtime/device/tk_opencl.h`, whose text stands in front of the kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from compiler.core.types import DType
from compiler.render.vocabulary import (
    LOCAL,
    NARROW_FLOATS,
    Bounds,
    DeviceWords,
    Vocabulary,
    computed,
    memory_type,
)

HEADER = Path(__file__).resolve().parent.parent / "runtime" / "device" / "tk_opencl.h"

_MEMORY = {
    "f64": "double", "f32": "float", "f16": "ushort", "bf16": "ushort", "f8e4m3": "uchar", "f8e5m2": "uchar",
    "i64": "long", "i32": "int", "i16": "short", "i8": "char",
    "u64": "ulong", "u32": "uint", "u16": "ushort", "u8": "uchar", "bool": "uchar",
}  # fmt: skip
_TYPES = {**_MEMORY, **dict.fromkeys(NARROW_FLOATS, "float"), "bool": "bool"}

_BUILTINS = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "sqrt", "asin",
        "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor",
        "ceil", "trunc", "fmod", "copysign", "hypot", "fma",
    }
)  # fmt: skip
"""Functions of OpenCL C (1.2, section 6.12.2) that mean what the IR's functions of that name mean."""

_SPACES = {"global": "__global", "constant": "__global", "shared": "__local", LOCAL: "__local"}
"""Address space of a scope, `__private` for any other; constants of a model are too many for `__constant`."""

_ALIGNMENT = 64


def _vector(kind: DType) -> str:
    return f"{_MEMORY[kind.name]}{kind.lanes}"


def _moved(kind: DType) -> str:
    """Name of the vector that moves between memory and registers."""
    return _vector(memory_type(kind))


def _stored(kind: DType, value: str) -> str:
    """A vector with the type of its memory: masks are signed, bool lies in memory as bytes without sign."""
    return f"as_{_moved(kind)}({value})" if kind.is_bool else value


def _ramp(kind: DType, base: str, step: str) -> str:
    name, scalar = _vector(kind), _MEMORY[kind.name]
    steps = f"({name})({', '.join(map(str, range(kind.lanes)))})"
    if step != "1":
        steps = f"{steps} * ({scalar})({step})"
    return f"(({scalar})({base}) + {steps})"


def _indices(index: str, lanes: int) -> str:
    return f"convert_long{lanes}({index})"


def _widen(kind: DType, value: str) -> str:
    if kind.name in NARROW_FLOATS:
        return f"tk_{kind.name}_to_f32({value})"
    if kind.is_bool:
        return f"({value} != 0)" if kind.lanes == 1 else f"({value} != ({_moved(kind)})(0))"
    return value


def _math(name: str) -> str:
    if name == "round":
        return "rint"  # halves to even
    return name if name in _BUILTINS else f"tk_{name}"


def _typed(name: str, kind: DType) -> str:
    kind = computed(kind)
    if name == "bitcast":
        return f"as_{_MEMORY[kind.name] if kind.lanes == 1 else _vector(kind)}"
    return f"tk_{name}_{_MEMORY[kind.name] if kind.lanes == 1 else _vector(kind)}"


def _literal(value: float, kind: DType) -> str | None:
    if not kind.is_float or math.isfinite(value):
        return "(-9223372036854775807L - 1)" if kind.is_int and value == -(2**63) else None
    text = "NAN" if math.isnan(value) else "INFINITY"
    text = f"(double){text}" if kind.name == "f64" else text
    return f"(-{text})" if value < 0 else f"({text})"


def _kernel(name: str, params: Sequence[str], bounds: Bounds) -> str:
    size = ", ".join(map(str, bounds.block))
    return f"__kernel __attribute__((reqd_work_group_size({size}))) void {name}({', '.join(params)})"


def _array(element: str, name: str, size: int, scope: str) -> str:
    space = "__local " if scope in _SPACES else ""
    return f"{space}{element} {name}[{size}] __attribute__((aligned({_ALIGNMENT})));"


def _shuffle(lanes: tuple[int, ...], a: str, b: str) -> str:
    return f"__builtin_shufflevector({a}, {b}, {', '.join(map(str, lanes))})"


_UNITS = ("blockIdx", "get_group_id"), ("threadIdx", "get_local_id"), ("gridDim", "get_num_groups")

_DEVICE = DeviceWords(
    kernel=_kernel,
    pointer=lambda element, scope: f"{_SPACES.get(scope, '__private')} {element} *",
    axes=MappingProxyType(
        {
            f"{unit}.{axis}": f"({{}}){function}({number})"
            for unit, function in _UNITS
            for number, axis in enumerate("xyz")
        }
    ),
    array=_array,
    barriers=MappingProxyType({"shared": "barrier(CLK_LOCAL_MEM_FENCE);"}),
    atomic=lambda op, _kind, address, value: f"tk_atomic_{op}({address}, {value})",
)


def _vocabulary(index: str) -> Vocabulary:
    """OpenCL C with loop variables of the type `index`."""
    axes = {tag: text.format(index) for tag, text in _DEVICE.axes.items()}
    return Vocabulary(
        name="opencl c",
        types=MappingProxyType(_TYPES),
        memory=MappingProxyType(_MEMORY),
        restrict="restrict",
        apart="",
        rolled="#pragma unroll 1",
        prelude=HEADER.read_text(encoding="utf-8"),
        vector=_vector,
        load=lambda kind, pointer: f"vload{kind.lanes}(0, {pointer})",
        store=lambda kind, pointer, value: f"vstore{kind.lanes}({_stored(kind, value)}, 0, {pointer})",
        splat=lambda kind, scalar: f"({_vector(kind)})({scalar})",
        ramp=_ramp,
        load_strided=lambda kind, pointer, step: f"tk_load_strided_{_moved(kind)}({pointer}, {step})",
        store_strided=lambda kind, pointer, step, value: (
            f"tk_store_strided_{_moved(kind)}({pointer}, {step}, {_stored(kind, value)})"
        ),
        load_partial=lambda kind, pointer, count, other: (
            f"tk_load_partial_{_moved(kind)}({pointer}, {count}, {other})"
        ),
        store_partial=lambda kind, pointer, value, count: (
            f"tk_store_partial_{_moved(kind)}({pointer}, {_stored(kind, value)}, {count})"
        ),
        gather=lambda kind, pointer, index: (
            f"tk_gather_{_moved(kind)}({pointer}, {_indices(index, kind.lanes)})"
        ),
        scatter=lambda kind, pointer, index, value: (
            f"tk_scatter_{_moved(kind)}({pointer}, {_indices(index, kind.lanes)}, {_stored(kind, value)})"
        ),
        convert=lambda kind, value: f"convert_{_vector(kind)}({value})",
        select=lambda mask, a, b: f"({mask} ? {a} : {b})",
        shuffle=_shuffle,
        widen=_widen,
        math=_math,
        typed=_typed,
        build=lambda kind, parts: f"({_vector(kind)})({', '.join(parts)})",
        lane=lambda value, number: f"{value}.s{number:x}",
        literal=_literal,
        index=index,
        device=replace(_DEVICE, axes=MappingProxyType(axes)),
    )


OPENCL_CPU = _vocabulary("long")
"""For the cores of a processor: unaligned vectors cost nothing, offsets are as wide as pointers."""

OPENCL_GPU = replace(
    _vocabulary("int"),
    load_aligned=lambda kind, pointer: f"tk_load_aligned_{_moved(kind)}({pointer})",
    store_aligned=lambda kind, pointer, value: (
        f"tk_store_aligned_{_moved(kind)}({pointer}, {_stored(kind, value)})"
    ),
)
"""For GPUs: offsets of 64 bits cost registers, vectors move in one piece only where they are aligned."""
