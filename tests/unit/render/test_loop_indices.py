"""Indices of loops: digits are what a division gives, and divide nothing; pointers stand on others."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler.core.target import TargetFacts
from compiler.core.types import INDEX
from compiler.loops.ir import Binary, Expr, Var
from compiler.loops.simplify import Simplifier
from compiler.loops.text import parse_func
from compiler.render.device import render_launches
from compiler.render.loop_indices import Digit, digit_of
from compiler.render.vocabulary_cuda import CUDA
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.support.gpu import SM_70

ROUNDS = 23
# digit of round r -> (first, times, size) of (r + first) // times % size, a quotient without size
DIGITS = {
    "(r + 5) % 6": (5, 1, 6),
    "r % 3": (0, 1, 3),
    "(r + 20) % 6": (20, 1, 6),
    "(r + 5) // 6": (5, 6, 0),
    "(r + 1) // 2 % 3": (1, 2, 3),
    "((r + 1) // 2 + 2) % 3": (5, 2, 3),
    "(r + 4) // 5 % 3": (4, 5, 3),
    "(r + 7) // 5 % 4": (7, 5, 4),
}

KERNEL = """
func digits(x: i64[1]) -> (y: i64[COUNT])
  for b in 0..1 bound(blockIdx.x)
    for t in 0..1 bound(threadIdx.x)
      for r in 0..ROUNDS
STORES"""


def printed(digits: list[str], facts: TargetFacts) -> str:
    """A kernel that stores digits of all rounds, one after the other."""
    places = [f"        y[r * {len(digits)} + {n}] = i64({text})" for n, text in enumerate(digits)]
    text = KERNEL.replace("COUNT", str(ROUNDS * len(digits))).replace("ROUNDS", str(ROUNDS))
    func = parse_func(text.replace("STORES", "\n".join(places)))
    return render_launches(func, 0, CUDA, facts).text


def values(first: int, times: int, size: int) -> np.ndarray:
    whole = (np.arange(ROUNDS) + first) // times
    return whole % size if size else whole


def test_all_at_once_in_the_emulator() -> None:
    text = printed([*DIGITS], SM_70)
    found = np.zeros((ROUNDS, len(DIGITS)), np.int64)
    assert Emulated(CUDA.module([text])).launch("tk_k0_0", (1, 1, 1), (1, 1, 1), [found]) == ""
    np.testing.assert_array_equal(found, np.stack([values(*item) for item in DIGITS.values()], axis=1))


@pytest.mark.parametrize("digit", DIGITS)
def test_what_is_told_from_an_expression(digit: str) -> None:
    names = {"r": Var("r"), "__builtins__": {}}
    expr = eval(digit, names)
    assert isinstance(expr, Binary)
    assert digit_of(expr, Simplifier({"r": (0, ROUNDS - 1)})) == Digit("r", *DIGITS[digit])


OTHERS = [Var("r") * 2 % 6, (Var("r") + Var("s")) % 6, Var("r") % Var("s"), (Var("r") - 1) % 6]


@pytest.mark.parametrize("expr", OTHERS)
def test_others_are_divided(expr: Expr) -> None:
    assert isinstance(expr, Binary)
    assert expr.dtype == INDEX
    assert digit_of(expr, Simplifier({"r": (0, 9), "s": (1, 9)})) is None


@pytest.mark.parametrize(
    ("index", "pointer"),
    [
        ("t * 8 + r % 3 * 2 + r * 6", "p0 + (uint32_t)(m0 * 2 + i2 * 6)"),
        ("t * 8 + (22 - r) * 2", "p0 + -i2 * 2"),
    ],
)
def test_pointers_are_one_number_behind_one_from_outside(index: str, pointer: str) -> None:
    kernel = KERNEL.replace("0..1 bound(threadIdx.x)", "0..8 bound(threadIdx.x)").replace("COUNT", "512")
    func = parse_func(kernel.replace("ROUNDS", str(ROUNDS)).replace("STORES", f"        y[{index}] = i64(r)"))
    text = render_launches(func, 0, CUDA, SM_70).text
    assert "p0 = b1 + i1 * 8;" in text
    assert f"p1 = {pointer};" in text


def test_places_beyond_31_bits_keep_their_width() -> None:
    stores = "        y[t + r * 200000000] = i64(r)"
    kernel = KERNEL.replace("0..1 bound(threadIdx.x)", "0..8 bound(threadIdx.x)").replace(
        "COUNT", "5000000000"
    )
    func = parse_func(kernel.replace("ROUNDS", "23").replace("STORES", stores))
    text = render_launches(func, 0, CUDA, SM_70).text
    assert "int64_t * p1 = p0 + i2 * 200000000;" in text


def test_the_loop_divides_nothing() -> None:
    text = printed(["(r + 5) % 6", "(r + 1) // 2 % 3"], SM_70)
    assert "for (int i2 = 0, m0 = 5, m1 = 0; i2 < 23; " in text
    assert re.findall(r"[/%] \d+", text) == ["% 2"], "of a power of two, which is a mask"


def test_powers_of_two_stay_and_so_does_what_processors_run() -> None:
    assert " m0" not in printed(["(r + 3) % 8", "(r + 3) // 4 % 2"], SM_70)
    assert "(i2 + 5) % 6" in printed(["(r + 5) % 6"], get_target("opencl-cpu").facts).replace("i0", "i2")
