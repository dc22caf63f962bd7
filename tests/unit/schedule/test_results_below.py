"""Depthwise convolutions and pools on threads: lines that windows of one thread share are read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from compiler.graph.ir import Value
from compiler.loops.interp import interpret
from compiler.loops.ir import (
    CONSTANT,
    REGISTER,
    For,
    ForKind,
    Func,
    Load,
    Stmt,
    Store,
    const,
    seq,
    statements,
)
from compiler.loops.queries import int_of
from compiler.loops.simplify import simplify_stmt, substitute
from compiler.loops.walk import Rewriter
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.rules import schedule_func
from tests.support.gpu import TINY
from tests.support.kernels import lower_all, run_flat
from tests.support.schedules import random_inputs
from tests.support.sketch import Sketch, works
from tests.unit.schedule.test_gpu_rules import assert_close

ONE_UNIT = replace(TINY, arch="sm_70")


def depthwise(lines: int, stride: int, size: int = 3) -> Callable[[Sketch], Value]:
    def make(s: Sketch) -> Value:
        x = s.input(1, 4, stride * (lines - 1) + size, stride * 11 + size)
        return s.conv(x, 4, size, stride=stride, groups=4)

    return make


def pool(size: int, stride: int) -> Callable[[Sketch], Value]:
    return lambda s: s.pool(s.input(1, 8, 8 * stride + size - stride, 24), size, stride)


CASES = {  # results of a thread, places that it names: of its windows together, or one in a loop
    "3 x 3": (depthwise(8, 1), 4, 18),
    "3 x 3, six lines": (depthwise(6, 1), 2, 12),
    "3 x 3, seven lines": (depthwise(7, 1), 1, 1),
    "3 x 3, every second place": (depthwise(8, 2), 4, 27),
    "7 x 7": (depthwise(8, 1, 7), 4, 70),
    "9 x 9, not written out": (depthwise(8, 1, 9), 1, 1),
    "pool 3 x 3, every second place": (pool(3, 2), 4, 27),
    "pool 2 x 2, nothing shared": (pool(2, 2), 1, 1),
    "sum of channels": (lambda s: s.emit("ReduceSum", s.input(2, 5, 8, 12), axes=(1,), keepdims=0), 1, 1),
}


def scheduled(make: Callable[[Sketch], Value]) -> tuple[Func, Func, Func]:
    s = Sketch()
    ((func, _),) = works(s.fused(make(s)), 0)
    schedule = schedule_func(func, {}, ONE_UNIT, AnalyticChooser())
    return func, schedule.func, lower_all(schedule.func, ONE_UNIT)


def written_out(stmt: Stmt) -> Stmt:
    """A statement with its unrolled loops as the statements that they stand for."""
    return _WrittenOut().visit(stmt)


class _WrittenOut(Rewriter):
    def visit_for(self, item: For) -> Stmt:
        if item.kind is not ForKind.UNROLLED:
            return self.parts(item)
        turns = range(int_of(item.extent) or 0)
        bodies = (substitute(item.body, {item.var.name: const(n)}) for n in turns)
        return seq(*(self.visit(simplify_stmt(body)) for body in bodies))


@pytest.mark.parametrize("name", CASES)
def test_a_thread_reads_lines_once(name: str) -> None:
    make, results, places = CASES[name]
    func, done, flat = scheduled(make)
    inputs = random_inputs(func)
    assert_close(interpret(func, inputs), run_flat(done, flat, inputs, shuffle=1))
    body = written_out(flat.body)
    stored = {item for item in statements(body) if isinstance(item, Store) and item.buffer.scope != REGISTER}
    assert len(stored) == results
    image = next(one for one in flat.params if one.scope != CONSTANT)
    read = {item for item in body.walk() if isinstance(item, Load) and item.buffer == image}
    assert len(read) == places
