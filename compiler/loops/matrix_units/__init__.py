"""Instructions of matrix units, one record each."""

from __future__ import annotations

from compiler.loops.matrix_units import mfma, mma, wmma
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit, Mode, Modes, Text

__all__ = ["UNITS", "Fragment", "MatrixUnit", "Mode", "Modes", "Text", "wmma"]

UNITS = {unit.name: unit for unit in (*mma.UNITS, *mfma.UNITS)}
"""Every record by its name, but for those with opaque fragments (`wmma.OPAQUE`)."""
