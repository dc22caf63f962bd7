"""Winograd's convolution in one launch: what it computes, by numpy, and what its launches are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from compiler.graph.ops.windows import Windows
from compiler.graph.to_loops import FORM, group_forms
from compiler.loops.interp import interpret
from compiler.loops.ir import SHARED, Alloc, Barrier, For, ForKind, Func, Seq, Stmt, statements
from compiler.lower.verify_launch import problems_of_launches
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.estimate import form_seconds
from compiler.schedule.rules.threads.tile import CP_ASYNC
from compiler.schedule.rules.threads.winograd_tile import find_shape, winograd_tiles
from compiler.stages.forms import FormChoosers
from compiler.targets import get_target
from tests.support.gpu import TINY, with_limits
from tests.support.group_functions import group_func
from tests.support.kernels import lower_all, pack_inputs, run_flat
from tests.support.schedules import Array, random_inputs, shape_of
from tests.support.sketch import Sketch
from tests.support.works import around, works_of

COPIES = replace(
    with_limits(TINY, shared_bytes=160 << 10), intrinsics=TINY.intrinsics | frozenset({CP_ASYNC})
)
"""A small device with asynchronous copies."""

TILES = {  # threads along channels and tiles, own ones, positions, channels at a time, stages
    "winograd-fused-1": (2, 8, 8, 4, 4, 4, 2),
    "winograd-fused-1 without padding": (2, 8, 8, 4, 4, 4, 2),
    "winograd-fused-2": (2, 8, 8, 4, 4, 8, 1),
}


def transformed(filters: Array) -> Array:
    """Filters at the points 0, infinity, 1 and -1, along both axes; those at 0 with the form's sign."""
    matrix = np.array([[-1, 0, 0], [0, 0, 1], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5]], np.float32)
    return np.einsum("ai,kcij,bj->abkc", matrix, filters, matrix).astype(np.float32)


def convolved(x: Array, filters: Array, pad: int) -> Array:
    """A 3 x 3 convolution, tap by tap."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    high, wide = x.shape[2] - 2, x.shape[3] - 2
    taps = product(range(3), range(3))
    windows = ((x[:, :, i : i + high, j : j + wide], filters[:, :, i, j]) for i, j in taps)
    return np.asarray(sum(np.einsum("nchw,kc->nkhw", window, tap) for window, tap in windows))


def scheduled(name: str, tile: tuple[int, ...]) -> tuple[Func, Func, Func]:
    """A function, its schedule with a tile, and its flat loops."""
    ((func, _),) = works_of(name, 4, joined=False)
    chooser = ReplayChooser({"winograd.tile": tile}, AnalyticChooser())
    done = schedule_func(func, {}, COPIES, chooser).func
    return func, done, lower_all(done, COPIES)


def launches(flat: Func) -> Sequence[Stmt]:
    return flat.body.stmts if isinstance(flat.body, Seq) else (flat.body,)


@pytest.mark.parametrize("name", TILES)
def test_as_numpy(name: str) -> None:
    func, done, flat = scheduled(name, TILES[name])
    assert problems_of_launches(flat, COPIES) == ()
    source, shapes = np.random.default_rng(3), {p.name: shape_of(func, p.name) for p in func.params}
    arrays = {key: source.integers(-4, 5, shape).astype(np.float32) for key, shape in shapes.items()}
    _, _, outer, inner = shapes["filters"]
    filters = source.integers(-4, 5, (outer, inner, 3, 3)).astype(np.float32)
    arrays["filters"], result = transformed(filters), arrays.pop(func.params[-1].name)
    image = next(array for array in arrays.values() if array.shape[1:2] == (inner,))
    (bias,) = (array for array in arrays.values() if array.shape == (outer, 1, 1))
    wanted = convolved(image, filters, int(image.shape[2:] == result.shape[2:])) + bias
    wanted = np.maximum(wanted + image if wanted.shape == image.shape else wanted, 0)
    (got,) = run_flat(done, flat, arrays, shuffle=1).values()
    np.testing.assert_allclose(got.reshape(wanted.shape), wanted, 1e-5, 1e-4)


@pytest.mark.parametrize("name", TILES)
def test_all_but_the_sum_of_chunks_is_one_launch(name: str) -> None:
    ((func, _),) = works_of(name, 4, joined=False)
    shape = find_shape(func)
    assert shape is not None
    tiles = [option.value for option in winograd_tiles(shape, COPIES)]
    assert TILES[name] in tiles
    for tile in tiles[:: len(tiles) // 2 + 1]:
        flat = scheduled(name, tile)[2]
        assert len(launches(flat)) == (1 if shape.chunks == 1 else 2), f"the rule refused {tile}"
        shared = [
            one for one in statements(flat.body) if isinstance(one, Alloc) and one.buffer.scope == SHARED
        ]
        assert len(shared) == 3, "tiles, filters, and sums on their way to other threads"


def test_threads_wait_for_each_other() -> None:
    name = "winograd-fused-1 without padding"
    func, done, flat = scheduled(name, TILES[name])
    interpret(flat, pack_inputs(done, random_inputs(func)), races=True)
    channels = next(
        one for one in statements(flat.body) if isinstance(one, For) and one.kind is ForKind.SERIAL
    )
    assert sum(isinstance(one, Barrier) for one in statements(channels)) == 1, "two parts take turns"


@pytest.mark.parametrize(
    ("arch", "channels", "outer", "size", "pays"),
    [
        ("sm_90", 256, 256, 56, True),
        ("sm_90", 64, 64, 56, True),
        ("sm_80", 64, 64, 56, True),
        ("sm_90", 48, 192, 13, False),  # predicted to take 1.7 times as long
        ("sm_80", 32, 128, 27, False),
        ("sm_80", 512, 512, 7, False),
    ],
)
def test_it_is_taken_where_estimates_say_so(
    arch: str, channels: int, outer: int, size: int, pays: bool
) -> None:
    facts, s = get_target("cuda-nvidia", arch).facts, Sketch()
    fused = s.fused(around(channels, outer, (size, size))(s))
    made = group_func(
        fused.groups[0], fused.graph.constants, FormChoosers({}, facts).of(AnalyticChooser()), threads=True
    )
    assert str(dict(made.func.attrs)[FORM]).startswith("winograd-fused") == pays


def test_filters_that_are_not_known_have_no_such_form() -> None:
    s = Sketch()
    windows = Windows((3, 3), (1, 1), (1, 1), (0, 0), (0, 0))
    y = s.emit("Conv", s.input(1, 64, 30, 30), s.input(64, 64, 3, 3), group=1, **windows.attrs())
    fused = s.fused(y)
    forms = group_forms(fused.groups[0], fused.graph.constants, threads=True)
    facts = get_target("cuda-nvidia", "sm_90").facts
    costs = form_seconds([(made.func, {}) for made in forms.values()], facts)
    assert all(math.isinf(cost) for name, cost in zip(forms, costs, strict=True) if "fused" in name)
