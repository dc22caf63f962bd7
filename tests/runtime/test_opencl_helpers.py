"""Each word of OpenCL C that the printer may use, run on every driver for processors, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.core.types import DType, dtype
from compiler.loops.interp_math import FLOAT_FUNCTIONS
from compiler.render.vocabulary import Bounds, narrowed
from compiler.render.vocabulary_opencl import OPENCL_CPU, OPENCL_GPU
from tests.support.opencl_host import Array, open_program

WORDS = OPENCL_CPU
LANES = (2, 4, 8, 16)
SOME_LANES = (1, 2, 16)
NUMPY = {"f64": "f8", "f32": "f4"} | {f"{s}{b}": f"{s}{b // 8}" for s in "iu" for b in (8, 16, 32, 64)}
FLOATS = ("f32", "f64")
INTS = ("i64", "i32", "i8", "u64", "u16")
UNARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
    "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc",
    "sigmoid", "softplus", "floor", "ceil", "round", "trunc", "abs", "sign",
)  # fmt: skip
BINARY = ("pow", "atan2", "fmod", "copysign", "hypot")
EXACT = ("floor", "ceil", "round", "trunc", "abs", "sign", "copysign")

Texts = dict[str, tuple[list[str], str]]
"""Name -> (parameters, body) of what one test runs."""


class Pieces:
    """Bodies on a device: those with the same parameters are one kernel, as a kernel costs drivers time."""

    def __init__(self, library: Path, driver: str, texts: Texts) -> None:
        assert WORDS.device is not None
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, (params, _) in texts.items():
            groups.setdefault(tuple(params), []).append(name)
        parts = [WORDS.prelude]
        self._places: dict[str, tuple[str, int]] = {}
        for number, (params, names) in enumerate(groups.items()):
            head = WORDS.device.kernel(
                f"k_{number}", [*params, "__global const long *which"], Bounds((1, 1, 1))
            )
            cases = [f"case {n}: {{\n{texts[name][1]}\n}} break;" for n, name in enumerate(names)]
            parts.append("\n".join([f"{head} {{ switch (*which) {{", *cases, "} }"]))
            self._places |= {name: (f"k_{number}", n) for n, name in enumerate(names)}
        kernels = [f"k_{number}" for number in range(len(groups))]
        self.program = open_program(library, "\n".join(parts), kernels, driver)

    def run(self, name: str, arrays: list[Array]) -> None:
        kernel, number = self._places[name]
        self.program.run(kernel, [*arrays, np.array([number], np.int64)])


Build = Callable[[Texts], Pieces]


@pytest.fixture
def build(opencl_library: Path, opencl_driver: str) -> Iterator[Build]:
    opened: list[Pieces] = []

    def make(texts: Texts) -> Pieces:
        opened.append(Pieces(opencl_library, opencl_driver, texts))
        return opened[-1]

    yield make
    for one in opened:
        one.program.close()


def pointer(kind: str, number: int, *, constant: bool = True) -> str:
    """A parameter that points to elements of a type."""
    assert WORDS.device is not None
    element = f"{'const ' if constant else ''}{WORDS.memory[kind]}"
    return f"{WORDS.device.pointer(element, 'global')}restrict b{number}"


def lanes_of(kind: str, lanes: int) -> DType:
    return dtype(kind, lanes)


def load(kind: str, lanes: int, number: int = 0, at: str = "i") -> str:
    if lanes == 1:
        return f"b{number}[{at}]"
    return WORDS.load(dtype(kind, lanes), f"b{number} + {at}")


def store(kind: str, lanes: int, number: int, value: str, at: str = "i") -> str:
    if lanes == 1:
        return f"b{number}[{at}] = {value};"
    return f"{WORDS.store(dtype(kind, lanes), f'b{number} + {at}', value)};"


def over(count: int, lanes: int, body: str) -> str:
    """A loop over `count` elements, `lanes` at a time."""
    return f"for (long i = 0; i < {count}; i += {lanes}) {{ {body} }}"


def sample(name: str, kind: str) -> Array:
    """Values over the function's domain and beyond, special ones among them; a multiple of 16."""
    random = np.random.default_rng(3)
    wide = random.normal(0, 4, 200)
    small = random.uniform(-1.2, 1.2, 200)
    sized = np.exp(random.uniform(-20, 20, 96)) * random.choice([-1, 1], 96)
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        -2.5,
        1.5,
        3.5,
        np.inf,
        -np.inf,
        np.nan,
        88.0,
        -88.0,
        100.0,
        -100.0,
    ]
    return np.concatenate([wide, small, sized, special]).astype(NUMPY[kind])


