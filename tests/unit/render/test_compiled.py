"""Printed kernels, compiled and called, against the interpreter on the program before scheduling."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from compiler.core.types import BOOL
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.interp_values import STORAGE
from compiler.loops.ir import Func, Select, const
from compiler.targets import get_target
from tests.support.kernels import CompiledKernel, lower_all, pack_inputs, unpack_outputs
from tests.support.programs import PROGRAMS, random_schedule, vectorised
from tests.support.schedules import random_inputs

HOST = get_target("cpu")
SANITIZE = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")  # needs no library


def assert_computes(before: Func, scheduled: Func, directory: Path, flags: tuple[str, ...] = ()) -> None:
    kinds = {item.name: STORAGE[item.dtype.name] for item in before.params}
    inputs = {name: array.astype(kinds[name]) for name, array in random_inputs(before).items()}
    kernel = CompiledKernel(lower_all(scheduled, HOST.facts), HOST, directory, flags)
    got = unpack_outputs(scheduled, kernel(pack_inputs(scheduled, inputs)))
    for name, wanted in interpret(before, inputs).items():
        np.testing.assert_allclose(
            got[name], wanted, rtol=1e-5, atol=1e-5, err_msg=f"{name}\n{kernel.source}"
        )


@pytest.mark.parametrize("program", PROGRAMS)
def test_vectorised(program: str, tmp_path: Path) -> None:
    func = PROGRAMS[program]()
    assert_computes(func, vectorised(func), tmp_path)


def test_a_vector_of_bool_that_is_read_twice(tmp_path: Path) -> None:
    b = Builder("choice")
    x, mask = b.input("x", (4, 64)), b.input("mask", (4, 64), BOOL)
    zero = const(0.0, x.dtype)
    y = b.compute(
        "y", (4, 64), lambda i, j: Select(mask[i, j], x[i, j], zero) + Select(mask[i, j], zero, x[i, j])
    )
    func = b.finish([y])
    assert_computes(func, vectorised(func), tmp_path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(12))
def test_random_schedules(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    func = PROGRAMS[source.choice(list(PROGRAMS))]()
    assert_computes(func, random_schedule(func, source), tmp_path, SANITIZE)
