"""What breaks are drawn, and a few of them: the whole hunt is `bin/just mutants`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mutation.hunt import hunt_all, summary
from tests.mutation.mutants import KINDS, draw

TEXT = """\
#define SOMETHING 4
// tk_k0_0: b0[640] b1[640]
extern "C" __global__ void __launch_bounds__(64) tk_k0_0(const float *b0, float *b1) {
  alignas(16) __shared__ float s0[64];
  const int i1 = (int)threadIdx.x;
  float * p0 = s0 + i1;
  const float * p1 = b0 + (int)blockIdx.x * 64 + i1 * 1;
  p0[0] = i1 < 60 ? p1[0] : 0.0f;
  __syncthreads();
  b1[i1] = s0[63 - i1];
}
"""
CHANGES = {
    "missing barrier": {";"},
    "wrong stride": {
        "const float * p1 = b0 + (int)blockIdx.x * 64 + i1 * 0;",
        "const float * p1 = b0 + (int)blockIdx.x * 64 + i1 * 2;",
    },
    "off by one": {
        "p0[0] = i1 < 59 ? p1[0] : 0.0f;",
        "p0[0] = i1 < 61 ? p1[0] : 0.0f;",
        "p0[1] = i1 < 60 ? p1[0] : 0.0f;",
        "p0[-1] = i1 < 60 ? p1[0] : 0.0f;",
        "p0[0] = i1 < 60 ? p1[1] : 0.0f;",
        "p0[0] = i1 < 60 ? p1[-1] : 0.0f;",
    },
    "race": {"float * p0 = s0 + 0;"},
    "overflowing shared array": {
        f"alignas(16) __shared__ float s0[{size}];" for size in (63, 32, 56)
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_place_is_drawn(kind: str) -> None:
    rng = np.random.default_rng(0)
    drawn = [draw(TEXT, kind, rng) for _ in range(60)]
    assert {one.after for one in drawn if one is not None} == CHANGES[kind]
    assert all(one is not None and one.text.split("\n")[one.line - 1].strip() == one.after for one in drawn)


def test_a_seed_gives_the_same_mutants() -> None:
    one, other = (draw(TEXT, "off by one", np.random.default_rng(7)) for _ in range(2))
    assert one == other


def test_text_without_a_place() -> None:
    assert draw(TEXT.replace("__syncthreads();", ""), "missing barrier", np.random.default_rng(0)) is None


@pytest.mark.slow
def test_mutants_are_found() -> None:
    hunted = hunt_all(seed=3, count=10)
    assert sum(one.found for one in hunted) >= 9, "\n".join(summary(hunted, 3))
