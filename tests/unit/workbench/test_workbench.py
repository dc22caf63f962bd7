"""One function by hand: run, lowered, built, called, timed; and what is said where that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.core.diagnostics import BadInputError, ExitCode, TkError, UsageError
from compiler.loops.interp_values import ProgramError
from compiler.schedule import (
    Builder,
    Func,
    Schedule,
    build,
    interpreted,
    lower,
    lower_steps,
    parse_func,
    source,
)
from tests.support.command import tk

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def doubled() -> Func:
    b = Builder("doubled")
    x = b.input("x", (4, 8))
    y = b.compute("y", (4, 8), lambda i, j: x[i, j] * 2.0)
    return b.finish([y, b.reduce("total", (4,), (8,), lambda i, k: x[i, k])])


def in_layouts() -> Schedule:
    """Parameters in other layouts than their callers': the result by columns, the input padded."""
    s = Schedule(doubled())
    s.transform_layout("y", "i, j -> j, i")
    s.transform_layout("x", "i, j -> i, j // 3, j % 3", 0.0)
    s.parallel(s.loops("y")[0])
    return s


# ---------------------------------------------------------------- what works


@pytest.mark.parametrize("make", [lambda: Schedule(doubled()), in_layouts], ids=["as it is", "in layouts"])
def test_run_and_build_compute_the_same(make: Callable[[], Schedule]) -> None:
    for found in (interpreted(make(), X), build(make(), threads=2)(X), build(make())(x=X.tolist())):
        y, total = found
        np.testing.assert_array_equal(y, X * 2)
        np.testing.assert_array_equal(total, X.sum(axis=1))


def test_a_parallel_loop_runs_on_threads() -> None:
    kernel = build(in_layouts(), threads=2)
    with kernel.model.context() as context:
        assert context.threads == 2
    assert "tk_parallel" in kernel.source


def test_the_library_is_one_like_any_other(tmp_path: Path) -> None:
    s = Schedule(doubled())
    s.vectorize(s.loops("y")[-1])
    build(s).write(tmp_path / "doubled.so")
    found = compiler.load(tmp_path / "doubled.so").run({"x": X})
    np.testing.assert_array_equal(found["total"], X.sum(axis=1))
    shown = tk("inspect", tmp_path / "doubled.so", "--check")
    assert (shown.code, "1 kernel replays to the same text" in shown.out) == (0, True), shown.out


def test_times_have_a_confidence() -> None:
    times = build(Schedule(doubled())).time(X, seconds=0.02, warmup=0.0)
    assert 0 < times.low <= times.p50 <= times.high
    assert times.runs >= 10


def test_lowering_step_by_step() -> None:
    s = Schedule(doubled())
    steps = dict(lower_steps(s))
    assert next(iter(steps)) == "lower_blocks"
    assert "block" not in lower(s).body.__class__.__name__.lower()
    assert "x: f32[32]" in steps["flatten_buffers"]


def test_another_target_has_another_text() -> None:
    s = Schedule(doubled())
    for block in ("y", "total"):
        s.bind(s.loops(block)[0], "blockIdx.x")
    assert "__global__" in source(s, "cuda")
    assert "__global__" not in source(Schedule(doubled()))


# ---------------------------------------------------------------- what is refused

SYMBOLIC = """
func f[n in 1..8](x: f32[n]) -> (y: f32[n])
  for i in 0..n
    block y(v: spatial n = i)
      reads x[v]
      writes y[v]
      y[v] = x[v]
"""
OUTSIDE = """
func f(x: f32[4]) -> (y: f32[4])
  for i in 0..4
    block y(v: spatial 4 = i)
      reads x[v]
      writes y[v]
      y[v + 1] = x[v]
"""


def bound() -> Schedule:
    s = Schedule(doubled())
    s.bind(s.loops("y")[0], "threadIdx.x")
    return s


@pytest.mark.parametrize(
    ("call", "kind", "what"),
    [
        (lambda: interpreted(doubled(), X, X), UsageError, "takes 1 array, not 2"),
        (lambda: interpreted(doubled()), UsageError, "needs its input `x`"),
        (lambda: interpreted(doubled(), X, x=X), UsageError, "`x` twice"),
        (lambda: interpreted(doubled(), xs=X), UsageError, "no input `xs`"),
        (lambda: interpreted(doubled(), X[:2]), UsageError, r"shape \[2, 8\], not \[4, 8\]"),
        (lambda: build(doubled(), "gpu"), UsageError, "unknown target `gpu`"),
        (lambda: build(doubled(), threads=0), UsageError, "on 0 threads"),
        (lambda: build(bound()), UsageError, "bound to threadIdx.x"),
        (lambda: build(parse_func(SYMBOLIC)), UsageError, "only a run knows"),
        (lambda: interpreted(parse_func(OUTSIDE), X[0, :4]), BadInputError, "not a valid scheduled"),
        (lambda: parse_func("func f("), BadInputError, "expected|found|end"),
    ],
)
def test_one_message(call: Callable[[], object], kind: type[TkError], what: str) -> None:
    with pytest.raises(kind, match=what) as caught:
        call()
    assert caught.value.code in (ExitCode.USAGE, ExitCode.BAD_INPUT)


def test_races_are_found() -> None:
    text = """
func f(x: f32[4]) -> (y: f32[1])
  for i in 0..4 parallel
    block y(v: spatial 4 = i)
      reads x[v]
      writes y[0]
      y[0] = x[v]
"""
    with pytest.raises((ProgramError, BadInputError)):
        interpreted(parse_func(text), X[0, :4])
