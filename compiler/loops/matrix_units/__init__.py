"""Instructions of matrix units, one record each; importing this tells the interpreter what they mean."""

from __future__ import annotations

from compiler.loops import intrinsics
from compiler.loops.matrix_units import mfma, mma, wmma
from compiler.loops.matrix_units.unit import Digit, Digits, Fragment, MatrixUnit, Text

__all__ = ["UNITS", "Digit", "Digits", "Fragment", "MatrixUnit", "Text", "wmma"]

UNITS = {unit.name: unit for unit in (*mma.UNITS, *mfma.UNITS)}
"""Every record by its name, but for those with opaque fragments (`wmma.OPAQUE`)."""

for _unit in UNITS.values():
    intrinsics.register(_unit.intrinsic())
    for _map in _unit.lane_maps():
        intrinsics.register_lane_map(_map)
