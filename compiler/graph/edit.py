"""Build and rewrite graphs: `Editor` adds nodes and constants, `rewrite` applies a rule to every node.

The editor folds what is known as it goes: a node all of whose inputs are constants becomes a constant. With
`expand` it also brings every node it adds to canonical form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.core.passes import Applications
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, from_numpy, to_numpy
from compiler.graph.extents import undefined_after
from compiler.graph.interpret import apply
from compiler.graph.ir import Graph, Node, TensorType, Value
from compiler.graph.op import Op
from compiler.graph.ops import OPS

FOLD_LIMIT_BYTES = 256 << 20
"""A result larger than this and than its inputs together is computed at run time, not stored."""


_SHOWN = 4


class Editor:
    """A graph under construction. Values of the graph that it starts from keep their numbers."""

    def __init__(self, graph: Graph | None = None, *, expand: bool = False) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = dict(graph.constants) if graph else {}
        self.folded: dict[Value, Node] = dict(graph.folded) if graph else {}
        self.producers: dict[Value, int] = {}
        self.uses: Counter[Value] = _count_uses(graph) if graph else Counter()
        self.origin: tuple[str, ...] = ()
        self.expand = expand
        self._scalars: dict[Hashable, Value] = {}
        self._next = graph.next_id if graph else 0

    # ------------------------------------------------------------ adding

    def value(self, kind: TensorType, name: str = "") -> Value:
        """A fresh value."""
        made = Value(self._next, kind, name)
        self._next += 1
        return made

    def constant(self, array: Array, name: str = "", made_by: Hashable = None) -> Value:
        """Add a constant; equal scalars are one constant, unless they are made otherwise."""
        key = (array.dtype.name, array.tobytes(), made_by) if array.ndim == 0 and not name else None
        if key is not None and key in self._scalars:
            return self._scalars[key]
        made = self.value(TensorType(from_numpy(array.dtype), array.shape), name)
        self.constants[made] = array
        if key is not None:
            self._scalars[key] = made
        return made

    def emit(self, op: str, *inputs: Value, **attrs: AttrValue) -> Value:
        """Add a node and return its first output."""
        return self.emit_all(OPS[op], inputs, Attrs(attrs))[0]

    def emit_all(self, op: Op, inputs: Sequence[Value], attrs: Attrs) -> tuple[Value, ...]:
        """Add a node and return its outputs; known results become constants."""
        types = op.infer(tuple(value.type for value in inputs), attrs)
        folded = self.fold(op, inputs, attrs, types)
        if folded is not None:
            return folded
        item = Node(op, tuple(inputs), tuple(self.value(kind) for kind in types), attrs, self.origin)
        if self.expand:
            expanded = self.expanded(item)
            if expanded is not None:
                return expanded
        self.append(item)
        self.uses.update(set(item.inputs))
        return item.outputs

    def append(self, item: Node) -> None:
        """Add a finished node as it is."""
        for value in item.outputs:
            self.producers[value] = len(self.nodes)
        self.nodes.append(item)

    def expanded(self, item: Node) -> tuple[Value, ...] | None:
        """What the record's expansion makes of a node, or None where it has nothing to do."""
        return item.op.expand(self, item) if item.op.expand else None

    def fold(
        self, op: Op, inputs: Sequence[Value], attrs: Attrs, types: Sequence[TensorType]
    ) -> tuple[Value, ...] | None:
        """The results as constants, when all inputs are known and the results are not too large to store.

        Results without elements are known, whatever the inputs.
        """
        if types and not any(kind.size for kind in types):
            return tuple(self.constant(np.empty(kind.shape, to_numpy(kind.dtype))) for kind in types)
        arrays = [self.constants.get(value) for value in inputs]
        known = [array for array in arrays if array is not None]
        if len(known) != len(arrays):
            return None
        made, read = sum(kind.bytes for kind in types), sum(array.nbytes for array in known)
        results = None if made > max(FOLD_LIMIT_BYTES, read) and known else apply(op, known, attrs, types)
        if results is None:
            return None
        fresh = self._next
        made_by = (op.name, tuple(inputs), attrs)  # as other sizes of the model may make something else
        folded = tuple(self.constant(array, made_by=(*made_by, at)) for at, array in enumerate(results))
        if all(value.id >= fresh for value in folded):
            item = Node(op, tuple(inputs), folded, attrs, self.origin)
            self.folded.update(dict.fromkeys(folded, item))
        return folded

    # ------------------------------------------------------------ looking

    @property
    def place(self) -> int:
        """How many values there are: another number for each node that is added."""
        return self._next

    def known(self, value: Value) -> Array | None:
        """The content of `value` where it is a constant."""
        return self.constants.get(value)

    def producer(self, value: Value, op: str = "") -> Node | None:
        """The node that makes `value` (of the given operator only), or None."""
        at = self.producers.get(value)
        if at is None or (op and self.nodes[at].op.name != op):
            return None
        return self.nodes[at]

    def rename(self, value: Value, name: str) -> Value:
        """Give a value without a name that of the value it stands for; a constant if it has no elements."""
        if value in self.constants and not (value.name or value.type.size):
            named = Value(value.id, value.type, name)
            self.constants[named] = self.constants.pop(value)
            return named
        at = self.producers.get(value)
        if at is None or value.name or not name:
            return value
        named, item = Value(value.id, value.type, name), self.nodes[at]
        outputs = tuple(named if out == value else out for out in item.outputs)
        self.nodes[at] = Node(item.op, item.inputs, outputs, item.attrs, item.origin)
        return named


