"""Opaque fragments in SYCL, run: on a device that has the tiles, and with functions in place of the unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.core.process import Completed, run
from compiler.core.settings import child_environment, load_settings
from compiler.loops.ir import Func
from compiler.loops.matrix_units import MatrixUnit
from compiler.loops.matrix_units.wmma import OPAQUE
from compiler.render.device import render_launches
from compiler.render.launch import Launch
from compiler.render.vocabulary_sycl import HEADER, SYCL_GPU
from compiler.runtime.vendor_runtimes import IntelRuntime, runtime_environment
from compiler.targets.sycl_tools import module_text
from tests.support.gpu import SM_70
from tests.support.kernels import lower_all
from tests.support.matrix_products import Product, product
from tests.support.opaque_tiles import Tiles, tiles

_PROGRAM = Path(__file__).resolve().parent.parent / "support" / "sycl_tiles.cpp"
_MODEL = "0a1b2c3d"
_MATRIX_TYPES = {"bf16": 0, "f16": 1, "f32": 3}
_FUNCTIONS = """
#include <sycl/half_type.hpp>
#include <sycl/ext/oneapi/bfloat16.hpp>
template <class T, int rows, int columns> struct tk_wmma_a { const T *at; int stride; };
template <class T, int rows, int columns> struct tk_wmma_b { const T *at; int stride; };
template <class T, int rows, int columns> struct tk_wmma_bt { const T *at; int stride; };
template <class T, int rows, int columns> struct tk_wmma_c { T at[rows][columns]; };
template <class T, int m, int n> void tk_wmma_fill(tk_wmma_c<T, m, n> *c, float value) {
  for (auto &row : c->at) for (T &item : row) item = value;
}
template <class T, int m, int k>
void tk_wmma_load_a(tk_wmma_a<T, m, k> *to, const uint16_t *from, int stride) {
  *to = {(const T *)from, stride};
}
template <class T, int k, int n>
void tk_wmma_load_b(tk_wmma_b<T, k, n> *to, const uint16_t *from, int stride) {
  *to = {(const T *)from, stride};
}
template <class T, int k, int n>
void tk_wmma_load_bt(tk_wmma_bt<T, k, n> *to, const uint16_t *from, int stride) {
  *to = {(const T *)from, stride};
}
template <class T, class F, int m, int n, int k>
void tk_wmma_mma_bt(tk_wmma_c<T, m, n> *c, const tk_wmma_a<F, m, k> *a, const tk_wmma_bt<F, k, n> *b) {
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) for (int s = 0; s < k; s++)
    c->at[i][j] += (float)a->at[i * a->stride + s] * (float)b->at[j * b->stride + s];
}
template <class T, class F, int m, int n, int k>
void tk_wmma_mma(tk_wmma_c<T, m, n> *c, const tk_wmma_a<F, m, k> *a, const tk_wmma_b<F, k, n> *b) {
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) for (int s = 0; s < k; s++)
    c->at[i][j] += (float)a->at[i * a->stride + s] * (float)b->at[s * b->stride + j];
}
template <class T, int m, int n> void tk_wmma_store(T *to, const tk_wmma_c<T, m, n> *c, int stride) {
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) to[i * stride + j] = c->at[i][j];
}
"""
"""The calls, by each lane alone, on fragments that remember where their tile lies."""


@pytest.fixture(scope="module")
def program(sycl_runtime: IntelRuntime, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sycl-tiles") / "tiles"
    flags = [
        "-std=c++17",
        "-w",
        "-DSYCL_DISABLE_FSYCL_SYCLHPP_WARNING",
        "-isystem",
        str(sycl_runtime.headers),
    ]
    done = run(
        ["g++", *flags, str(_PROGRAM), "-o", str(path), str(sycl_runtime.sycl)],
        env=child_environment(),
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[:3000]
    return path


def _ask(program: Path, directory: Path, *words: str) -> Completed:
    env = runtime_environment(load_settings(), TMPDIR=str(directory))
    done = run([str(program), *words], env=env, timeout=900)
    assert done.returncode == 0, done.stderr[:3000]
    return done


def _rendered(func: Func, unit: MatrixUnit) -> tuple[str, Launch]:
    """The module of a lowered program, and how its kernel is launched."""
    facts = replace(SM_70, scopes=SM_70.scopes | {"fragment"}, subgroup_sizes=(unit.lanes,))
    made = render_launches(func, 0, SYCL_GPU, facts)
    return module_text(SYCL_GPU.module([made.text]), _MODEL, unit.lanes), made.launches[0]


def _of_tiles(made: Tiles) -> tuple[str, Launch]:
    facts = replace(SM_70, scopes=SM_70.scopes | {"fragment"}, subgroup_sizes=(made.unit.lanes,))
    return _rendered(lower_all(made.func, facts), made.unit)


def _check(
    made: Tiles | Product, module: tuple[str, Launch], text: str, program: Path, directory: Path
) -> None:
    """Run the kernel of a module and compare."""
    source, y, launch = directory / "module.cpp", directory / "y", module[1]
    source.write_text(text)
    for name, value in made.inputs.items():
        (directory / name).write_bytes(value.tobytes())
    files = [str(directory / name) for name in ("x", "w")]
    sizes = [",".join(str(item) for item in reversed(one)) for one in (launch.grid, launch.block)]
    kernel = f"{launch.name}_{_MODEL}"
    _ask(program, directory, str(source), kernel, *sizes, *files, str(4 * made.wanted.size), str(y))
    found = np.frombuffer(y.read_bytes(), np.float32).reshape(made.wanted.shape)
    np.testing.assert_allclose(found, made.wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OPAQUE)
def test_on_a_device_that_has_the_tiles(name: str, program: Path, tmp_path: Path) -> None:
    made = tiles(name)
    unit = made.unit
    types = _MATRIX_TYPES[unit.factor.name], _MATRIX_TYPES[unit.total.name]
    wanted = " ".join(str(item) for item in (unit.rows, unit.columns, unit.steps, *types))
    shapes = _ask(program, tmp_path).stdout.splitlines()
    if wanted not in shapes:
        pytest.skip(
            f"not run: the device here names {len(shapes)} shapes of matrix tiles, not that of {name}"
        )
    module = _of_tiles(made)
    _check(made, module, module[0], program, tmp_path)


def _with_functions(text: str) -> str:
    header = (HEADER.parent / "tk_sycl_matrix.h").read_text(encoding="utf-8")
    assert header in text
    return text.replace(header, _FUNCTIONS)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", OPAQUE)
def test_with_functions_in_place_of_the_unit(name: str, program: Path, tmp_path: Path) -> None:
    made = tiles(name)
    module = _of_tiles(made)
    _check(made, module, _with_functions(module[0]), program, tmp_path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OPAQUE)
def test_products_of_the_rule_with_functions_in_place_of_the_unit(
    name: str, program: Path, tmp_path: Path
) -> None:
    """Sub-groups of 1 x 2 tiles, sums that pass through shared memory, and rests along all three axes."""
    made = product(name, own=(1, 2))
    module = _rendered(made.lowered, made.unit)
    assert "tk_wmma_mma_bt" in module[0]
    _check(made, module, _with_functions(module[0]), program, tmp_path)