def assert_near(got: Array, want: Array, exact: bool, what: str) -> None:
    """Within 16 units of the last place (OpenCL 1.2, table 6.12.2: erf and pow), or equal."""
    kind = got.dtype
    scale = 0.0 if exact else 16 * float(np.finfo(kind).eps)
    np.testing.assert_allclose(got, want, rtol=scale, atol=scale * 1e-3, err_msg=what)


@pytest.mark.sample(2, each=("kind", "opencl_driver"))
@pytest.mark.parametrize("kind", FLOATS)
def test_functions_of_one_argument(build: Build, kind: str) -> None:
    texts: Texts = {}
    for name in UNARY:
        for lanes in SOME_LANES:
            body = store(kind, lanes, 1, f"{WORDS.math(name)}({load(kind, lanes)})")
            params = [pointer(kind, 0), pointer(kind, 1, constant=False)]
            texts[f"{name}_{lanes}"] = (params, over(512, lanes, body))
    program = build(texts)
    with np.errstate(all="ignore"):
        for name in UNARY:
            x = sample(name, kind)
            assert x.size == 512
            want = np.asarray(FLOAT_FUNCTIONS[name](x.astype(np.float64)), np.float64).astype(NUMPY[kind])
            for lanes in SOME_LANES:
                got = np.empty_like(x)
                program.run(f"{name}_{lanes}", [x, got])
                assert_near(got, want, name in EXACT, f"{name}, {lanes} lanes")


@pytest.mark.sample(2, each=("kind", "opencl_driver"))
@pytest.mark.parametrize("kind", FLOATS)
def test_functions_of_two_arguments(build: Build, kind: str) -> None:
    texts: Texts = {}
    for name in BINARY:
        for lanes in (1, 4, 16):
            body = store(kind, lanes, 2, f"{WORDS.math(name)}({load(kind, lanes)}, {load(kind, lanes, 1)})")
            params = [pointer(kind, 0), pointer(kind, 1), pointer(kind, 2, constant=False)]
            texts[f"{name}_{lanes}"] = (params, over(512, lanes, body))
    program = build(texts)
    with np.errstate(all="ignore"):
        for name in BINARY:
            x = sample(name, kind)
            y = np.roll(x, 37)
            if name == "fmod":  # OpenCL's is exact only where the quotient is not enormous
                x, y = np.clip(x, -1e3, 1e3), np.where(np.abs(y) < 1e-2, 1.0, y).astype(x.dtype)
            want = np.asarray(FLOAT_FUNCTIONS[name](x.astype(np.float64), y.astype(np.float64)))
            for lanes in (1, 4, 16):
                got = np.empty_like(x)
                program.run(f"{name}_{lanes}", [x, y, got])
                assert_near(got, want.astype(NUMPY[kind]), name in EXACT, f"{name}, {lanes} lanes")