def _count_uses(graph: Graph) -> Counter[Value]:
    """How many nodes read each value; leaving the graph is a use, too."""
    uses = Counter(value for item in graph.nodes for value in set(item.inputs))
    uses.update(graph.output_set)
    return uses


Rule = Callable[[Editor, Node], "tuple[Value, ...] | None"]


@dataclass(frozen=True, slots=True)
class GraphRewrite:
    """A pass that applies a rule to every node; each node that it replaces is an application.

    fresh: makes the rule for a graph, for rules that look at all of it or remember what they saw.
    """

    fresh: Callable[[Graph], Rule]
    expand: bool = False

    def __call__(self, graph: Graph) -> Graph:
        return self.within(graph, Applications())

    def within(self, graph: Graph, applications: Applications) -> Graph:
        """Replace as many nodes as may be."""
        return rewrite(graph, self.fresh(graph), applications, expand=self.expand)


def rewrite(graph: Graph, rule: Rule, applications: Applications, *, expand: bool = False) -> Graph:
    """Apply `rule` to every node, in order, as long as there are applications left.

    A rule returns what stands for the node's outputs, or None to keep the node. It sees nodes whose inputs
    are already rewritten. Nodes that lost their last use stay until `drop_dead`. The same graph comes back
    when nothing changed.
    """
    editor = Editor(graph, expand=expand)
    moved: dict[Value, Value] = {}
    for item in graph.nodes:
        current = _with_inputs(item, moved)
        editor.origin = item.origin
        result = rule(editor, current) if applications.are_left else None
        if result is None:
            editor.append(current)
            continue
        applications.add(described(item))
        for value in set(current.inputs):
            editor.uses[value] -= 1
        for old, new in zip(current.outputs, result, strict=True):
            if old != new:
                moved[old] = editor.rename(new, old.name)
                editor.uses[new] += editor.uses[old]
    if not moved:
        return graph
    outputs = tuple(moved.get(value, value) for value in graph.outputs)
    made = graph.replace(nodes=editor.nodes, outputs=outputs, constants=editor.constants)
    return replace(made, folded=editor.folded, undefined=undefined_after(graph, moved, made))


def rewriting(*, expand: bool = False) -> Callable[[Rule], GraphRewrite]:
    """A decorator that makes of a rule for one node what rewrites a graph by it."""
    return lambda rule: GraphRewrite(lambda _: rule, expand)


def described(item: Node) -> str:
    """A node for people: its operator, and the ONNX nodes that it came from."""
    shown = ", ".join(item.origin[:_SHOWN]) + (", ..." if len(item.origin) > _SHOWN else "")
    return f"{item.op.name} ({shown})" if shown else item.op.name


def _with_inputs(item: Node, moved: dict[Value, Value]) -> Node:
    if not any(value in moved for value in item.inputs):
        return item
    inputs = tuple(moved.get(value, value) for value in item.inputs)
    return Node(item.op, inputs, item.outputs, item.attrs, item.origin)
