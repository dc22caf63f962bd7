"""Whether attributes of an operator follow from the size, so that few sizes show what it does at others.

Padding that rounds up, or factors, may be alike at all sizes that are tried, and not at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.graph.attrs import AttrValue
from compiler.graph.ir import Shape
from compiler.graph.rewrites.sizes.instances import Nodes


def attributes_follow(nodes: Nodes, fits: Callable[[Sequence[int]], bool]) -> bool:
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
        if not all(values in extents or fits(values) for values in columns):
            return False
    return True


def _integers(value: AttrValue | None) -> tuple[int, ...] | None:
    """What an attribute holds, where that is integers."""
    parts = value if isinstance(value, tuple) else (value,)
    found = tuple(item for item in parts if isinstance(item, int))
    return found if len(found) == len(parts) else None