def test_smallest_and_largest_keep_nan_and_relu_does(build: Build) -> None:
    texts: Texts = {}
    for kind in (*FLOATS, *INTS):
        for lanes in (1, 4, 16):
            for name in ("max", "min"):
                value = (
                    f"{WORDS.typed(name, lanes_of(kind, lanes))}({load(kind, lanes)}, {load(kind, lanes, 1)})"
                )
                params = [pointer(kind, 0), pointer(kind, 1), pointer(kind, 2, constant=False)]
                texts[f"{name}_{kind}_{lanes}"] = (params, over(32, lanes, store(kind, lanes, 2, value)))
            if kind in FLOATS:
                value = f"{WORDS.math('relu')}({load(kind, lanes)})"
                params = [pointer(kind, 0), pointer(kind, 1, constant=False)]
                texts[f"relu_{kind}_{lanes}"] = (params, over(32, lanes, store(kind, lanes, 1, value)))
    program = build(texts)
    random = np.random.default_rng(1)
    for name in texts:
        op, kind, _ = name.split("_")
        x, y = (random.integers(0, 100, 32).astype(NUMPY[kind]) for _ in range(2))
        if kind in FLOATS:
            x, y = x - 50, y - 50
            x[3] = y[5] = np.nan
        got = np.empty_like(x)
        if op == "relu":
            program.run(name, [x, got])
            np.testing.assert_array_equal(got, np.maximum(x, 0), name)
        else:
            program.run(name, [x, y, got])
            np.testing.assert_array_equal(got, np.maximum(x, y) if op == "max" else np.minimum(x, y), name)


def quotient(op: str, a: int, b: int) -> int:
    """What `tk_vector.h` computes, before wrapping: no quotient where the divisor is zero."""
    if b == 0:
        return a if op.endswith("mod") else -1 if op == "floordiv" and a < 0 else 0
    floor, trunc = a // b, abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return {"floordiv": floor, "floormod": a - floor * b, "truncdiv": trunc, "truncmod": a - trunc * b}[op]


@pytest.mark.sample(2, each=("kind", "opencl_driver"))
@pytest.mark.parametrize("kind", INTS)
def test_division_never_traps(build: Build, kind: str) -> None:
    texts: Texts = {}
    operators = ("floordiv", "floormod", "truncdiv", "truncmod")
    for op in operators:
        for lanes in (1, 2, 16):
            value = f"{WORDS.typed(op, lanes_of(kind, lanes))}({load(kind, lanes)}, {load(kind, lanes, 1)})"
            params = [pointer(kind, 0), pointer(kind, 1), pointer(kind, 2, constant=False)]
            texts[f"{op}_{lanes}"] = (params, over(144, lanes, store(kind, lanes, 2, value)))
    program = build(texts)
    info = np.iinfo(NUMPY[kind])
    edges = np.array([info.min, info.min + 1, -7, -2, -1, 0, 1, 2, 7, 100, info.max - 1, info.max], object)
    edges = (
        np.array([int(x) % 2**info.bits for x in edges], np.uint64)
        .astype(f"u{info.bits // 8}")
        .view(info.dtype)
    )
    x, y = np.repeat(edges, 12), np.tile(edges, 12)
    for op in operators:
        want = [quotient(op, int(a), int(b)) % 2**info.bits for a, b in zip(x, y, strict=True)]
        for lanes in (1, 2, 16):
            got = np.empty_like(x)
            program.run(f"{op}_{lanes}", [x, y, got])
            assert [int(v) % 2**info.bits for v in got] == want, f"{op}, {lanes} lanes"


