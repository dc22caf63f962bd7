"""The vector math of kernels on aarch64, in QEMU: against the C library in double precision; its assembly."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from compiler.core.process import Completed, run
from compiler.core.settings import load_settings
from compiler.runtime.library import INCLUDE
from compiler.targets.toolchain import find_cxx
from tests.runtime.test_math import ALLOWED_ULP, ARITHMETIC, STRICT
from tests.support.aarch64 import MACHINE, needs_aarch64
from tests.support.model_library import FIXTURES

pytestmark = needs_aarch64
_STRIDE = 10007


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aarch64")


def built(source: str, output: Path, *flags: str) -> Path:
    cxx = find_cxx(load_settings(), MACHINE)
    command = [cxx.path, *STRICT, *ARITHMETIC, *flags, "-I", str(INCLUDE), str(FIXTURES / source)]
    done = run([*command, "-o", str(output)])
    assert done.returncode == 0, done.stderr
    return output


def emulated(program: Path, *arguments: str) -> Completed:
    if platform.machine() == MACHINE:
        return run([str(program), *arguments])
    return run(["qemu-aarch64", "-L", f"/usr/{MACHINE}-linux-gnu", str(program), *arguments])


@pytest.mark.sample(2)
@pytest.mark.parametrize("function", ALLOWED_ULP)
def test_a_sample_of_all_floats(directory: Path, function: str) -> None:
    path = directory / "sweep"
    program = path if path.exists() else built("math_sweep.cpp", path, "-DLANES=4")
    done = emulated(program, function, str(_STRIDE), "1")
    assert done.returncode == 0, done.stderr
    error, bits, value, result, reference = done.stdout.split()
    message = f"{function}({value}, bits {bits}) = {result}, not {reference}: {error} ulp"
    assert float(error) <= ALLOWED_ULP[function] + 1e-3, message


@pytest.mark.slow  # as in test_math.py; operators as they are compiled: tests/e2e/test_aarch64.py
def test_memory_shuffles_and_reductions(directory: Path) -> None:
    done = emulated(built("vector_check.cpp", directory / "check", "-O1"))
    assert done.returncode == 0, done.stdout


def test_assembly_is_vector_code_without_calls(directory: Path) -> None:
    text = built("math_asm.cpp", directory / "math.s", "-DLANES=4", "-S").read_text()
    bodies = re.split(r"^show_(\w+):", text, flags=re.MULTILINE)[1:]
    functions = dict(zip(bodies[::2], bodies[1::2], strict=True))
    assert len(functions) == 12
    for name, body in functions.items():
        code = body.split(".cfi_endproc")[0]
        assert not re.search(r"^\s*bl\s", code, flags=re.MULTILINE), name
        assert not re.search(r"^\s*f(add|sub|mul|div|sqrt|madd|msub)\s+s\d", code, flags=re.MULTILINE), name
