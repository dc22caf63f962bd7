"""The form im2col in loops: what it means for windows of every kind, and where it is on offer."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.core.types import F16, F32, DType
from compiler.graph.attrs import Attrs
from compiler.graph.ir import NodeInfo, TensorType
from compiler.graph.ops.linear import CONV
from compiler.graph.ops.windows import Windows
from compiler.loops.annotations import stage_of
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.schedule.schedule import Schedule

PLAIN = Windows((3, 2), (1, 1), (1, 1), (0, 0), (0, 0))


def info_of(shape: tuple[int, ...], windows: Windows, *, group: int = 1, dtype: DType = F32) -> NodeInfo:
    """A convolution to four channels."""
    attrs = Attrs({**windows.attrs(), "group": group})
    types = TensorType(dtype, shape), TensorType(dtype, (4, shape[1] // group, *windows.kernel))
    return NodeInfo(attrs, types, tuple(CONV.infer(types, attrs)))


@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        ((1, 2, 6, 5), PLAIN),
        ((2, 3, 7, 5), Windows((3, 3), (2, 3), (1, 1), (0, 0), (0, 0))),
        ((1, 2, 7, 9), Windows((3, 2), (1, 1), (2, 3), (0, 0), (0, 0))),
        ((1, 2, 5, 4), Windows((3, 3), (2, 1), (1, 1), (1, 2), (0, 1))),
        ((1, 5, 3, 4), Windows((1, 1), (1, 1), (1, 1), (0, 0), (0, 0))),
        ((2, 2, 11), Windows((3,), (2,), (1,), (1,), (0,))),
        ((1, 2, 3, 4, 5), Windows((2, 2, 2), (1, 1, 2), (1, 1, 1), (0, 1, 0), (0, 0, 0))),
        ((1, 1, 4, 1), Windows((2, 1), (1, 1), (1, 1), (0, 0), (0, 0))),
    ],
)
def test_the_form_means_the_convolution(shape: tuple[int, ...], windows: Windows) -> None:
    info, source = info_of(shape, windows), np.random.default_rng(3)
    arrays = [source.uniform(-1, 1, item.shape).astype(np.float32) for item in info.in_types]
    b = Builder("kernel")
    buffers = [b.input(name, item.shape) for name, item in zip("xw", info.in_types, strict=True)]
    func = b.finish([CONV.forms["im2col"].build(b, buffers, info)])
    got = interpret(func, dict(zip("xw", arrays, strict=True)))
    (wanted,) = CONV.reference(arrays, info.attrs)
    np.testing.assert_allclose(next(iter(got.values())), wanted, 1e-5, 1e-5)
    (columns,) = [block.name for block in func.blocks() if stage_of(block)]
    (reader,) = Schedule(func).program.readers(Schedule(func).site(columns).target)
    assert len(reader.spatial) == 3, "pixels of all lines are one axis"


@pytest.mark.parametrize(
    ("info", "fits"),
    [
        (info_of((1, 4, 8, 8), PLAIN), True),
        (info_of((1, 4, 8, 8), PLAIN, group=2), False),
        (info_of((1, 4, 3, 2), PLAIN), False),  # one window is a product with a vector
        (info_of((1, 4, 8, 8), PLAIN, dtype=F16), False),
    ],
)
def test_where_the_form_applies(info: NodeInfo, fits: bool) -> None:
    assert ("im2col" in CONV.forms_for(info)) is fits