def memory_kernels(kind: str, lanes: int) -> Texts:
    """A kernel for each way to move vectors: (values, indices or a count, result)."""
    vector = dtype(kind, lanes)
    name = WORDS.vector(vector)
    inputs = [pointer(kind, 0), pointer("i64", 1), pointer(kind, 2, constant=False)]
    index = WORDS.load(dtype("i64", lanes), "b1")
    whole = WORDS.load(vector, "b0")
    put = partial(WORDS.store, vector, "b2")
    reduced = (f"b2[{n}] = tk_reduce_{op}({whole});" for n, op in enumerate(("add", "mul", "max", "min")))
    odd = tuple(range(1, 2 * lanes, 2))
    backwards = WORDS.build(vector, [f"b0[{lanes - 1 - n}]" for n in range(lanes)])
    bodies = {
        "strided": f"{put(WORDS.load_strided(vector, 'b0', '3'))};",
        "put_strided": f"{WORDS.store_strided(vector, 'b2', '3', whole)};",
        "gather": f"{put(WORDS.gather(vector, 'b0', index))};",
        "scatter": f"{WORDS.scatter(vector, 'b2', index, whole)};",
        "partial": f"{put(WORDS.load_partial(vector, 'b0', 'b1[0]', WORDS.splat(vector, '7')))};",
        "put_partial": f"{WORDS.store_partial(vector, 'b2', whole, 'b1[0]')};",
        "ramp": f"{put(WORDS.ramp(vector, 'b0[1]', '3'))};",
        "own_array": f"{WORDS.memory[kind]} s[{2 * lanes}];\n"
        f"for (int i = 0; i < {2 * lanes}; i++) s[i] = b0[i];\n"
        f"const {name} v = {WORDS.load_strided(vector, 's', '2')};\n{put('v')};",
        "reduce": "\n".join(reduced),
        "shuffle": f"const {name} v = {whole}, w = {WORDS.load(vector, f'b0 + {lanes}')};\n"
        f"{put(WORDS.shuffle(odd, 'v', 'w'))};",
        "build": f"const {name} v = {backwards};\n"
        + "\n".join(f"b2[{n}] = {WORDS.lane('v', n)};" for n in range(lanes)),
    }
    return {f"{key}_{lanes}": (inputs, body) for key, body in bodies.items()}


@pytest.mark.sample(2, each=("kind", "opencl_driver"))
@pytest.mark.parametrize("kind", ["f32", "f64", "i64", "u16", "i8"])
def test_memory_by_lanes(build: Build, kind: str) -> None:
    texts: Texts = {}
    for lanes in LANES:
        texts |= memory_kernels(kind, lanes)
    program = build(texts)
    for lanes in LANES:
        check_memory(program, kind, lanes)


