"""A kernel's rows as one."""

from __future__ import annotations

import numpy as np

from compiler.core.target import TargetFacts
from compiler.loops.ir import Func
from compiler.runtime.tensors import Array
from compiler.tune.strategies.features.loops import COLUMNS, VERSION, loop_rows

POOLED = ("sum", "most", "main")
"""Of each column: the sum of all rows, the largest, and that of the row with most arithmetic. Summing the
predictions of rows, as the peers do, ranked worse (`benchmarks/tuning_replay.py`)."""

NAMES = (*(f"{kind}.{name}" for kind in POOLED for name in COLUMNS), "rows")
FEATURES = VERSION
"""The version of these columns."""

_WORK = [COLUMNS.index("ops.mul"), COLUMNS.index("ops.add")]


def pooled(lowered: Func, facts: TargetFacts) -> Array:
    """The columns `NAMES` of a lowered kernel: float32, finite."""
    rows = loop_rows(lowered, facts)
    sums = np.log2((np.exp2(rows.astype(np.float64)) - 1.0).sum(axis=0) + 1.0)
    main = rows[rows[:, _WORK].sum(axis=1).argmax()]
    return np.concatenate([sums, rows.max(axis=0), main, [len(rows)]]).astype(np.float32)
