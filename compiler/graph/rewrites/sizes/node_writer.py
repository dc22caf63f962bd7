"""Adds nodes in all instances of a model alike, in place of one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from compiler.graph.attrs import AttrValue
from compiler.graph.ir import Node
from compiler.graph.rewrites.sizes.instances import Instance, Instances, Nodes


class NodeWriter:
    """Adds nodes to all instances, in place of one node; the last one makes what that did."""

    def __init__(self, instances: Instances, replaced: Nodes) -> None:
        self.instances = instances
        self.replaced = replaced
        self.made: list[Nodes] = []
        self._number = {id(item): number for number, item in enumerate(instances.all)}

    def node_of(self, item: Instance) -> Node:
        """The replaced node in an instance."""
        return self.replaced[self._number[id(item)]]

    def integers(self, make: Callable[[Instance], object]) -> int:
        """A constant of i64, another one in each instance."""
        return self.instances.constant(lambda item: np.asarray(make(item), np.int64))

    def emit(self, op: str, *inputs: int, **attrs: AttrValue) -> int:
        """A node with the same attributes in all instances."""
        return self.emit_by(op, inputs, lambda _: attrs)

    def emit_by(
        self, op: str, inputs: Sequence[int], attrs: Callable[[Instance], Mapping[str, AttrValue]]
    ) -> int:
        """A node; returns the tensor that it makes."""
        self.made.append(self.instances.node(op, inputs, attrs, origin=self.replaced[0].origin))
        return self.made[-1][0].output.id

    def finish(self, op: str, *inputs: int, **attrs: AttrValue) -> Sequence[Nodes]:
        """The last node, and all that were added."""
        return self.finish_by(op, inputs, lambda _: attrs)

    def finish_by(
        self, op: str, inputs: Sequence[int], attrs: Callable[[Instance], Mapping[str, AttrValue]]
    ) -> Sequence[Nodes]:
        """The same with attributes by instance."""
        node = self.replaced[0]
        makes = [value.id for value in node.outputs]
        self.made.append(self.instances.node(op, inputs, attrs, makes=makes, origin=node.origin))
        return self.made
