"""Products of tiles whose fragments are opaque: which lane holds what is the device's matter.

`wmma` of NVIDIA's GPUs (PTX ISA, "wmma.load", "wmma.mma") and `joint_matrix` of SYCL, which is the same there
and on Intel's GPUs XMX (sycl_ext_oneapi_matrix: shapes of `intel_gpu_pvc` with sub-groups of 16, of
`intel_gpu_dg2` with 8). One record each. Calls on fragments (`tile_calls.py`) are the same for all: the lane
map of a fragment says whose it is, and which part: a, c, and b as it lies in memory, by steps (`b`) or by
columns (`bt`).

The lanes here are the interpreter's and the emulator's: a lane holds a row of a, and a column or row of b;
where there are more lanes than those, the others hold them once more. No program may rely on it.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.core.types import BF16, F16, F32, DType
from compiler.loops.matrix_units.modes import Mode
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit, Text

_STEPS = 16

PRODUCT = MatrixUnit(
    "wmma.m16n16k16",
    32,
    F16,
    F32,
    a=Fragment((Mode(16, lane=1),), (Mode(_STEPS, register=1),)),
    b=Fragment((Mode(16, register=1),), (Mode(16, lane=1),)),
    c=Fragment((Mode(16, lane=2),), (Mode(2, lane=1), Mode(8, register=1))),
    pack=_STEPS,
    texts=(
        Text("cuda", "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32", "__CUDA_ARCH__ >= 700"),
        Text("sycl", "joint_matrix_mad"),
    ),
    opaque=True,
)


PRODUCT_BF16 = replace(
    PRODUCT, name="wmma.m16n16k16.bf16", factor=BF16, texts=(Text("sycl", "joint_matrix_mad"),)
)
"""The same of bf16, from sm_80 on; in CUDA `mma.sync` does it."""


def _joint(columns: int, factor: DType) -> MatrixUnit:
    """Eight rows; a sub-group has as many lanes as the tile columns."""
    return MatrixUnit(
        f"joint_matrix.m8n{columns}k{_STEPS}.{factor}",
        columns,
        factor,
        F32,
        a=Fragment((Mode(8, lane=1),), (Mode(_STEPS, register=1),)),
        b=Fragment((Mode(columns, lane=1),), (Mode(_STEPS, register=1),)),
        c=Fragment((Mode(8, register=1),), (Mode(columns, lane=1),)),
        pack=_STEPS,
        texts=(Text("sycl", "joint_matrix_mad"),),
        opaque=True,
    )


OPAQUE = {
    unit.name: unit
    for unit in (
        PRODUCT,
        PRODUCT_BF16,
        *(_joint(columns, kind) for columns in (16, 8) for kind in (F16, BF16)),
    )
}
"""Every record by its name."""


def unit_of(lane_map: str | None) -> tuple[MatrixUnit, str] | None:
    """The unit that a fragment with this lane map belongs to, and its part (a, b, bt, c); None for others."""
    name, _, part = (lane_map or "").rpartition(".")
    unit = OPAQUE.get(name)
    return None if unit is None else (unit, part)


def fragment_of(unit: MatrixUnit, part: str) -> Fragment:
    """The fragment of a part; b is the same, however it lies in memory."""
    return {"a": unit.a, "b": unit.b, "bt": unit.b, "c": unit.c}[part]


def tile_shape(unit: MatrixUnit, part: str) -> tuple[int, int]:
    """Rows and columns of a part in memory."""
    return {
        "a": (unit.rows, unit.steps),
        "b": (unit.steps, unit.columns),
        "bt": (unit.columns, unit.steps),
        "c": (unit.rows, unit.columns),
    }[part]


def memory_place(unit: MatrixUnit, part: str, lane: int, register: int) -> tuple[int, int]:
    """Row and column in memory of what a register of a lane holds."""
    row, column = fragment_of(unit, part).place(lane, register)
    return (column, row) if part == "b" else (row, column)
