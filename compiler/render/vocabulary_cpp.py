"""C++17 with the vector extensions of g++ and clang++; helpers are in `tk_kernel.h`."""

from __future__ import annotations

from types import MappingProxyType

from compiler.core.types import DType
from compiler.render.vocabulary import NARROW_FLOATS, Vocabulary, computed, memory_type

_MEMORY = {
    "f64": "double", "f32": "float", "tf32": "uint32_t", "f16": "uint16_t", "bf16": "uint16_t",
    "f8e4m3": "uint8_t", "f8e5m2": "uint8_t",
    "i64": "int64_t", "i32": "int32_t", "i16": "int16_t", "i8": "int8_t",
    "u64": "uint64_t", "u32": "uint32_t", "u16": "uint16_t", "u8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
_TYPES = {**_MEMORY, **dict.fromkeys(NARROW_FLOATS, "float"), "bool": "bool"}

_LIBM = frozenset(
    {
        "exp2", "expm1", "log2", "log10", "log1p", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
        "asinh", "acosh", "atanh", "erfc", "hypot", "isnan", "isinf", "isfinite", "reciprocal", "sign",
        "softplus",
    }
)  # fmt: skip
"""Functions of `tk_libm.h`; the others are in `tk_math.h`."""

_PRELUDE = """\
#include "tk_kernel.h"

TK_CONTRACT
"""


def _vector(kind: DType) -> str:
    return f"tk_{kind.name}x{kind.lanes}"


def _load(kind: DType, pointer: str) -> str:
    return f"tk_load<{_vector(memory_type(kind))}>({pointer})"


def _load_partial(kind: DType, pointer: str, count: str, other: str) -> str:
    return f"tk_load_partial<{_vector(memory_type(kind))}>({pointer}, {count}, {other})"


def _gather(kind: DType, pointer: str, index: str) -> str:
    return f"tk_gather<{_vector(memory_type(kind))}>({pointer}, {index})"


def load_aligned(kind: DType, pointer: str) -> str:
    """A whole vector at a multiple of its length, where a language moves those apart."""
    return f"tk_load_aligned<{_vector(memory_type(kind))}>({pointer})"


def store_aligned(_kind: DType, pointer: str, value: str) -> str:
    """The same the other way."""
    return f"tk_store_aligned({pointer}, {value})"


def _widen(kind: DType, value: str) -> str:
    if kind.name in NARROW_FLOATS:
        return f"tk_{kind.name}_to_f32({value})"
    return f"({value} != 0)" if kind.is_bool else value


def _math(name: str) -> str:
    return f"tk_libm_{name}" if name in _LIBM else f"tk_{name}"


def _typed(name: str, kind: DType) -> str:
    return f"{_math(name)}<{_TYPES[kind.name] if kind.lanes == 1 else _vector(computed(kind))}>"


def _shuffle(lanes: tuple[int, ...], a: str, b: str) -> str:
    return f"tk_shuffle<{', '.join(map(str, lanes))}>({a}, {b})"


CPP = Vocabulary(
    name="c++",
    types=MappingProxyType(_TYPES),
    memory=MappingProxyType(_MEMORY),
    restrict="__restrict",
    apart='asm volatile("" ::: "memory");',
    rolled="TK_ROLLED",
    prelude=_PRELUDE,
    vector=_vector,
    load=_load,
    store=lambda _, pointer, value: f"tk_store({pointer}, {value})",
    splat=lambda kind, scalar: f"tk_splat<{_vector(kind)}>({scalar})",
    ramp=lambda kind, base, step: f"tk_ramp<{_vector(kind)}>({base}, {step})",
    load_strided=lambda kind, pointer, step: (
        f"tk_load_strided<{_vector(memory_type(kind))}>({pointer}, {step})"
    ),
    store_strided=lambda _, pointer, step, value: f"tk_store_strided({pointer}, {step}, {value})",
    load_partial=_load_partial,
    store_partial=lambda _, pointer, value, count: f"tk_store_partial({pointer}, {value}, {count})",
    gather=_gather,
    scatter=lambda _, pointer, index, value: f"tk_scatter({pointer}, {index}, {value})",
    convert=lambda kind, value: f"tk_convert<{_MEMORY[kind.name]}>({value})",
    select=lambda mask, a, b: f"tk_select({mask}, {a}, {b})",
    shuffle=_shuffle,
    widen=_widen,
    math=_math,
    typed=_typed,
    build=lambda kind, parts: f"{_vector(kind)}{{{', '.join(parts)}}}",
    lane=lambda value, number: f"{value}[{number}]",
)