def check_memory(program: Pieces, kind: str, lanes: int) -> None:
    x = (np.arange(64) % 3 + 1).astype(NUMPY[kind])
    x[0] = 2
    order = np.random.default_rng(lanes).permutation(lanes).astype(np.int64)

    def ran(name: str, counts: Array = order) -> Array:
        got = np.full(64, 9, x.dtype)
        program.run(f"{name}_{lanes}", [x, counts, got])
        return got

    def first(values: Array, step: int = 1) -> Array:
        want = np.full(64, 9, x.dtype)
        want[: step * len(values) : step] = values
        return want

    def check(name: str, want: Array, *counts: Array) -> None:
        np.testing.assert_array_equal(ran(name, *counts), want, f"{name}, {lanes} lanes")

    scattered = np.full(64, 9, x.dtype)
    scattered[order] = x[:lanes]
    check("strided", first(x[: 3 * lanes : 3]))
    check("put_strided", first(x[:lanes], 3))
    check("gather", first(x[order]))
    check("scatter", scattered)
    for count in (-3, 0, 1, lanes // 2, lanes - 1, lanes, lanes + 5):
        known = max(0, min(count, lanes))
        counts = np.array([count], np.int64)
        check("partial", first(np.where(np.arange(lanes) < known, x[:lanes], 7).astype(x.dtype)), counts)
        check("put_partial", first(x[:known]), counts)
    check("ramp", first((x[1] + 3 * np.arange(lanes)).astype(x.dtype)))
    check("own_array", first(x[: 2 * lanes : 2]))
    whole = x[:lanes]
    results = [whole.sum(dtype=x.dtype), whole.prod(dtype=x.dtype), whole.max(), whole.min()]
    check("reduce", first(np.array(results, x.dtype)))
    check("shuffle", first(x[1 : 2 * lanes : 2]))
    check("build", first(whole[::-1]))


def test_masks_and_conversions(build: Build) -> None:
    texts: Texts = {}
    kinds = (*FLOATS, "i64", "i32", "u16", "i8")
    for source in kinds:
        for target in kinds:
            if source not in FLOATS and target in FLOATS and source.endswith("64"):
                continue  # rounds: the next test
            value = WORDS.convert(dtype(target, 8), load(source, 8))
            params = [pointer(source, 0), pointer(target, 1, constant=False)]
            texts[f"{source}_{target}"] = (params, over(16, 8, store(target, 8, 1, value)))
    flags = WORDS.widen(dtype("bool", 16), WORDS.load(dtype("bool", 16), "b0"))
    mask = WORDS.convert(dtype("i32", 16), flags)
    one, two = (WORDS.load(dtype("f32", 16), f"b{n}") for n in (1, 2))
    texts["chosen"] = (
        [pointer("bool", 0), pointer("f32", 1), pointer("f32", 2), pointer("f32", 3, constant=False)],
        f"{WORDS.store(dtype('f32', 16), 'b3', WORDS.select(mask, one, two))};",
    )
    texts["opposite"] = (
        [pointer("bool", 0), pointer("bool", 1, constant=False)],
        f"{WORDS.store(dtype('bool', 16), 'b1', f'(-(~{flags}))')};",
    )
    tests = [WORDS.math(f"is{name}") for name in ("nan", "inf", "finite")]
    for lanes in (1, 16):
        floats = load("f32", lanes)
        values = [f"{test}({floats})" for test in tests]
        if lanes > 1:
            values = [f"(-{WORDS.convert(dtype('i8', lanes), value)})" for value in values]
        body = "\n".join(store("bool", lanes, 1, value, f"i + {16 * n}") for n, value in enumerate(values))
        texts[f"tests_{lanes}"] = (
            [pointer("f32", 0), pointer("bool", 1, constant=False)],
            over(16, lanes, body),
        )
    program = build(texts)
    for name in texts:
        source, _, target = name.partition("_")
        if source not in NUMPY:
            continue
        x = np.arange(16).astype(NUMPY[source])
        if source in FLOATS:
            x = x + np.array(0.75, x.dtype)
        got = np.empty(16, NUMPY[target])
        program.run(name, [x, got])
        np.testing.assert_array_equal(got, x.astype(NUMPY[target]), name)
    chosen = np.random.default_rng(2).integers(0, 2, 16).astype(np.uint8)
    a, b, got = (np.full(16, v, np.float32) for v in (1, 2, 0))
    program.run("chosen", [chosen, a, b, got])
    np.testing.assert_array_equal(got, np.where(chosen, a, b))
    opposite = np.empty(16, np.uint8)
    program.run("opposite", [chosen, opposite])
    np.testing.assert_array_equal(opposite, 1 - chosen)
    x = np.array([0, -0.0, 1, np.nan, np.inf, -np.inf, 1e-45, 3e38] * 2, np.float32)
    for lanes in (1, 16):
        found = np.empty((3, 16), np.uint8)
        program.run(f"tests_{lanes}", [x, found])
        np.testing.assert_array_equal(found, [np.isnan(x), np.isinf(x), np.isfinite(x)])


NARROW: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
}


