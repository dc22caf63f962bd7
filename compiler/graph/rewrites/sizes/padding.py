"""Windows over a tensor whose padding depends on the size, so that what does not come out even is padded.

The padding becomes the same for all sizes: as much as it takes that there are as many windows. Where it
begins earlier or later (`auto_pad`), the tensor is moved by that before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.graph.attrs import AttrValue
from compiler.graph.dtypes import to_numpy
from compiler.graph.ops.windows import windows_of
from compiler.graph.rewrites.sizes.instances import Instance, Nodes
from compiler.graph.rewrites.sizes.node_writer import NodeWriter
from compiler.graph.rewrites.sizes.restriction import fill_value

_FIRST = 2
"""The first axis that windows move along."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """Windows along one axis. rows: of each instance elements, windows, and padding before and after."""

    axis: int
    reach: int
    stride: int
    rows: tuple[tuple[int, int, int, int], ...]

    @property
    def total(self) -> int | None:
        """Padding with which there are as many windows at all sizes."""
        for total in range(self.reach + self.stride):
            if all((n + total - self.reach) // self.stride + 1 == out for n, out, _, _ in self.rows):
                return total
        return None

    @property
    def shares(self) -> tuple[bool, bool]:
        """Whether what is missing to whole windows is before by half, rounded down, or up."""
        missing = [max((out - 1) * self.stride + self.reach - n, 0) for n, out, _, _ in self.rows]
        found = [low for _, _, low, _ in self.rows]
        return [one // 2 for one in missing] == found, [one - one // 2 for one in missing] == found


def with_equal_padding(w: NodeWriter, fill: float) -> Sequence[Nodes] | None:
    """The same windows; None where their number does not follow. fill: what changes no result."""
    node = w.replaced[0]
    if len(node.outputs) > 1:
        return None
    source = node.inputs[0].id
    before, after = (list(node.attrs.integers(name)) for name in ("before", "after"))
    for at in range(len(before)):
        one = _axis(w, at)
        if len({row[2:] for row in one.rows}) == 1:
            continue
        total = one.total
        if total is None:
            return None
        if len({low for _, _, low, _ in one.rows}) == 1:
            after[at] = total - before[at]
        elif any(one.shares):
            source = _moved(w, source, one, total, fill)
            before[at] = after[at] = 0
        else:
            return None
    if min(after) < 0:
        return None
    attrs: Mapping[str, AttrValue] = {**node.attrs, "before": tuple(before), "after": tuple(after)}
    return w.finish(node.op.name, source, *(value.id for value in node.inputs[1:]), **attrs)


def _axis(w: NodeWriter, at: int) -> _Axis:
    windows = windows_of(w.replaced[0].attrs)

    def row(item: Instance) -> tuple[int, int, int, int]:
        node = w.node_of(item)
        here = windows_of(node.attrs)
        extents = (value.type.shape[_FIRST + at] for value in (node.inputs[0], node.output))
        n, out = extents
        return n, out, here.before[at], here.after[at]

    rows = tuple(map(row, w.instances.all))
    return _Axis(_FIRST + at, windows.reach[at], windows.strides[at], rows)


def _moved(w: NodeWriter, source: int, one: _Axis, total: int, fill: float) -> int:
    """The tensor behind as much padding as this run has before it, and longer by all padding."""
    rank, dtype = w.replaced[0].inputs[0].type.rank, w.replaced[0].inputs[0].type.dtype

    def length(item: Instance) -> int:
        return item.type_of(source).shape[one.axis] + total

    def number(value: int) -> int:
        return w.integers(lambda _: value)

    def column(item: Instance) -> dict[str, AttrValue]:
        return {"shape": (length(item), *(1,) * (rank - one.axis - 1))}

    extent = w.instances.length(source, one.axis)
    steps = w.emit("Div", w.emit("Add", extent, number(total - one.reach)), number(one.stride))
    whole = w.emit("Add", w.emit("Mul", steps, number(one.stride)), number(one.reach))
    missing = w.emit("Max", w.emit("Sub", whole, extent), number(0))
    half = w.emit("Div", missing, number(2))
    place = w.integers(lambda item: np.arange(length(item)))
    index = w.emit("Sub", place, half if one.shares[0] else w.emit("Sub", missing, half))
    inside = w.emit("And", w.emit("GreaterOrEqual", index, number(0)), w.emit("Less", index, extent))
    last = w.emit("Sub", extent, number(1))
    taken = w.emit("Gather", source, w.emit("Min", w.emit("Max", index, number(0)), last), axis=one.axis)
    nothing = np.asarray(fill_value(fill, to_numpy(dtype)), to_numpy(dtype))
    return w.emit(
        "Where", w.emit_by("Reshape", [inside], column), taken, w.instances.constant(lambda _: nothing)
    )
