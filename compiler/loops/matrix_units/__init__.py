"""Instructions of matrix units, one record each."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.core.types import DType
from compiler.loops.matrix_units import mfma, mma, wmma
from compiler.loops.matrix_units.modes import Mode, Modes
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit, Text

__all__ = ["RECORDS", "UNITS", "Fragment", "MatrixUnit", "Mode", "Modes", "Text", "units_for", "wmma"]

UNITS = {unit.name: unit for unit in (*mma.UNITS, *mfma.UNITS)}
"""Every record by its name, but for those with opaque fragments (`wmma.OPAQUE`)."""


RECORDS = {**UNITS, **wmma.OPAQUE}
"""Every record by its name."""


def units_for(kind: DType, rates: Iterable[tuple[str, int]]) -> list[MatrixUnit]:
    """Those of a target (`TargetFacts.matrix_rates`) that multiply factors of a type."""
    return [RECORDS[name] for name, _ in rates if RECORDS[name].factor == kind]
