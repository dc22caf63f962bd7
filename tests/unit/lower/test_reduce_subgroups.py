"""Reductions over the lanes of a sub-group: what they become, and what cannot become one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.core.target import TargetFacts
from compiler.loops.interp import interpret
from compiler.loops.ir import Barrier, Call, Func, statements
from compiler.loops.text import parse_func
from compiler.loops.verify import verify_func
from tests.support.gpu import GFX906, SM_70
from tests.support.kernels import lower_all

ROWS = """
func rows(x: f32[ROWS, LANES]) -> (y: f32[ROWS])
  local part: f32[ROWS, LANES] @register
  local total: f32[ROWS] @register
  for b in 0..1 bound(blockIdx.x)
    for t in 0..THREADS bound(threadIdx.x)
      block part(r: spatial ROWS = t // LANES, l: spatial LANES = t % LANES)
        reads x[r, l]
        writes part[r, l]
        part[r, l] = x[r, l] * 2.0
    for g in 0..ROWS {lanes = LANES}
      for k in 0..LANES
        block total(r1: spatial ROWS = g, l1: reduce LANES = k)
          reads part[r1, l1]
          writes total[r1]
          init
            total[r1] = START
          total[r1] = UPDATE
    for t2 in 0..THREADS bound(threadIdx.x)
      block y(r2: spatial ROWS = t2 // LANES) where t2 % LANES == 0
        reads total[r2]
        writes y[r2]
        y[r2] = total[r2]
"""
UPDATES = {
    "sum": ("0.0", "total[r1] + part[r1, l1]", np.sum),
    "max": ("-inf", "max(total[r1], part[r1, l1])", np.max),
    "min": ("inf", "min(total[r1], part[r1, l1])", np.min),
    "prod": ("1.0", "total[r1] * part[r1, l1]", np.prod),
}


def rows(count: int, lanes: int, op: str = "sum", text: str = ROWS) -> Func:
    start, update, _ = UPDATES[op]
    text = text.replace("THREADS", str(count * lanes)).replace("ROWS", str(count))
    return parse_func(text.replace("LANES", str(lanes)).replace("START", start).replace("UPDATE", update))


@pytest.mark.parametrize("op", UPDATES)
@pytest.mark.parametrize(
    ("facts", "count", "lanes"), [(SM_70, 4, 32), (SM_70, 8, 8), (GFX906, 2, 64), (GFX906, 4, 16)]
)
def test_lanes_exchange_what_they_have(facts: TargetFacts, count: int, lanes: int, op: str) -> None:
    func = rows(count, lanes, op)
    verify_func(func)
    lowered = lower_all(func, facts)
    x = np.random.default_rng(lanes).uniform(0.3, 0.7, (count, lanes)).astype(np.float32)
    want = UPDATES[op][2](2 * x, axis=1)
    got = interpret(lowered, {"x": x.reshape(-1)}, subgroup=facts.subgroup_sizes[0], races=True)["y"]
    np.testing.assert_allclose(got, want, 1e-5)
    steps = [item for item in lowered.body.walk() if isinstance(item, Call)]
    assert len(set(steps)) == lanes.bit_length() - 1, "1, 2, 4 ... lanes away"
    assert not any(isinstance(item, Barrier) for item in statements(lowered.body))


def test_without_the_note_the_values_of_others_are_out_of_reach() -> None:
    func = rows(4, 32)
    plain = parse_func(ROWS_WITHOUT_NOTE)
    assert func.params == plain.params
    with pytest.raises(BadInputError, match="private to each thread"):
        lower_all(plain, SM_70)


ROWS_WITHOUT_NOTE = (
    ROWS.replace(" {lanes = LANES}", "")
    .replace("THREADS", "128")
    .replace("ROWS", "4")
    .replace("LANES", "32")
    .replace("START", "0.0")
    .replace("UPDATE", UPDATES["sum"][1])
)


def conditional(count: int, lanes: int, where: str) -> Func:
    """Sums of those rows only for which a condition holds; three of them are stored."""
    text = ROWS.replace("= k)\n", f"= k) where {where}\n")
    return rows(count, lanes, text=text.replace("== 0\n", f"== 0 and t2 < {3 * lanes}\n"))


def test_whole_sub_groups_exchange_under_a_condition() -> None:
    func = conditional(4, 32, "g < 3")
    verify_func(func)
    x = np.random.default_rng(3).uniform(0.3, 0.7, (4, 32)).astype(np.float32)
    got = interpret(lower_all(func, SM_70), {"x": x.reshape(-1)}, subgroup=32, races=True)["y"]
    np.testing.assert_allclose(got[:3], 2 * x[:3].sum(axis=1), 1e-5)


@pytest.mark.parametrize(
    ("func", "facts", "why"),
    [
        (conditional(4, 8, "g < 3"), SM_70, "only some lanes of a sub-group have a part"),
        (conditional(4, 32, "k < 20"), SM_70, "only some lanes of a sub-group have a part"),
        (rows(4, 64), SM_70, "64 is no power of two up to 32"),
        (rows(32, 12), SM_70, "12 is no power of two"),
        (rows(3, 16), SM_70, "48 threads do not fill sub-groups of 32"),
        (rows(4, 32), replace(SM_70, intrinsics=frozenset()), "the device has no shuffles"),
        (rows(4, 8), replace(SM_70, subgroup_sizes=(8, 16, 32)), "sub-groups of no certain size"),
    ],
)
def test_what_cannot_be(func: Func, facts: TargetFacts, why: str) -> None:
    with pytest.raises(BadInputError, match="cannot be made by shuffles") as caught:
        lower_all(func, facts)
    assert why in str(caught.value.why)
