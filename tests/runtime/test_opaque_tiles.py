"""Opaque fragments of matrix units: interpreted, and compiled from SYCL's text by both passes."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import InternalError
from compiler.loops.interp import interpret
from compiler.loops.interp_values import ProgramError
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.matrix_units.wmma import OPAQUE
from compiler.loops.text import parse_func, print_func
from compiler.loops.verify import verify_func
from compiler.render.device import render_launches
from compiler.render.launch import DeviceText
from compiler.render.matrix_text import joint_matrix_type
from compiler.render.vocabulary import Vocabulary
from compiler.render.vocabulary_cuda import CUDA
from compiler.render.vocabulary_sycl import SYCL_GPU
from compiler.runtime.vendor_runtimes import IntelRuntime
from compiler.targets.sycl_tools import module_text
from tests.support.emulation import Emulated
from tests.support.gpu import SM_70
from tests.support.kernels import lower_all
from tests.support.matrix_products import Product, product
from tests.support.opaque_tiles import tiles
from tests.support.sycl_ahead import HOST_COMPILERS, device_pass, host_compiler, host_pass

LANES = sorted({unit.lanes for unit in OPAQUE.values()})
_MODEL = "0a1b2c3d"
_WITHOUT_ATTRIBUTES = """\
#define add_ir_attributes_function tk_left_out
#include <sycl/ext/oneapi/matrix/matrix.hpp>
#undef add_ir_attributes_function
"""
"""The runtime leaves kernels out that say, by these attributes, that the device here cannot run them."""

_MAGIC, _HEADER_BYTES = struct.pack("<I", 0x07230203), 20
_CONSTANT, _TYPE, _LOAD, _STORE, _MULTIPLY = 43, 4456, 4457, 4458, 4459  # SPV_KHR_cooperative_matrix
_SUBGROUP, _ROW_MAJOR, _COLUMN_MAJOR = 3, 0, 1


def _rendered(name: str, words: Vocabulary) -> DeviceText:
    made = tiles(name)
    facts = replace(SM_70, scopes=SM_70.scopes | {"fragment"}, subgroup_sizes=(made.unit.lanes,))
    return render_launches(lower_all(made.func, facts), list(OPAQUE).index(name), words, facts)


def _sycl(names: list[str], lanes: int) -> str:
    return module_text(SYCL_GPU.module([_rendered(name, SYCL_GPU).text for name in names]), _MODEL, lanes)


@pytest.mark.parametrize("name", OPAQUE)
def test_interpreted(name: str) -> None:
    made = tiles(name)
    verify_func(made.func)
    found = interpret(made.func, made.inputs, subgroup=made.unit.lanes)["y"]
    np.testing.assert_allclose(found, made.wanted, rtol=1e-5, atol=1e-5)


def test_a_unit_takes_its_own_fragments_only() -> None:
    made = tiles("joint_matrix.m8n16k16.f16")
    text = print_func(made.func).replace("joint_matrix.m8n16k16.f16.b", "wmma.m16n16k16.b")
    with pytest.raises(ProgramError, match=r"wmma\.m16n16k16 needs 32 lanes"):
        interpret(parse_func(text), made.inputs, subgroup=16)
    text = print_func(made.func).replace("joint_matrix.m8n16k16.f16.b", "joint_matrix.m8n16k16.bf16.b")
    with pytest.raises(ProgramError, match="are multiplied"):
        interpret(parse_func(text), made.inputs, subgroup=16)


def test_a_language_without_a_unit_refuses_it() -> None:
    with pytest.raises(InternalError, match=r"has no joint_matrix\.m8n8k16\.f16"):
        _rendered("joint_matrix.m8n8k16.f16", CUDA)


def test_tiles_are_objects_in_sycl() -> None:
    assert joint_matrix_type("joint_matrix.m8n16k16.f16.c") == ("tk_wmma_c<float, 8, 16>", 8)
    assert joint_matrix_type("wmma.m16n16k16.bt") == ("tk_wmma_bt<sycl::half, 16, 16>", 16)
    with pytest.raises(InternalError, match="has no such tiles"):
        joint_matrix_type("mma.m16n8k16.f16.c")


def test_the_header_stands_only_before_kernels_that_use_it() -> None:
    name = "joint_matrix.m8n16k16.bf16"
    text = _rendered(name, SYCL_GPU).text
    assert "tk_wmma_b<sycl::ext::oneapi::bfloat16, 16, 16> " in text
    assert "matrix.hpp" in SYCL_GPU.module([text])
    assert "matrix.hpp" not in SYCL_GPU.module([text.replace("tk_wmma_", "tk_other_")])


@pytest.mark.sample(2)
@pytest.mark.parametrize("names", HOST_COMPILERS, ids=lambda names: names[0])
def test_host_pass(names: tuple[str, ...], sycl_runtime: IntelRuntime, tmp_path: Path) -> None:
    done = host_pass(_sycl(list(OPAQUE), 16), "spir64", host_compiler(names), sycl_runtime, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize(
    "lanes", [pytest.param(one, marks=pytest.mark.slow) if one > 8 else one for one in LANES]
)
def test_device_pass(lanes: int, spirv_compiler: Path, tmp_path: Path) -> None:
    units = [unit for unit in OPAQUE.values() if unit.lanes == lanes]
    text = _WITHOUT_ATTRIBUTES + _sycl([unit.name for unit in units], lanes)
    done, made = device_pass(text, "spir64", spirv_compiler, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
    instructions = list(_instructions(made))
    constants = {words[1]: words[2] for code, words in instructions if code == _CONSTANT}
    types = {tuple(constants[item] for item in words[2:]) for code, words in instructions if code == _TYPE}
    assert types == {shape for unit in units for shape in _shapes(unit)}
    count = {code: sum(code == other for other, _ in instructions) for code in (_LOAD, _MULTIPLY, _STORE)}
    assert count[_LOAD] == 2 * count[_MULTIPLY] >= 2 * len(units)
    assert count[_STORE] == len(units)
    layouts = [constants[words[3]] for code, words in instructions if code == _LOAD]
    strides = {constants[words[4]] for code, words in instructions if code == _LOAD}
    assert set(layouts) == {_ROW_MAJOR}
    assert strides == {size for unit in units for size in (2 * unit.steps, unit.columns)}


@cache
def _product(name: str) -> Product:
    return product(name, own=(1, 2))


@pytest.mark.parametrize("name", OPAQUE)
def test_products_of_the_rule(name: str) -> None:
    """As scheduled, and as lowered."""
    made = _product(name)
    verify_func(made.scheduled)
    made.assert_close(interpret(made.scheduled, made.inputs, subgroup=made.unit.lanes)["y"])
    made.assert_close(interpret(made.lowered, made.inputs, subgroup=made.unit.lanes, races=True)["y"])


def test_sums_lie_where_the_factors_did() -> None:
    made = _product("wmma.m16n16k16")
    text = render_launches(made.lowered, 0, CUDA, made.facts).text
    rows, columns, depth = 2 * made.unit.rows, 4 * made.unit.columns, 32
    sums, factors = 4 * rows * (columns + 4), 2 * (rows + columns) * (depth + 8)
    (size,) = re.findall(r"alignas\(32\) __shared__ uint8_t \w+\[(\d+)\]", text)
    assert max(sums, factors) - 64 <= int(size) <= max(sums, factors) < sums + factors
    assert "__shared__" not in text.replace("alignas(32) __shared__ uint8_t", "")
    before = text[: text.index("tk_wmma_store(")].rstrip().splitlines()
    assert before[-1].strip() == "__syncthreads();"


def test_the_rule_in_the_emulator() -> None:
    made = _product("wmma.m16n16k16")
    device = render_launches(made.lowered, 0, CUDA, made.facts)
    (launch,) = device.launches
    found = np.zeros(made.wanted.shape, np.float32)
    arrays = [made.inputs["x"], made.inputs["w"], found]
    module = CUDA.module([device.text])
    assert Emulated(module).launch(launch.name, launch.grid, launch.block, arrays) == ""
    made.assert_close(found)


@pytest.mark.parametrize(
    "lanes", [pytest.param(one, marks=pytest.mark.slow) if one != 16 else one for one in LANES]
)
def test_device_pass_of_the_rule(lanes: int, spirv_compiler: Path, tmp_path: Path) -> None:
    """Shapes of tiles, b by columns, and rows of shared memory 16 bytes longer than what is staged."""
    units = [unit for unit in OPAQUE.values() if unit.lanes == lanes]
    made = [_product(unit.name) for unit in units]
    texts = [render_launches(one.lowered, n, SYCL_GPU, one.facts).text for n, one in enumerate(made)]
    text = _WITHOUT_ATTRIBUTES + module_text(SYCL_GPU.module(texts), _MODEL, lanes)
    done, module = device_pass(text, "spir64", spirv_compiler, tmp_path)
    assert done.returncode == 0, done.stderr[:3000]
    instructions = list(_instructions(module))
    constants = {words[1]: words[2] for code, words in instructions if code == _CONSTANT}
    types = {tuple(constants[item] for item in words[2:]) for code, words in instructions if code == _TYPE}
    assert types == {shape for unit in units for shape in _shapes(unit)}
    loads = [words for code, words in instructions if code == _LOAD]
    stores = [words for code, words in instructions if code == _STORE]
    counted = Counter(constants[words[3]] for words in loads)
    steps, own = 2, (1, 2)  # steps that are written out, tiles of a sub-group
    assert counted == {_ROW_MAJOR: steps * own[0] * len(units), _COLUMN_MAJOR: steps * own[1] * len(units)}
    assert {constants[words[4]] for words in loads} == {32 + 8}
    assert {constants[words[3]] for words in stores} == {4 * unit.columns + 4 for unit in units}
    products = sum(code == _MULTIPLY for code, _ in instructions)
    assert products == steps * own[0] * own[1] * len(units)
    assert len(stores) == products // steps


def _shapes(unit: MatrixUnit) -> Iterator[tuple[int, int, int, int]]:
    """Scope, rows, columns and use of its tiles."""
    sizes = (unit.rows, unit.steps), (unit.steps, unit.columns), (unit.rows, unit.columns)
    for use, (rows, columns) in enumerate(sizes):
        yield _SUBGROUP, rows, columns, use


def _instructions(data: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Opcode and operands of each instruction of a SPIR-V module (specification, "Physical Layout")."""
    at = data.index(_MAGIC) + _HEADER_BYTES
    while at + 4 <= len(data):
        code, count = struct.unpack_from("<HH", data, at)
        if count == 0 or at + 4 * count > len(data):  # behind the module there is more in the file
            return
        yield code, struct.unpack_from(f"<{count - 1}I", data, at + 4)
        at += 4 * count
