"""The C interface and the pool of threads under stress, plain and under sanitizers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.process import run
from compiler.core.settings import child_environment
from tests.support.model_library import NOTHING, SCALE_ADD, Builder

SANITIZERS = {
    "plain": (),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g1", "-O1"),
    "thread": ("-fsanitize=thread", "-g1", "-O1"),
}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
@pytest.mark.parametrize("threads", [1, 4])
def test_stress(builder: Builder, tmp_path: Path, sanitizer: str, threads: int) -> None:
    program = builder.program(tmp_path / "stress", ["pool_stress.cpp"], *SANITIZERS[sanitizer])
    environment = child_environment(TSAN_OPTIONS="halt_on_error=1", ASAN_OPTIONS="detect_leaks=1")
    done = run([str(program), str(threads), "0.3"], env=environment, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 100


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_c_interface(builder: Builder, tmp_path: Path, sanitizer: str) -> None:
    sources = ["api_calls.cpp", "scale_add.cpp"]
    program = builder.program(tmp_path / "calls", sources, *SANITIZERS[sanitizer], contents=SCALE_ADD)
    done = run([str(program)], env=child_environment(ASAN_OPTIONS="detect_leaks=1"), timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_open_extents(builder: Builder, tmp_path: Path, sanitizer: str) -> None:
    contents = replace(
        NOTHING, inputs=("x", "whole", "sum"), outputs=("y", "halves", "sizes"), symbols=("n", "m")
    )
    program = builder.program(
        tmp_path / "calls", ["open_extents.cpp"], *SANITIZERS[sanitizer], contents=contents
    )
    done = run([str(program)], env=child_environment(ASAN_OPTIONS="detect_leaks=1"), timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_states(builder: Builder, tmp_path: Path, sanitizer: str) -> None:
    contents = replace(NOTHING, inputs=("past", "new"), outputs=("present", "total"), symbols=("n", "p", "t"))
    program = builder.program(tmp_path / "calls", ["states.cpp"], *SANITIZERS[sanitizer], contents=contents)
    done = run([str(program)], env=child_environment(ASAN_OPTIONS="detect_leaks=1"), timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
