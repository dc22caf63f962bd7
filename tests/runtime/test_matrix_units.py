"""Every instruction of a matrix unit: interpreted, run by the emulator as rendered, and compiled."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest

from compiler.core.diagnostics import HostError
from compiler.core.settings import load_settings
from compiler.loops.interp import interpret
from compiler.loops.interp_values import STORAGE
from compiler.loops.matrix_units import RECORDS, UNITS
from compiler.loops.matrix_units.modes import size_of
from compiler.loops.verify import verify_func
from compiler.targets import get_target
from compiler.targets.device import Module
from compiler.targets.matrix_rates import JOINT_RATES, MATRIX_RATES
from tests.support.emulation import Emulated
from tests.support.matrix_products import Product, product

_made = cache(product)


@pytest.mark.parametrize("name", UNITS)
def test_lane_maps_place_every_element(name: str) -> None:
    unit = UNITS[name]
    for item in (unit.a, unit.b, unit.c):
        places = [item.place(lane, reg) for lane in range(unit.lanes) for reg in range(item.registers)]
        assert set(places) == set(np.ndindex(size_of(item.rows), size_of(item.columns)))
    assert unit.lanes * unit.c.registers == unit.rows * unit.columns


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", UNITS)
def test_interpreted(name: str) -> None:
    made = _made(name)
    verify_func(made.scheduled)
    made.assert_close(interpret(made.scheduled, made.inputs, subgroup=made.unit.lanes)["y"])
    made.assert_close(interpret(made.lowered, made.inputs, subgroup=made.unit.lanes)["y"])


def _module(names: Iterable[str]) -> str:
    made = [_made(name) for name in names]
    return made[0].words.module([item.device.text for item in made])


@cache
def _emulated(lanes: int) -> Emulated:
    return Emulated(_module(name for name, unit in UNITS.items() if unit.lanes == lanes))


def _launch(made: Product, emulated: Emulated) -> tuple[str, Any]:
    (launch,) = made.device.launches
    found = np.zeros(made.wanted.shape, STORAGE[made.unit.total.name])
    arrays = [made.inputs["x"], made.inputs["w"], found]
    return emulated.launch(launch.name, launch.grid, launch.block, arrays), found


@pytest.mark.parametrize("name", UNITS)
def test_emulated(name: str) -> None:
    made = _made(name)
    assert f"{made.words.math(name)}(" in made.device.text
    message, found = _launch(made, _emulated(made.unit.lanes))
    assert message == ""
    made.assert_close(found)


@pytest.mark.parametrize("beside", [2, 4])
@pytest.mark.parametrize("name", ["mma.m16n8k16.f16", "mma.m16n8k8.tf32"])
def test_columns_of_tiles_alternate(name: str, beside: int) -> None:
    """A lane holds neighbours of all tiles, and stores four of them at once."""
    made = _made(name, beside)
    verify_func(made.scheduled)
    made.assert_close(interpret(made.scheduled, made.inputs, subgroup=32)["y"])
    message, found = _launch(made, Emulated(made.words.module([made.device.text])))
    assert message == ""
    made.assert_close(found)
    stores = [line for line in made.device.text.splitlines() if "tk_store_aligned(p" in line]
    assert stores
    assert all("tk_f32x4{" in line for line in stores)


def test_three_products_of_tf32_are_almost_f32() -> None:
    """What is missing is the product of two rounding errors; one alone would be off by a thousandth."""
    made = _made("mma.m16n8k16.tf32x3")
    message, found = _launch(made, _emulated(32))
    assert message == ""
    scale = np.abs(made.inputs["x"].astype(np.float64)) @ np.abs(made.inputs["w"].astype(np.float64)).T
    assert np.max(np.abs(found - made.wanted) / scale) < 2.0**-20


@pytest.mark.parametrize(
    ("value", "wanted"), [(np.inf, np.nan), (np.nan, np.nan), (3e38, 3e38), (1e-30, 1e-30)]
)
def test_parts_of_the_largest_and_least(value: float, wanted: float) -> None:
    """The largest numbers do not become infinity, which has no parts."""
    made = _made("mma.m16n8k16.tf32x3")
    x, w = np.zeros_like(made.inputs["x"]), np.zeros_like(made.inputs["w"])
    x[3, 2], w[:, 2] = value, 1
    found = np.zeros(made.wanted.shape, np.float32)
    (launch,) = made.device.launches
    assert _emulated(32).launch(launch.name, launch.grid, launch.block, [x, w, found]) == ""
    np.testing.assert_allclose(found[3], np.float32(wanted), rtol=2.0**-20)
    assert not found[:3].any()


def _broken(made: Product, old: str, new: str) -> str:
    module = _module([made.unit.name])
    assert old in module
    return _launch(made, Emulated(module.replace(old, new)))[0]


def _call(made: Product) -> str:
    return next(line for line in made.device.text.splitlines() if "tk_mma_" in line)


def test_a_lane_that_leaves_is_found() -> None:
    made = _made("mma.m16n8k8.f16")
    message = _broken(made, _call(made), f"if (threadIdx.x != 5) {{\n{_call(made)}\n}}")
    assert "divergent" in message


def test_lanes_that_disagree_are_found() -> None:
    """Quad pairs 0 and 1 hold the same rows of a: another step in one of them is a defect."""
    made = _made("mma.m8n8k4.f16")
    load = "tk_load_aligned<tk_u16x2>("
    wrong = _call(made).replace(load, f"{load}(threadIdx.x / 4 % 2) * 4 + ", 1)
    assert "hold different values of element" in _broken(made, _call(made), wrong)


def test_half_a_sub_group_is_found() -> None:
    made = _made("mma.m8n8k4.f16")
    (launch,) = made.device.launches
    found = np.zeros(made.wanted.shape, np.float32)
    arrays = [made.inputs["x"], made.inputs["w"], found]
    message = _emulated(32).launch(launch.name, launch.grid, (16, 1, 1), arrays)
    assert "takes part in an operation of 32 lanes" in message


def test_a_wrong_lane_map_shows_in_the_result() -> None:
    made = _made("mma.m16n8k16.f16")
    module = _module([made.unit.name])
    right = (
        "static int b_column(int lane, int i) { return (void)lane, (void)i, ((i / 2 % 2) * 4 + lane / 1 % 4)"
    )
    assert right in module
    message, found = _launch(made, Emulated(module.replace(right, right.replace("i / 2 % 2", "i / 2 % 1"))))
    assert message or not np.allclose(found, made.wanted, atol=1e-2)


def test_every_rate_is_of_a_unit() -> None:
    tables = (*MATRIX_RATES.values(), *JOINT_RATES.values())
    assert {name for rates in tables for name in rates} == set(RECORDS)


@pytest.mark.sample(2)
@pytest.mark.parametrize("arch", MATRIX_RATES)
def test_compiled(arch: str) -> None:
    target = get_target(f"{'cuda' if arch.startswith('sm_') else 'rocm'}:{arch}")
    names = list(MATRIX_RATES[arch])
    assert target.device is not None
    assert set(names) <= target.facts.intrinsics
    try:
        images = target.device.build(Module(_module(names), (), "0"), target, load_settings())
    except HostError as error:
        pytest.skip(str(error))
    assert len(images.resources) == len(names)
    assert all(row.registers for row in images.resources)
    assert not any(row.spills for row in images.resources)


def test_sums_are_not_copied_as_bytes() -> None:
    """Where bytes are copied, hipcc keeps a vector of 16 in memory of each thread, or in shared memory."""
    helper = _module(["mfma.m32n32k2.f32"])
    assert "tk_bitcast<totals>" not in helper
    assert "c.at[15]}" in helper
