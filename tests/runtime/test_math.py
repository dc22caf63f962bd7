"""The vector math of generated kernels against the C library's double precision, and its assembly."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from compiler.core.process import run
from compiler.runtime.library import INCLUDE
from compiler.targets.features import host_flags
from tests.support.model_library import COMPILERS, FIXTURES

STRICT = ("-std=c++17", "-O3", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-pthread")
# As kernels are compiled: integers of a model wrap around, in the headers, too.
ARITHMETIC = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fwrapv")
_AVX512 = (
    "-mavx512f",
    "-mavx512vl",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx2",
    "-mfma",
    "-mprefer-vector-width=512",
)
ALLOWED_ULP = {
    "exp": 4.0,
    "log": 4.0,
    "tanh": 4.0,
    "erf": 6.0,
    "sigmoid": 4.0,
    "sin": 4.0,
    "cos": 4.0,
    "rsqrt": 2.0,
    "sqrt": 0.5,
    "floor": 0.0,
    "ceil": 0.0,
    "round": 0.0,
    "trunc": 0.0,
}
FROM_LIBM = ("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
"""Lane by lane by the C library."""
# Name -> (compiler options, lanes, the processor feature that running needs).
_MACHINES = {
    "avx512": (_AVX512, 16, "avx512dq"),
    "avx2": (("-mavx2", "-mfma"), 8, "avx2"),
    "portable": ((), 4, ""),
    "scalar": ((), 1, ""),
}

Program = Callable[..., Path]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """Compile a fixture with a compiler and options, once per combination."""
    directory = tmp_path_factory.mktemp("math")
    built: dict[tuple[str, ...], Path] = {}

    def build(source: str, cxx: str, *flags: str) -> Path:
        key = (source, cxx, *flags)
        if key not in built:
            output = directory / f"program{len(built)}"
            command = [
                cxx,
                *STRICT,
                *ARITHMETIC,
                *flags,
                "-I",
                str(INCLUDE),
                str(FIXTURES / source),
                "-o",
                str(output),
            ]
            done = run(command)
            assert done.returncode == 0, done.stderr
            built[key] = output
        return built[key]

    return build


@pytest.fixture(params=_MACHINES)
def machine(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options of one kind of processor, the number of lanes among them."""
    flags, lanes, feature = _MACHINES[request.param]
    if feature and feature not in host_flags():
        pytest.skip(f"this processor has no {feature}")
    return (*flags, f"-DLANES={lanes}")


@pytest.mark.parametrize("function", ALLOWED_ULP)
def test_a_sample_of_all_floats(program: Program, machine: tuple[str, ...], function: str) -> None:
    """Every 251st float where 4 ulp are promised, else fewer; primes, so that the low bits vary."""
    stride = 251 if function in ("exp", "log", "tanh", "erf") else 1021
    _check_sweep(program("math_sweep.cpp", COMPILERS[0], *machine), function, stride)


@pytest.mark.parametrize("function", FROM_LIBM)
def test_a_sample_of_what_the_c_library_computes(program: Program, function: str) -> None:
    _check_sweep(program("math_sweep.cpp", COMPILERS[0], "-DLANES=4"), function, 4099, allowed=4.0)


@pytest.mark.slow
@pytest.mark.parametrize("function", ALLOWED_ULP)
def test_every_float(program: Program, function: str) -> None:
    best = next(name for name, (_, _, feature) in _MACHINES.items() if not feature or feature in host_flags())
    flags, lanes, _ = _MACHINES[best]
    _check_sweep(program("math_sweep.cpp", COMPILERS[0], *flags, f"-DLANES={lanes}"), function, stride=1)


@pytest.mark.parametrize("cxx", COMPILERS)
def test_pow_over_special_values_and_a_dense_sample(
    program: Program, machine: tuple[str, ...], cxx: str
) -> None:
    done = run([str(program("math_pow.cpp", cxx, *machine)), "4000000", "2"])
    assert done.returncode == 0, done.stderr
    error, x, y, result, reference = done.stdout.split()
    assert float(error) <= 4.0, f"pow({x}, {y}) = {result}, not {reference}"


