"""If, Loop and Scan: their subgraphs become nodes of the graph itself.

What is known at compile time decides which of them: the branch that is taken, as many rounds as there are.
Where data decides, both branches or all rounds are computed, and `Where` picks what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx

from compiler.frontend.attributes import graph_attribute
from compiler.frontend.item_node import (
    Convert,
    Importing,
    ItemNode,
    Subgraph,
    integer_constant,
    known_scalar,
    scalar,
    select,
    stack,
    take,
    to_front,
)
from compiler.frontend.scope import Item, item_text
from compiler.graph.dtypes import to_numpy
from compiler.graph.edit import Editor
from compiler.graph.ir import TensorType, Value
from compiler.graph.op import InvalidError, UnsupportedError, normal_axis


def _if(importing: Importing, node: ItemNode) -> tuple[Item, ...] | None:
    """The branch that is taken; both of them where data decides."""
    condition = node.tensor(0)
    if not condition.type.dtype.is_bool:
        raise InvalidError(f"its condition is {condition.type}, not bool")
    names, known = ("else_branch", "then_branch"), known_scalar(importing.editor, condition, "condition")
    if known is not None:
        return importing.import_subgraph(
            importing.open_subgraph(graph_attribute(node.proto, names[bool(known)])), ()
        )
    no, yes = (
        importing.import_subgraph(importing.open_subgraph(graph_attribute(node.proto, name)), ())
        for name in names
    )
    if no is None or yes is None:
        return None
    if len(no) != len(yes):
        raise InvalidError(f"its branches have {len(yes)} and {len(no)} outputs")
    editor = importing.editor
    where = scalar(editor, condition, "condition")
    return tuple(select(editor, where, a, b) for a, b in zip(yes, no, strict=True))


# ---------------------------------------------------------------- Loop


def _loop(importing: Importing, node: ItemNode) -> tuple[Item, ...] | None:
    """All rounds, one after the other."""
    return _Loop(importing, node).run()


class _Loop:
    """State of a Loop while its rounds are imported.

    alive: a scalar that holds where the next round counts; None where it does so in any case.
    """

    def __init__(self, importing: Importing, node: ItemNode) -> None:
        self._importing = importing
        self._editor = importing.editor
        self._body = importing.open_subgraph(graph_attribute(node.proto, "body"))
        self._carried = [node.item(at) for at in range(2, len(node.inputs))]
        self._scans: list[list[Value]] = [
            [] for _ in range(len(self._body.graph.output) - 1 - len(self._carried))
        ]
        if len(self._body.graph.input) != 2 + len(self._carried) or len(self._body.graph.output) < 1:
            raise InvalidError("the inputs and outputs of its body do not fit its own")
        self._most = self._trips(node)
        self._asks = node.has(1)
        self._alive: Value | None = None
        self._over = False
        self._is_conditional = False
        if self._asks:
            self._continue(node.tensor(1))

    def run(self) -> tuple[Item, ...] | None:
        done = 0
        self._expect(done)
        while not self._over and (self._most is None or done < self._most):
            made = self._round(done)
            if made is None:
                return None
            self._keep(made[1:])
            done += 1
            if self._asks:
                condition = made[0]
                if not isinstance(condition, Value):
                    raise InvalidError(f"its condition is {item_text(condition)}")
                self._continue(condition)
                self._expect(done)
        return self._results(done)

    def _trips(self, node: ItemNode) -> int | None:
        """The largest number of rounds; None without a limit."""
        if not node.has(0):
            return None
        known = known_scalar(self._editor, node.tensor(0), "trip count")
        if known is None:
            raise UnsupportedError(
                "its trip count is known only when the model runs; if a model input carries it, give --bind"
            )
        return max(int(known), 0)

    def _continue(self, condition: Value) -> None:
        """Take account of the condition for the next round."""
        known = known_scalar(self._editor, condition, "condition")
        if known is not None:
            self._over = self._over or not known
            return
        holds = scalar(self._editor, condition, "condition")
        if not holds.type.dtype.is_bool:
            raise InvalidError(f"its condition is {condition.type}, not bool")
        self._alive = holds if self._alive is None else self._editor.emit("And", self._alive, holds)

    def _expect(self, done: int) -> None:
        """Refuse what never ends, or would become too large, before it is made."""
        if self._over:
            return
        endless = not self._asks or self._alive is not None or _stays(self._body.graph)
        if self._most is None and endless:
            raise UnsupportedError(
                "how many rounds it makes is known only when the model runs, and it has no largest trip count"
            )
        if self._most is not None and endless:
            self._importing.expect(self._body, self._most - done)

    def _round(self, number: int) -> tuple[Item, ...] | None:
        """What the body makes of the values carried; in a round that counts its condition holds."""
        first, second = (_extents(info) for info in self._body.graph.input[:2])
        turn = integer_constant(self._editor, number, first)
        holds = self._editor.constant(np.full(second, fill_value=True))
        return self._importing.import_subgraph(self._body, (turn, holds, *self._carried))

    def _keep(self, made: Sequence[Item]) -> None:
        count = len(self._carried)
        for rows, item in zip(self._scans, made[count:], strict=True):
            if not isinstance(item, Value):
                raise InvalidError(f"an output that it collects is {item_text(item)}, not a tensor")
            rows.append(item)
        alive = self._alive
        self._is_conditional = self._is_conditional or alive is not None
        if alive is None:
            self._carried = list(made[:count])
        else:
            pairs = zip(made[:count], self._carried, strict=True)
            self._carried = [select(self._editor, alive, new, old) for new, old in pairs]

    def _results(self, done: int) -> tuple[Item, ...] | None:
        if self._scans and self._is_conditional:
            raise UnsupportedError("how many elements it collects is known only when the model runs")
        if self._scans and not done:
            empty = self._empty_scans()
            return None if empty is None else (*self._carried, *empty)
        return (*self._carried, *(stack(self._editor, rows, 0) for rows in self._scans))

    def _empty_scans(self) -> list[Value] | None:
        """No elements, of the types that a round would make."""
        made = self._round(0)
        return (
            None
            if made is None
            else [_no_rows(self._editor, item, 0) for item in made[1 + len(self._carried) :]]
        )


def _stays(graph: onnx.GraphProto) -> bool:
    """Whether a body's condition is one that it was given: the one before, or one from outside."""
    makers = {name: node for node in graph.node for name in node.output}
    name = graph.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name not in makers or makers[name].op_type == "Constant"


