"""Models without functions of their own, and none that are larger than can be compiled.

A model of a kilobyte may stand for more nodes than any machine holds: a function that calls another twice,
which calls another twice. So everything is counted before anything is inlined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter

import onnx
from onnx import inliner

from compiler.core.diagnostics import BadInputError
from compiler.frontend.proto import broken, first_line
from compiler.frontend.subgraphs import all_nodes, model_texts

MOST_NODES = 200_000
"""Functions inlined, loops unrolled; the largest networks that people export have some ten thousand."""
FEWEST_NODES, NODES_PER_NODE = 8_000, 1_000
"""What any file may stand for, and how much more for each node in it: a few make no work of minutes."""
MOST_VALUES = 1_000_000
"""That nodes make, used or not."""
MOST_ENDS = 10_000
"""Inputs and outputs of a model, each."""
MOST_FUNCTIONS = 10_000
LONGEST_NAME = 1 << 20
DEEPEST_CALL = 100
"""As ONNX's inliner has it."""
MOST_BYTES = 2 << 30
"""Of nodes with their attributes, which protobuf cannot hold, either."""

_LONG = 10**15  # a number that nobody reads to its end

_Name = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Size:
    """What a list of nodes stands for when all calls in it are inlined."""

    nodes: int = 0
    values: int = 0
    bytes: int = 0
    depth: int = 0

    def __add__(self, other: _Size) -> _Size:
        return _Size(
            self.nodes + other.nodes,
            self.values + other.values,
            self.bytes + other.bytes,
            max(self.depth, other.depth),
        )


def check_counts(model: onnx.ModelProto, where: str) -> None:
    """Raise BadInputError for more of anything than is worth looking at one by one."""
    _within(len(model.functions), MOST_FUNCTIONS, "functions", where)
    _within(len(model.graph.input), MOST_ENDS, "inputs", where)
    _within(len(model.graph.output), MOST_ENDS, "outputs", where)
    _within(len(model.graph.node), MOST_NODES, "nodes", where)


class NodeCount:
    """How many nodes there are so far of those that a model may stand for that has `own` nodes itself.

    where: names it in errors.
    """

    def __init__(self, own: int, where: str) -> None:
        self._found = 0
        self._own = own
        self._most = min(MOST_NODES, FEWEST_NODES + NODES_PER_NODE * own)
        self._where = where

    def add(self, nodes: int, done: str = "functions inlined") -> None:
        """Count so many more; raises BadInputError for more than can be compiled."""
        self._found += nodes
        self._check(self._found, done)

    def expect(self, nodes: int) -> None:
        """Raise BadInputError where loops would make so many more, and these are too many."""
        self._check(self._found + nodes, "loops unrolled")

    def _check(self, found: int, done: str) -> None:
        what = "nodes" if self._most == MOST_NODES else f"nodes, and {self._own:,} without that"
        _within(found, self._most, what, self._where, done)


def check_size(model: onnx.ModelProto, where: str) -> NodeCount:
    """The number of nodes that a model has when its functions are inlined.

    Raises BadInputError for a model that is too large to compile, has a name that is no text, or a function
    that calls itself.
    """
    check_counts(model, where)
    _check_texts(model, where)
    functions = {(item.domain, item.name, item.overload): item for item in model.functions}
    size = _counted(model.graph.node, _function_sizes(functions, where))
    _within(size.depth, DEEPEST_CALL, "levels of functions that call functions", where)
    lists = (model.graph.node, *(item.node for item in model.functions))
    own = sum(1 for nodes in lists for _ in all_nodes(nodes))
    count = NodeCount(own, where)
    count.add(size.nodes)
    _within(size.values, MOST_VALUES, "outputs of nodes", where)
    _within(size.bytes, MOST_BYTES, "bytes of nodes", where)
    return count


def _check_texts(model: onnx.ModelProto, where: str) -> None:
    for text in model_texts(model):
        if not isinstance(text, str):
            raise broken(where, "a name in it is not UTF-8")
        if len(text) > LONGEST_NAME:
            why = f"a name in it has {len(text):,} characters; at most {LONGEST_NAME:,} are read"
            raise broken(where, why)


def _within(found: int, most: int, what: str, where: str, done: str = "functions inlined") -> None:
    if found > most:
        raise BadInputError(
            "the model is too large",
            where=where,
            why=f"with its {done} it has {_count(found)} {what}; at most {most:,} can be compiled",
            hint="export a part of the network, or without functions and unrolled loops",
        )


def _count(found: int) -> str:
    return f"{found:,}" if found < _LONG else f"about 10^{len(str(found)) - 1}"


def _function_sizes(functions: Mapping[_Name, onnx.FunctionProto], where: str) -> dict[_Name, _Size]:
    """What a call of each function stands for; callees before callers."""
    callees = {
        name: {_called(node) for node in all_nodes(item.node)} & functions.keys()
        for name, item in functions.items()
    }
    sizes: dict[_Name, _Size] = {}
    try:
        for name in TopologicalSorter(callees).static_order():
            size = _counted(functions[name].node, sizes)
            sizes[name] = replace(size, depth=size.depth + 1)
    except CycleError as error:
        raise broken(where, f"function {error.args[1][0][1]!r} calls itself") from error
    return sizes


def _counted(nodes: Sequence[onnx.NodeProto], sizes: Mapping[_Name, _Size]) -> _Size:
    """What nodes and those in their subgraphs stand for; `sizes` are of functions that they may call."""
    total = _Size()
    for node in all_nodes(nodes):
        total += sizes.get(_called(node)) or _Size(1, len(node.output), 0)
    return total + _Size(bytes=sum(node.ByteSize() for node in nodes))


def _called(node: onnx.NodeProto) -> _Name:
    return node.domain, node.op_type, node.overload


def inlined(model: onnx.ModelProto, where: str) -> onnx.ModelProto:
    """The model with the bodies of its own functions where they were called."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the inliner raises whatever its C++ side does
        raise broken(where, f"its functions cannot be inlined: {first_line(error)}") from error
