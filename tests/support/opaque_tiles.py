"""A product on opaque fragments for each record: two blocks, two steps along the sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Func
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.matrix_units.wmma import OPAQUE
from compiler.loops.text import parse_func
from compiler.schedule import thread_intrinsics

_TEXT = """
func product(x: {kind}[2, {m}, {k2}], w: {kind}[{k2}, {n}]) -> (y: f32[2, {m}, {n}])
  for g in 0..2 bound(blockIdx.x)
    for t in 0..{lanes} bound(threadIdx.x)
      alloc a: {kind}[{a}] @fragment lane_map {name}.a
      alloc b: {kind}[{b}] @fragment lane_map {name}.b
      alloc c: f32[{c}] @fragment lane_map {name}.c
      wmma.fill:i32(&c[0], 1.0)
      for k in 0..2
        wmma.load_a:i32(&a[0], &x[g, 0, k * {k}], {k2})
        wmma.load_b:i32(&b[0], &w[k * {k}, 0], {n})
        wmma.mma:i32(&c[0], &a[0], &b[0])
      wmma.store:i32(&y[g, 0, 0], &c[0], {n})
"""
assert thread_intrinsics.DP4A  # importing it makes the calls known


@dataclass(frozen=True, slots=True)
class Tiles:
    """y = x @ w + 1 on one unit, with its operands and its result."""

    unit: MatrixUnit
    func: Func
    inputs: dict[str, np.ndarray[Any, Any]]
    wanted: np.ndarray[Any, Any]


def tiles(name: str) -> Tiles:
    """The product of one record."""
    unit = OPAQUE[name]
    m, n, k = unit.rows, unit.columns, unit.steps
    counts = {"a": unit.a.registers, "b": unit.b.registers, "c": unit.c.registers}
    words = {"kind": unit.factor, "name": name, "lanes": unit.lanes, "m": m, "n": n, "k": k, "k2": 2 * k}
    func = parse_func(_TEXT.format(**words, **counts))
    source = np.random.default_rng(3)
    kind = STORAGE[unit.factor.name]
    x, w = (source.standard_normal(shape).astype(kind) for shape in ((2, m, 2 * k), (2 * k, n)))
    return Tiles(unit, func, {"x": x, "w": w}, x.astype(np.float32) @ w.astype(np.float32) + 1)