def _extents(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape of one element as a body's input declares it: with one dimension, or without."""
    shape = info.type.tensor_type.shape
    return (1,) if len(shape.dim) == 1 else ()


def _no_rows(editor: Editor, item: Item, axis: int) -> Value:
    """What is collected of an output in no round."""
    if not isinstance(item, Value):
        raise InvalidError(f"an output that it collects is {item_text(item)}, not a tensor")
    shape = list(item.type.shape)
    shape.insert(axis, 0)
    return editor.constant(np.zeros(shape, to_numpy(item.type.dtype)))


# ---------------------------------------------------------------- Scan


def _scan(importing: Importing, node: ItemNode) -> tuple[Item, ...] | None:
    """All elements, one after the other."""
    if node.opset < 9:
        return _batched_scan(importing, node)
    body, editor = importing.open_subgraph(graph_attribute(node.proto, "body")), importing.editor
    states, scanned, count = _operands(body, node, 0)
    backward = node.integers("scan_input_directions", len(scanned))
    axes = zip(node.integers("scan_input_axes", len(scanned)), scanned, strict=True)
    scanned = [to_front(editor, value, normal_axis(axis, value.type.rank)) for axis, value in axes]
    length = _length([value.type.shape[0] for value in scanned])
    importing.expect(body, length)
    rows: list[list[Value]] = [[] for _ in range(count)]
    for turn in range(length):
        elements = [
            take(editor, value, length - 1 - turn if back else turn)
            for value, back in zip(scanned, backward, strict=True)
        ]
        made = _step(importing, body, states, elements)
        if made is None:
            return None
        states = made[: len(states)]
        for row, value in zip(rows, made[len(states) :], strict=True):
            row.append(value)
    if not length:
        return _scan_of_nothing(importing, node, (body, states, scanned))
    return (*states, *_collected(editor, node, rows))


def _operands(body: Subgraph, node: ItemNode, first: int) -> tuple[list[Value], list[Value], int]:
    """Initial states, what is scanned, and how many outputs are collected."""
    given = [node.tensor(at) for at in range(first, len(node.inputs))]
    scanned = node.integer("num_scan_inputs", 0)
    states, collected = len(given) - scanned, len(body.graph.output) - len(given) + scanned
    if scanned < 1 or states < 0 or collected < 0 or len(body.graph.input) != len(given):
        raise InvalidError("the inputs and outputs of its body do not fit its own")
    return given[:states], given[states:], collected


def _length(extents: Sequence[int]) -> int:
    if len(set(extents)) != 1:
        raise InvalidError(f"it scans axes of different extents: {', '.join(map(str, extents))}")
    return extents[0]


def _step(
    importing: Importing, body: Subgraph, states: Sequence[Value], elements: Sequence[Value]
) -> list[Value] | None:
    """What the body makes, which has to be tensors."""
    made = importing.import_subgraph(body, (*states, *elements))
    if made is None:
        return None
    wrong = [item for item in made if not isinstance(item, Value)]
    if wrong:
        raise InvalidError(f"its body makes {item_text(wrong[0])}, not a tensor")
    return [item for item in made if isinstance(item, Value)]


def _output_axis(axis: int, value: TensorType) -> int:
    return normal_axis(axis, value.rank, 1)


def _collected(editor: Editor, node: ItemNode, rows: Sequence[Sequence[Value]]) -> list[Value]:
    axes = node.integers("scan_output_axes", len(rows))
    prepends = node.integers("scan_output_directions", len(rows))
    return [
        stack(editor, row[::-1] if prepend else row, _output_axis(axis, row[0].type))
        for row, axis, prepend in zip(rows, axes, prepends, strict=True)
    ]


def _scan_of_nothing(
    importing: Importing, node: ItemNode, parts: tuple[Subgraph, list[Value], list[Value]]
) -> tuple[Item, ...] | None:
    """The initial states, and no elements of the types that a step would make."""
    (body, states, scanned), editor = parts, importing.editor
    elements = [
        editor.constant(np.zeros(value.type.shape[1:], to_numpy(value.type.dtype))) for value in scanned
    ]
    made = _step(importing, body, states, elements)
    if made is None:
        return None
    rows = made[len(states) :]
    places = zip(rows, node.integers("scan_output_axes", len(rows)), strict=True)
    return (*states, *(_no_rows(editor, row, _output_axis(axis, row.type)) for row, axis in places))


def _batched_scan(importing: Importing, node: ItemNode) -> tuple[Item, ...] | None:
    """Scan of opset 8: axis 0 is the batch, axis 1 is scanned, and each sequence may have its own length."""
    body, editor = importing.open_subgraph(graph_attribute(node.proto, "body")), importing.editor
    states, scanned, count = _operands(body, node, 1)
    if any(value.type.rank < 2 for value in scanned) or any(not value.type.rank for value in states):
        raise InvalidError("its operands have no batch axis, or no axis to scan")
    batch, most = (_length([value.type.shape[axis] for value in scanned]) for axis in (0, 1))
    if not batch or not most:
        raise UnsupportedError("a Scan of opset 8 over nothing is not supported")
    backward = node.integers("directions", len(scanned))
    lengths = _lengths(importing, node, batch, most)
    importing.expect(body, batch * most)
    finals: list[list[Value]] = [[] for _ in states]
    rows: list[list[Value]] = [[] for _ in range(count)]
    for sample in range(batch):
        own = [take(editor, value, sample) for value in states]
        parts = [take(editor, value, sample) for value in scanned]
        collected: list[list[Value]] = [[] for _ in rows]
        for turn in range(lengths[sample]):
            elements = [
                take(editor, part, lengths[sample] - 1 - turn if back else turn)
                for part, back in zip(parts, backward, strict=True)
            ]
            made = _step(importing, body, own, elements)
            if made is None:
                return None
            own = made[: len(own)]
            for row, value in zip(collected, made[len(own) :], strict=True):
                row.append(value)
        for final, value in zip(finals, own, strict=True):
            final.append(value)
        for row, values in zip(rows, collected, strict=True):
            row.append(stack(editor, _padded(editor, values, most), 0))
    return tuple(stack(editor, row, 0) for row in (*finals, *rows))


def _lengths(importing: Importing, node: ItemNode, batch: int, most: int) -> list[int]:
    """How many elements of each sequence are scanned."""
    if not node.has(0):
        return [most] * batch
    known = importing.editor.known(node.tensor(0))
    if known is None:
        raise UnsupportedError(
            "its sequence_lens are known only when the model runs; if a model input carries them, give --bind"
        )
    found = [int(length) for length in known.reshape(-1)]
    if len(found) != batch or not all(0 < length <= most for length in found):
        raise UnsupportedError(f"sequence_lens {found} are not supported: 1 to {most} for each of {batch}")
    return found


def _padded(editor: Editor, values: Sequence[Value], most: int) -> list[Value]:
    """Values, followed by zeros up to a number of them."""
    kind = values[0].type
    padding = editor.constant(np.zeros(kind.shape, to_numpy(kind.dtype))) if len(values) < most else None
    return [*values, *([padding] * (most - len(values)) if padding is not None else [])]


CONTROL_FLOW: Mapping[str, Convert] = MappingProxyType({"If": _if, "Loop": _loop, "Scan": _scan})
