"""The loop over the samples of a free batch: each sample gets what it gets alone."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.loops.interp import interpret
from compiler.loops.ir import For, ForKind, Func
from compiler.loops.text import parse_func
from compiler.loops.verify import verify_func
from compiler.lower.over_samples import over_samples

SIZE, APART = 12, 16

PARALLEL = """
for i in 0..3 parallel
  y[ramp(i * 4, 1, 4)] = x[ramp(i * 4, 1, 4)] * w[ramp(i * 4, 1, 4)]
"""
SCATTERED = """
for i in 0..3
  y[ramp(i * 4, 1, 4)] = x[broadcast(i, 4)] + w[ramp(0, 1, 4)]
"""
TWO_NESTS = """
for i in 0..12 parallel
  t[i] = x[11 - i] + w[i]
for j in 0..12 parallel
  y[j] = t[11 - j] * 2.0
"""
CASES = {"one parallel loop": PARALLEL, "vectors of one element": SCATTERED, "through a workspace": TWO_NESTS}


def func(body: str) -> Func:
    lines = "\n".join(f"  {line}" for line in body.strip("\n").splitlines())
    work = f", t: f32[{SIZE}]" if "t[" in body else ""
    notes = f"workspace = {int(bool(work))}, samples = (100, {SIZE}, 0, {APART},)"
    return parse_func(
        f"func f(x: f32[{SIZE}], w: f32[{SIZE}]{work}) -> (y: f32[{SIZE}]) {{{notes}}}\n{lines}\n"
    )


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_each_sample_as_alone(name: str, count: int) -> None:
    one = func(CASES[name])
    many = over_samples(one)
    verify_func(many, "flat")
    generator = np.random.default_rng(1)
    x, w = generator.random(count * SIZE, np.float32), generator.random(SIZE, np.float32)
    got = interpret(many, {"x": x, "w": w, many.dims[0].var.name: count})["y"].reshape(count, APART)
    for number in range(count):
        alone = interpret(one, {"x": x[number * SIZE :][:SIZE], "w": w})["y"]
        np.testing.assert_array_equal(got[number, :SIZE], alone)
    assert np.isnan(got[:, SIZE:]).all(), "between samples lies what is another's"


def test_threads_share_samples_and_their_parts() -> None:
    many = over_samples(func(PARALLEL))
    assert isinstance(many.body, For)
    assert (many.body.kind, many.body.extent) == (ForKind.PARALLEL, many.dims[0].var * 3)


def test_a_launch_stays_that_of_one_sample() -> None:
    one = func(PARALLEL)
    assert over_samples(one, launches=True) is one


def test_a_function_without_samples_stays() -> None:
    plain = func(PARALLEL).replace(attrs=())
    assert over_samples(plain) is plain
