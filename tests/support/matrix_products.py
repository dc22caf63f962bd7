"""One product for each instruction of a matrix unit: scheduled by the rule, with extents that leave rests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.core.target import TargetFacts
from compiler.core.types import F32, TF32, DType
from compiler.loops.build import Builder
from compiler.loops.interp_values import STORAGE, round_tf32
from compiler.loops.ir import Cast, Expr, Func
from compiler.loops.matrix_units import RECORDS, MatrixUnit
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.vocabulary import Vocabulary
from compiler.render.vocabulary_cuda import CUDA, HIP
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules.threads.matrix import matrix_gemm
from compiler.schedule.rules.threads.matrix_tile import MatrixTile
from compiler.schedule.schedule import Schedule
from tests.support.gpu import GFX906, SM_70
from tests.support.kernels import lower_all

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Product:
    """A product y = x @ w.T on one unit: loops as scheduled and as lowered, operands and result."""

    unit: MatrixUnit
    facts: TargetFacts
    words: Vocabulary
    scheduled: Func
    lowered: Func
    inputs: dict[str, Array]
    wanted: Array

    @property
    def device(self) -> DeviceText:
        number = list(RECORDS).index(self.unit.name)
        return render_launches(self.lowered, number, self.words, self.facts)

    def assert_close(self, found: Array) -> None:
        """Within what adding up in f32 may lose; integers are exact."""
        exact = not self.unit.total.is_float
        found = found.reshape(self.wanted.shape)
        np.testing.assert_allclose(found, self.wanted, rtol=0 if exact else 1e-4, atol=0 if exact else 1e-4)


def facts_with(unit: MatrixUnit) -> TargetFacts:
    """A device that has one unit and nothing else that is fast."""
    facts = SM_70 if unit.lanes == 32 else GFX906
    return replace(facts, matrix_rates=((unit.name, 1024),), precision=unit.precision or "f32")


def product(name: str, beside: int = 1, own: tuple[int, int] = (0, 0)) -> Product:
    """The product of one unit: several tiles along each axis, and a part of one.

    beside: tiles of a sub-group along the columns, which have no rest then. own: tiles of a sub-group along
    rows and columns, two sub-groups along each.
    """
    unit = RECORDS[name]
    facts = facts_with(unit)
    columns = 2 * beside * unit.columns if beside > 1 else 3 * unit.columns + 1
    rows, steps = 2 * unit.rows + 3, 2 * unit.steps + 5
    kind = F32 if unit.factor == TF32 else unit.factor
    if all(own):
        rows, columns = 4 * own[0] * unit.rows - 3, 2 * own[1] * unit.columns + 1
    func = _func(rows, columns, steps, kind, unit.total)
    schedule = Schedule(func)
    tile = {"y.tile": MatrixTile(unit, 1, 1, 1, beside, max(16, unit.steps)).value} if beside > 1 else {}
    if all(own):
        tile = {"y.tile": MatrixTile(unit, 2, 2, *own, 2 * max(16, unit.steps)).value}
    chooser = ReplayChooser({"y.unit": (1,), **tile}, AnalyticChooser())
    assert matrix_gemm(schedule, "y", facts, chooser)
    source = np.random.default_rng(0)
    x, w = (_values(source, shape, kind) for shape in ((rows, steps), (columns, steps)))
    words = CUDA if unit.lanes == 32 else HIP
    return Product(
        unit,
        facts,
        words,
        schedule.func,
        lower_all(schedule.func, facts),
        {"x": x, "w": w},
        _wanted(unit, x, w),
    )


def _func(rows: int, columns: int, steps: int, kind: DType, total: DType) -> Func:
    def wide(value: Expr) -> Expr:
        return value if kind == total else Cast(total, value)

    b = Builder("product")
    x, w = b.input("x", (rows, steps), kind), b.input("w", (columns, steps), kind)
    y = b.reduce("y", (rows, columns), (steps,), lambda i, j, k: wide(x[i, k]) * wide(w[j, k]), dtype=total)
    return b.finish([y])


def _values(source: np.random.Generator, shape: tuple[int, ...], kind: DType) -> Array:
    if kind.is_float:
        return source.standard_normal(shape).astype(STORAGE[kind.name])
    return source.integers(-128, 128, shape).astype(STORAGE[kind.name])


def _wanted(unit: MatrixUnit, x: Array, w: Array) -> Array:
    if unit.factor == TF32:
        x, w = round_tf32(x), round_tf32(w)
    wide = np.float64 if unit.total.is_float else np.int64
    result: Array = x.astype(wide) @ w.astype(wide).T
    return result
