"""An operator of one's own: `Cube` of the domain `com.example`, x to the power of three times a factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compiler.plugin import Attrs, Buffer, Builder, Form, Kind, NodeInfo, Op, Plugin, Signature


def cube(b: Builder, inputs: Sequence[Buffer], info: NodeInfo) -> Buffer:
    """The loops of a node: an element of the result from the element of its operand at the same place."""
    (x,), out, factor = inputs, info.out_types[0], info.attrs.number("factor")
    return b.compute("cube", out.shape, lambda *at: x[at] * x[at] * x[at] * factor, out.dtype)


def in_numpy(arrays: Sequence[Any], attrs: Attrs) -> Sequence[Any]:
    """What the operator means, which the compiler's own checks compare with."""
    return ((arrays[0] ** 3 * attrs.number("factor")).astype(arrays[0].dtype),)


CUBE = Op(
    name="Cube",
    domain="com.example",
    kind=Kind.INJECTIVE,
    infer=lambda types, attrs: (types[0],),
    reference=in_numpy,
    signatures=(Signature(since=1, attrs={"factor": 1.0}),),
    forms={"direct": Form(cube)},
    elementwise=True,
)

PLUGIN = Plugin(operators=(CUBE,))