@pytest.mark.parametrize("cxx", COMPILERS[1:])
@pytest.mark.parametrize("function", ["exp", "log", "tanh", "erf", "sin"])
def test_the_other_compiler_agrees(
    program: Program, machine: tuple[str, ...], cxx: str, function: str
) -> None:
    _check_sweep(program("math_sweep.cpp", cxx, *machine), function, stride=997)


def test_accuracy_does_not_need_contraction(program: Program) -> None:
    flags = ("-ffp-contract=off", "-DLANES=4")
    for function in ("exp", "log", "tanh", "erf", "sin"):
        _check_sweep(program("math_sweep.cpp", COMPILERS[0], *flags), function, stride=997)


@pytest.mark.parametrize("kind", ["avx512", "portable", pytest.param("avx2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("cxx", COMPILERS)
def test_memory_shuffles_and_reductions(program: Program, kind: str, cxx: str) -> None:
    flags, _, feature = _MACHINES[kind]
    if feature and feature not in host_flags():
        pytest.skip(f"this processor has no {feature}")
    done = run([str(program("vector_check.cpp", cxx, "-O1", *flags))])
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("cxx", COMPILERS)
def test_no_byte_too_many_and_no_undefined_behaviour(
    program: Program, machine: tuple[str, ...], cxx: str
) -> None:
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = run([str(program("vector_check.cpp", cxx, *flags, *machine))])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("cxx", COMPILERS)
@pytest.mark.parametrize("kind", ["avx512", "avx2"])
def test_assembly_is_vector_code_without_calls(tmp_path: Path, cxx: str, kind: str) -> None:
    flags, lanes, _ = _MACHINES[kind]
    output = tmp_path / "math.s"
    source = str(FIXTURES / "math_asm.cpp")
    command = [
        cxx,
        *STRICT,
        *ARITHMETIC,
        *flags,
        f"-DLANES={lanes}",
        "-I",
        str(INCLUDE),
        "-S",
        source,
        "-o",
        str(output),
    ]
    done = run(command)
    assert done.returncode == 0, done.stderr
    bodies = re.split(r"^show_(\w+):", output.read_text(), flags=re.MULTILINE)[1:]
    functions = dict(zip(bodies[::2], bodies[1::2], strict=True))
    assert len(functions) == 12
    for name, body in functions.items():
        code = body.split(".cfi_endproc")[0]
        assert not re.search(r"\bcall", code), name
        # Branches would be lane-wise decisions; scalar arithmetic, lanes taken apart.
        assert not re.search(r"^\s*j[a-z]+\s", code, flags=re.MULTILINE), name
        assert not re.search(r"\bv?(add|sub|mul|div|sqrt|max|min|fn?m(add|sub)\d+)s[sd]\b", code), name


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils is not installed")
def test_headers_pull_in_no_library(program: Program) -> None:
    """The f32 functions reach no symbol of the C library's mathematics."""
    output = program("math_asm.cpp", COMPILERS[0], "-DLANES=8", "-c")
    symbols = run(["readelf", "--symbols", "--wide", str(output)]).stdout
    assert "show_exp" in symbols
    assert not re.search(r" UND (exp|log|pow|tanh|erf|sin|cos|floor|round|sqrt)", symbols)


def _check_sweep(path: Path, function: str, stride: int, allowed: float | None = None) -> None:
    done = run([str(path), function, str(stride), "2"])
    assert done.returncode == 0, done.stderr
    error, bits, value, result, reference = done.stdout.split()
    message = f"{function}({value}, bits {bits}) = {result}, not {reference}: {error} ulp"
    most = ALLOWED_ULP[function] if allowed is None else allowed
    assert float(error) <= most + 1e-3, message
