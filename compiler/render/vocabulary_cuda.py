"""CUDA C++ and HIP: the same words for both; their helpers are the prelude, `runtime/device/tk_simt*.h`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from compiler.core.types import DType
from compiler.loops.ir import SHARED
from compiler.render.vocabulary import NARROW_FLOATS, DeviceWords, Dim3, Vocabulary, computed, memory_type

_FOLDER = Path(__file__).resolve().parent.parent / "runtime" / "device"
_HEADERS = ("tk_simt.h", "tk_simt_math.h", "tk_simt_threads.h")
_ARRAY_ALIGNMENT = 16
"""Of arrays: the widest access of a thread."""

_MEMORY = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t",
    "f8e4m3": "uint8_t", "f8e5m2": "uint8_t",
    "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t",
    "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
_TYPES = {**_MEMORY, **dict.fromkeys(NARROW_FLOATS, "float"), "bool": "bool"}


def _vector(kind: DType) -> str:
    return f"tk_{kind.name}x{kind.lanes}"


def _load(kind: DType, pointer: str) -> str:
    return f"tk_load<{_vector(memory_type(kind))}>({pointer})"


def _load_aligned(kind: DType, pointer: str) -> str:
    return f"tk_load_aligned<{_vector(memory_type(kind))}>({pointer})"


def _load_strided(kind: DType, pointer: str, step: str) -> str:
    return f"tk_load_strided<{_vector(memory_type(kind))}>({pointer}, {step})"


def _load_partial(kind: DType, pointer: str, count: str, other: str) -> str:
    return f"tk_load_partial<{_vector(memory_type(kind))}>({pointer}, {count}, {other})"


def _gather(kind: DType, pointer: str, index: str) -> str:
    return f"tk_gather<{_vector(memory_type(kind))}>({pointer}, {index})"


def _shuffle(lanes: tuple[int, ...], a: str, b: str) -> str:
    return f"tk_shuffle<{', '.join(map(str, lanes))}>({a}, {b})"


def _widen(kind: DType, value: str) -> str:
    if kind.name in NARROW_FLOATS:
        return f"tk_{kind.name}_to_f32({value})"
    return f"({value} != 0)" if kind.is_bool else value


def _narrow(kind: DType, value: str) -> str:
    return f"tk_f32_to_{kind.name}({value})" if kind.name in NARROW_FLOATS else value


def _math(name: str) -> str:
    return f"tk_{name.replace('.', '_')}"


def _typed(name: str, kind: DType) -> str:
    return f"{_math(name)}<{_TYPES[kind.name] if kind.lanes == 1 else _vector(computed(kind))}>"


def _literal(value: float, kind: DType) -> str | None:
    """What C has no literal for, and run-time compilers no builtin."""
    if not kind.is_float or value - value == 0:
        return None
    text = "TK_NAN" if value != value else "TK_INFINITY" if value > 0 else "(-TK_INFINITY)"
    return f"((double){text})" if kind.name == "f64" else text


def _kernel(name: str, params: Sequence[str], block: Dim3) -> str:
    threads = block[0] * block[1] * block[2]
    return f'extern "C" __global__ void __launch_bounds__({threads}) {name}({", ".join(params)})'


def _array(ctype: str, name: str, size: int, scope: str) -> str:
    shared = "__shared__ " if scope == SHARED else ""
    return f"alignas({_ARRAY_ALIGNMENT}) {shared}{ctype} {name}[{size}];"


def _atomic(op: str, kind: DType, address: str, value: str) -> str:
    return f"tk_atomic_{op}<{_MEMORY[kind.name]}>({address}, {value})"


_DEVICE = DeviceWords(
    kernel=_kernel,
    pointer=lambda ctype, _scope, constant: f"const {ctype} *" if constant else f"{ctype} *",
    axes=MappingProxyType(
        {f"{unit}.{axis}": f"(int){unit}.{axis}" for unit in ("blockIdx", "threadIdx") for axis in "xyz"}
    ),
    array=_array,
    barriers=MappingProxyType({"shared": "__syncthreads();", "subgroup": "TK_SUBGROUP_BARRIER();"}),
    atomic=_atomic,
    shared_first=True,
)

CUDA = Vocabulary(
    name="cuda",
    types=MappingProxyType(_TYPES),
    memory=MappingProxyType(_MEMORY),
    restrict="__restrict__",
    apart='asm volatile("" ::: "memory");',
    rolled="TK_ROLLED",
    prelude="\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _HEADERS),
    vector=_vector,
    load=_load,
    load_aligned=_load_aligned,
    store=lambda _, pointer, value: f"tk_store({pointer}, {value})",
    store_aligned=lambda _, pointer, value: f"tk_store_aligned({pointer}, {value})",
    splat=lambda kind, scalar: f"tk_splat<{_vector(kind)}>({scalar})",
    ramp=lambda kind, base, step: f"tk_ramp<{_vector(kind)}>({base}, {step})",
    load_strided=_load_strided,
    store_strided=lambda _, pointer, step, value: f"tk_store_strided({pointer}, {step}, {value})",
    load_partial=_load_partial,
    store_partial=lambda _, pointer, value, count: f"tk_store_partial({pointer}, {value}, {count})",
    gather=_gather,
    scatter=lambda _, pointer, index, value: f"tk_scatter({pointer}, {index}, {value})",
    convert=lambda kind, value: f"tk_convert<{_MEMORY[kind.name]}>({value})",
    select=lambda mask, a, b: f"tk_select({mask}, {a}, {b})",
    reduce=lambda op, value: f"tk_reduce_{op}({value})",
    shuffle=_shuffle,
    widen=_widen,
    narrow=_narrow,
    math=_math,
    typed=_typed,
    build=lambda kind, parts: f"{_vector(kind)}{{{', '.join(parts)}}}",
    lane=lambda value, number: f"{value}[{number}]",
    literal=_literal,
    index="int",
    device=_DEVICE,
)

HIP = replace(CUDA, name="hip", prelude=f"#define TK_HIP 1\n{CUDA.prelude}")
"""The differences (size of a sub-group, shuffles without a mask) are in the header, behind TK_HIP."""
