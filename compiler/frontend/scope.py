"""What names stand for while a model is imported: tensors, sequences and optional values, graph by graph."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass

from compiler.graph.ir import Value
from compiler.graph.op import InvalidError


@dataclass(frozen=True, slots=True)
class Nothing:
    """An optional value without content."""


Item = Value | tuple[Value, ...] | Nothing
"""A tensor, a sequence of tensors, or an optional value without content; one with content is the content."""


class NameScope(ChainMap[str, "Item | None"]):
    """Names of a graph; those of the graphs around it are seen, too, where none of its own hides them.

    A name whose value is None belongs to a node that was refused, or that reads from one.
    """

    def define(self, name: str, item: Item | None) -> None:
        """Give a name of this graph its value; raises InvalidError where it has one."""
        if name in self.maps[0]:
            raise InvalidError(f"{name!r} is computed twice")
        self[name] = item

    def is_refused(self, name: str) -> bool:
        """Whether a name has no value because a node was refused."""
        return name in self and self[name] is None


def item_text(item: Item) -> str:
    """What a name stands for, in words."""
    if isinstance(item, Value):
        return f"a tensor {item.type}"
    return "an empty optional value" if isinstance(item, Nothing) else f"a sequence of {len(item)} tensors"
