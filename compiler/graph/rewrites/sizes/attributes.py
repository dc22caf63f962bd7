"""Whether attributes of an operator follow from the size, so that few sizes show what it does at others.

Padding that rounds up, or factors, may be alike at all sizes that are tried, and not at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.extents import Ends
from compiler.graph.ir import Extent, Shape
from compiler.graph.rewrites.sizes.fits import Point
from compiler.graph.rewrites.sizes.instances import Nodes

Fit = Callable[[Sequence[int]], Extent | None]
"""The extent that is so large in the instances, if there is one."""


def attributes_follow(nodes: Nodes, fit: Fit) -> bool:
    """Whether each attribute is the same in all instances, or integers that are extents, or fit the sizes."""
    types = zip(*((*node.inputs, *node.outputs) for node in nodes), strict=True)
    shapes: list[list[Shape]] = [[value.type.shape for value in row] for row in types]
    extents = {extents for row in shapes for extents in zip(*row, strict=False)}
    rows = [[node.attrs.get(name) for node in nodes] for name in nodes[0].attrs]
    for row in rows:
        if len(set(map(repr, row))) == 1:
            continue
        integers = [_integers(value) for value in row]
        if None in integers or len(set(map(len, filter(None, integers)))) != 1:
            return False
        columns = zip(*filter(None, integers), strict=True)
        if not all(values in extents or fit(values) for values in columns):
            return False
    return True


def attributes_at(nodes: Nodes, ends: Mapping[int, Ends], fit: Fit, point: Point) -> Attrs | None:
    """The attributes at any size, where they follow from it; None where they do not.

    ends: the extents of tensors, by number.
    """
    found: dict[str, AttrValue] = {}
    for name, value in nodes[0].attrs.items():
        row = [node.attrs.get(name) for node in nodes]
        if len(set(map(repr, row))) == 1:
            found[name] = value
            continue
        integers = [one for one in map(_integers, row) if one is not None]
        if len(integers) < len(row) or len(set(map(len, integers))) != 1:
            return None
        columns = [fit(values) or _end(nodes, ends, values) for values in zip(*integers, strict=True)]
        known = tuple(one.of(point) for one in columns if one is not None)
        if len(known) < len(columns):
            return None
        found[name] = known if isinstance(value, tuple) else known[0]
    return Attrs(found)


def _end(nodes: Nodes, ends: Mapping[int, Ends], values: Sequence[int]) -> Extent | None:
    """The extent of an operand that is so large in the instances."""
    for number, value in enumerate(nodes[0].inputs):
        for axis, end in enumerate(ends.get(value.id, ())):
            if end is not None and all(
                node.inputs[number].type.shape[axis] == size for node, size in zip(nodes, values, strict=True)
            ):
                return end
    return None


def _integers(value: AttrValue | None) -> tuple[int, ...] | None:
    """What an attribute holds, where that is integers."""
    parts = value if isinstance(value, tuple) else (value,)
    found = tuple(item for item in parts if isinstance(item, int))
    return found if len(found) == len(parts) else None
