"""Scratch buffers share memory exactly where their lives allow it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from compiler.core.types import F32
from compiler.loops.interp import interpret
from compiler.loops.ir import Alloc, Func
from compiler.loops.text import parse_func
from compiler.lower.storage_rewrite import storage_rewrite
from compiler.targets import get_target
from tests.support.kernels import CompiledKernel

HOST = get_target("cpu")
N = 2048


def chain(steps: list[str], locals_: str = "abc") -> Func:
    """Buffers of N floats allocated together; each step is a statement over i."""
    text = [f"func f(x: f32[{N}]) -> (y: f32[{N}])"]
    pad = "  "
    text += [f"{pad}alloc {name}: f32[{N}] @scratch" for name in locals_]
    for number, step in enumerate(steps):
        text.append(f"{pad}for i{number} in 0..{N}")
        text.append(f"{pad}  {step.replace('i', f'i{number}')}")
    return parse_func("\n".join(text) + "\n")


def arena(func: Func) -> int:
    """Bytes of the arena; 0 when there is none."""
    found = [item.buffer for item in func.body.walk() if isinstance(item, Alloc) and item.buffer.dtype != F32]
    return int(found[0].shape[0].value) if found else 0  # type: ignore[attr-defined]


def check(func: Func, tmp_path: Path) -> int:
    after = storage_rewrite(func, HOST.facts)
    x = np.arange(N, dtype=np.float32)
    wanted = interpret(func, {"x": x})["y"]
    np.testing.assert_array_equal(interpret(after, {"x": x})["y"], wanted)
    np.testing.assert_array_equal(CompiledKernel(after, HOST, tmp_path)({"x": x})["y"], wanted)
    return arena(after)


def test_lives_that_do_not_meet_share(tmp_path: Path) -> None:
    func = chain(
        [f"a[i] = x[{N - 1} - i]", "b[i] = a[0] + x[i]", f"c[i] = b[{N - 1} - i]", "y[i] = c[0] + c[i]"]
    )
    assert check(func, tmp_path) == 2 * 4 * N


def test_elementwise_steps_work_in_place(tmp_path: Path) -> None:
    func = chain(["a[i] = x[i] + 1.0", "b[i] = a[i] * 2.0", "c[i] = b[i] + 1.0", f"y[i] = c[{N - 1} - i]"])
    assert check(func, tmp_path) == 4 * N


def test_reversed_step_does_not(tmp_path: Path) -> None:
    func = chain(["a[i] = x[i] + 1.0", f"b[i] = a[{N - 1} - i]", "y[i] = b[i]"], "ab")
    assert check(func, tmp_path) == 0


def test_all_alive_keep_their_memory(tmp_path: Path) -> None:
    func = chain(["a[i] = x[i]", "b[i] = a[i] + 1.0", "c[i] = a[i] + b[i]", "y[i] = a[i] + b[i] + c[i]"])
    assert check(func, tmp_path) == 0


def test_small_buffers_stay_on_the_stack() -> None:
    func = parse_func(
        f"func f(x: f32[{N}]) -> (y: f32[{N}])\n  for i in 0..{N}\n    alloc a: f32[8] @scratch\n"
        "    alloc b: f32[8] @scratch\n    a[0] = x[i]\n    b[1] = a[0]\n    y[i] = b[1]\n"
    )
    assert storage_rewrite(func, HOST.facts) == func