@pytest.mark.sample(2, each=("kind", "opencl_driver"))
@pytest.mark.parametrize("kind", NARROW)
def test_narrow_floats(build: Build, kind: str) -> None:
    codes = np.arange(2 ** dtype(kind).bits).astype(f"u{dtype(kind).bytes}")
    random = np.random.default_rng(5)
    exponents = random.integers(-160, 128, 4096)
    values = np.concatenate(
        [
            np.ldexp(random.uniform(1, 2, 4096), exponents) * random.choice([-1, 1], 4096),
            random.normal(0, 100, 4080),
            [
                0.0,
                -0.0,
                np.inf,
                -np.inf,
                np.nan,
                65504,
                65520,
                65519.9,
                448,
                464,
                465,
                57344,
                61440,
                1e-8,
                6e-8,
                1,
            ],
        ]
    ).astype(np.float32)
    texts: Texts = {}
    for lanes in (1, 2, 16):
        widened = WORDS.widen(dtype(kind, lanes), load(kind, lanes))
        params = [pointer(kind, 0), pointer("f32", 1, constant=False)]
        texts[f"widen_{lanes}"] = (params, over(codes.size, lanes, store("f32", lanes, 1, widened)))
        rounded = narrowed(dtype(kind, lanes), load("f32", lanes))
        params = [pointer("f32", 0), pointer(kind, 1, constant=False)]
        texts[f"narrow_{lanes}"] = (params, over(values.size, lanes, store(kind, lanes, 1, rounded)))
    program = build(texts)
    with np.errstate(all="ignore"):
        want = values.astype(NARROW[kind])
    for lanes in (1, 2, 16):
        wide = np.empty(codes.size, np.float32)
        program.run(f"widen_{lanes}", [codes, wide])
        np.testing.assert_array_equal(wide, codes.view(NARROW[kind]).astype(np.float32), f"{lanes} lanes")
        rounded = np.empty(values.size, codes.dtype)
        program.run(f"narrow_{lanes}", [values, rounded])
        got = rounded.view(NARROW[kind])
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32), f"{lanes} lanes")


def test_literals_that_c_cannot_spell(build: Build) -> None:
    cases = {
        "f32": (np.inf, -np.inf, np.nan),
        "f64": (np.inf, -np.inf, np.nan),
        "i64": (-(2**63),),
    }
    texts: Texts = {}
    for kind, values in cases.items():
        lines = [f"b0[{n}] = {WORDS.literal(value, dtype(kind))};" for n, value in enumerate(values)]
        texts[kind] = ([pointer(kind, 0, constant=False)], "\n".join(lines))
    program = build(texts)
    for kind, values in cases.items():
        got = np.zeros(len(values), NUMPY[kind])
        program.run(kind, [got])
        np.testing.assert_array_equal(got, np.array(values, NUMPY[kind]))
    assert WORDS.literal(1.5, dtype("f32")) is None


def test_blocks_threads_shared_memory_and_atomics(opencl_library: Path, opencl_driver: str) -> None:
    """A sum in two steps as GPUs do it: threads meet in shared memory, blocks in an atomic update."""
    device = OPENCL_GPU.device
    assert device is not None
    params = [
        f"{device.pointer('const float', 'global')}restrict b0",
        f"{device.pointer('float', 'global')}restrict b1",
        f"{device.pointer('int', 'global')}restrict b2",
    ]
    aligned = OPENCL_GPU.load_aligned
    assert aligned is not None
    body = f"""
      {device.array("float", "s0", 32, "shared")}
      const int block = {device.axes["blockIdx.x"]}, thread = {device.axes["threadIdx.x"]};
      s0[thread] = tk_reduce_add({aligned(dtype("f32", 4), "b0 + (block * 32 + thread) * 4")});
      {device.barriers["shared"]}
      for (int width = 16; width > 0; width /= 2) {{
        if (thread < width) s0[thread] += s0[thread + width];
        {device.barriers["shared"]}
      }}
      if (thread == 0) {{
        {device.atomic("add", dtype("f32"), "b1", "s0[0]")};
        {device.atomic("max", dtype("f32"), "b1 + 1", "s0[0]")};
        {device.atomic("add", dtype("i32"), "b2", "1")};
      }}"""
    text = f"{OPENCL_GPU.prelude}\n{device.kernel('total', params, Bounds((32, 1, 1)))} {{{body}\n}}"
    program = open_program(opencl_library, text, ["total"], opencl_driver)
    x = np.random.default_rng(0).integers(0, 50, 8 * 128).astype(np.float32)
    total, count = np.array([0, -1], np.float32), np.zeros(1, np.int32)
    program.run("total", [x, total, count], grid=(8, 1, 1), block=(32, 1, 1))
    program.close()
    np.testing.assert_array_equal(total, [x.sum(), x.reshape(8, -1).sum(1).max()])
    assert count[0] == 8
