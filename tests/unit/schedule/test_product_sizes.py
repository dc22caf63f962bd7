"""Matrix products of many sizes on several processors: each gets register tiles, none the rule for rows."""

from __future__ import annotations

import pytest

from compiler.loops.ir import REGISTER
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from compiler.targets import get_target
from tests.support.sketch import Sketch, works


@pytest.mark.parametrize("columns", [32, 40, 96])
@pytest.mark.parametrize("rows", [1, 7, 49, 196, 197, 512, 1000])
@pytest.mark.parametrize(("arch", "lanes"), [("x86-64-v2", 4), ("x86-64-v3+zen3", 8), ("x86-64-v4+zen4", 16)])
def test_sums_are_in_registers(arch: str, lanes: int, rows: int, columns: int) -> None:
    """Threads never share rows whose last tile overlaps: the whole rule would be refused."""
    sketch = Sketch()
    product = sketch.emit("MatMul", sketch.input(rows, 64), sketch.weights(64, columns))
    fused = sketch.fused(sketch.emit("Add", product, sketch.input(rows, columns)))
    ((func, own),) = works(fused, lanes)
    schedule = schedule_func(func, own, get_target("cpu", arch).facts, AnalyticChooser())
    assert [one.scope for one in schedule.func.allocs] == [REGISTER]
