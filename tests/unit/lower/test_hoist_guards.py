"""Conditions that do not change in an unrolled loop are asked once."""

from __future__ import annotations

import pytest

from compiler.loops.text import parse_func, print_func
from compiler.lower.hoist_guards import hoist_guards
from tests.support.gpu import SM_70

HEAD = "func f(x: f32[64]) -> (y: f32[64])\n  for t in 0..32 bound(threadIdx.x)\n"
SUMS = """    alloc s: f32[1] @register
    if t < 7
      s[0] = 0.0
    for k in 0..4 unrolled
      if t < 7
        s[0] += x[k * 8 + t]
    if t < 7
      y[t] = s[0]
"""
HOISTED = """    if t < 7
      alloc s: f32[1] @register in
        s[0] = 0.0
        for k in 0..4 unrolled
          s[0] += x[k * 8 + t]
        y[t] = s[0]
"""
OTHERS = {
    "a loop": SUMS.replace(" unrolled", "").split("    if t < 7\n      y")[0],
    "it changes": "    for k in 0..4 unrolled\n      if k * 8 + t < 30\n        y[k * 8 + t] = x[t]\n",
    "what memory says": "    for k in 0..4 unrolled\n      if x[0] < 1.0\n        x[0] = y[k]\n",
    "otherwise": (
        "    for k in 0..4 unrolled\n      if t < 7\n        y[k] = x[t]\n      else\n        y[k] = x[0]\n"
    ),
    "copies": "    for k in 0..4 unrolled\n      if t < 7\n        async_copy y[k +: 1] <- x[k +: 1]\n",
}


def test_it_is_asked_once() -> None:
    assert print_func(hoist_guards(parse_func(HEAD + SUMS), SM_70)) == print_func(parse_func(HEAD + HOISTED))


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    before = parse_func(HEAD + OTHERS[name])
    assert print_func(hoist_guards(before, SM_70)) == print_func(before)
