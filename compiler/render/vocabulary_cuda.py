"""CUDA C++ and HIP: the same words for both, most of them those of C++ on the host.

The helpers are the prelude, `runtime/device/tk_simt*.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from types import MappingProxyType

from compiler.core.types import DType
from compiler.loops.ir import CLUSTER, PART, RANK, SHARED
from compiler.render.matrix_text import matrix_helpers, wmma_helpers
from compiler.render.vocabulary import TILES, Bounds, CopyWords, DeviceWords
from compiler.render.vocabulary_cpp import CPP, load_aligned, store_aligned

_FOLDER = Path(__file__).resolve().parent.parent / "runtime" / "device"
_HEADERS = ("tk_simt.h", "tk_simt_math.h", "tk_simt_threads.h")
_ARRAY_ALIGNMENT = 16
"""Of arrays: the widest access of a thread."""

_TILE_ALIGNMENT = 32
"""Of memory that opaque fragments are loaded from and stored to: 256 bits (CUDA C++ Programming Guide, "Warp
Matrix Functions"); each tile begins at a multiple of 16 rows, or of 32 bytes of one."""


def _math(name: str) -> str:
    return f"tk_{name.replace('.', '_')}"


def _typed(name: str, kind: DType) -> str:
    return f"{_math(name)}<{CPP.type_of(kind)}>"


def _literal(value: float, kind: DType) -> str | None:
    """What C has no literal for, and run-time compilers no builtin."""
    if not kind.is_float or value - value == 0:
        return None
    text = "TK_NAN" if value != value else "TK_INFINITY" if value > 0 else "(-TK_INFINITY)"
    return f"((double){text})" if kind.name == "f64" else text


def _kernel(name: str, params: Sequence[str], bounds: Bounds) -> str:
    """Where LLVM is not told of few waves, it saves registers for more, and waits for each read by itself."""
    waves = " TK_WAVES({}, {})".format(*bounds.waves) if bounds.waves else ""
    return _head(name, params, f"__launch_bounds__({prod(bounds.block)}){waves}")


def _cuda_kernel(name: str, params: Sequence[str], bounds: Bounds) -> str:
    """Without a second bound, compilers save registers for blocks that a small grid never has."""
    resident = f", {bounds.resident}" if bounds.resident else ""
    cluster = f"__cluster_dims__(1, 1, {bounds.cluster}) " if bounds.cluster > 1 else ""
    return _head(name, params, f"{cluster}__launch_bounds__({prod(bounds.block)}{resident})")


def _load_matrices(count: int, row: str, turned: bool) -> str:  # noqa: FBT001 (words are called by position)
    return f"tk_load_{'columns' if turned else 'matrices'}<{count}>({row})"


def _head(name: str, params: Sequence[str], bounds: str) -> str:
    return f'extern "C" __global__ void {bounds} {name}({", ".join(params)})'


def _array(ctype: str, name: str, size: int, scope: str) -> str:
    shared = "__shared__ " if scope in (SHARED, TILES) else ""
    alignment = _TILE_ALIGNMENT if scope == TILES else _ARRAY_ALIGNMENT
    return f"alignas({alignment}) {shared}{ctype} {name}[{size}];"


def _atomic(op: str, kind: DType, address: str, value: str) -> str:
    return f"tk_atomic_{op}<{CPP.memory[kind.name]}>({address}, {value})"


_DEVICE = DeviceWords(
    kernel=_kernel,
    pointer=lambda ctype, _scope: f"{ctype} *",
    axes=MappingProxyType(
        {f"{unit}.{axis}": f"(int){unit}.{axis}" for unit in ("blockIdx", "threadIdx") for axis in "xyz"}
        | {PART: "(int)blockIdx.z"}
    ),
    array=_array,
    barriers=MappingProxyType({"shared": "__syncthreads();", "subgroup": "TK_SUBGROUP_BARRIER();"}),
    atomic=_atomic,
    last_block=lambda counter, blocks, told: f"tk_last_block({counter}, {blocks}, {told})",
    shared_at=lambda ctype, name, size, offset: f"TK_SHARED_AT({ctype}, {name}, {size}, {offset});",
    copies=CopyWords(
        copy=lambda to, source, size: f"tk_async_copy<{size}>({to}, {source});",
        fill=lambda to, source, size, holds: f"tk_async_copy_or_zero<{size}>({to}, {source}, {holds});",
        commit="tk_async_commit();",
        wait=lambda pending: f"tk_async_wait<{pending}>();",
    ),
)

_CUDA = replace(
    CPP,
    name="cuda",
    restrict="__restrict__",
    prelude="\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _HEADERS),
    load_aligned=load_aligned,
    store_aligned=store_aligned,
    math=_math,
    typed=_typed,
    literal=_literal,
    index="int",
    device=_DEVICE,
)

_WMMA = (_FOLDER / "tk_simt_wmma.h").read_text(encoding="utf-8")
CUDA = replace(
    _CUDA,
    device=replace(
        _DEVICE,
        kernel=_cuda_kernel,
        axes={**_DEVICE.axes, RANK: "(int)blockIdx.z"},
        barriers={**_DEVICE.barriers, CLUSTER: "tk_cluster_barrier();"},
        begin="tk_await_earlier();",
        end="tk_cluster_end();",
        in_block=lambda address, rank: f"tk_in_block({address}, {rank})",
        load_matrices=_load_matrices,
    ),
    helpers={**matrix_helpers("cuda", _CUDA), **wmma_helpers(_WMMA, _CUDA)},
)
HIP = replace(
    _CUDA,
    name="hip",
    load_or_zero=lambda kind, base, address, holds: f"tk_load_or_zero<{kind}>({base}, {address}, {holds})",
    prelude=f"#define TK_HIP 1\n{_CUDA.prelude}",
    helpers=matrix_helpers("hip", _CUDA),
)
"""The differences (size of a sub-group, shuffles without a mask) are in the header, behind TK_HIP."""
