"""Tensor intrinsics of matrix units, one for each record; importing this makes them known."""

from __future__ import annotations

from compiler.loops.matrix_units import UNITS
from compiler.loops.matrix_units.meaning import register_units
from compiler.schedule.tensor_intrinsics import TensorIntrinsic, register_tensor_intrinsic

register_units(UNITS.values())

MATRIX_INTRINSICS = {
    name: register_tensor_intrinsic(
        TensorIntrinsic.from_text(name, unit.description(), unit.implementation())
    )
    for name, unit in UNITS.items()
}
"""Descriptions and implementations by name."""
