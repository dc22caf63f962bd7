"""If, Loop and Scan: their subgraphs become nodes of the graph itself.

What is known at compile time decides which of them: the branch that is taken, as many rounds as there are.
Where data decides, both branches or all rounds are computed, and `Where` picks what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from compiler.frontend.attributes import graph_attribute
from compiler.frontend.item_node import (
    Convert,
    Importing,
    ItemNode,
    Subgraph,
    known_scalar,
    no_rows,
    scalar,
    select,
    stack,
    take,
    to_front,
)
from compiler.frontend.scope import Item, item_text
from compiler.frontend.unrolled_loop import UnrolledLoop
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
    editor = importing.editor
    where = scalar(editor, condition, "condition")
    no, yes = (
        importing.import_subgraph(importing.open_subgraph(graph_attribute(node.proto, name)), (), holds)
        for name, holds in zip(names, (editor.emit("Not", where), where), strict=True)
    )
    if no is None or yes is None:
        return None
    if len(no) != len(yes):
        raise InvalidError(f"its branches have {len(yes)} and {len(no)} outputs")
    return tuple(select(editor, where, a, b) for a, b in zip(yes, no, strict=True))


def _loop(importing: Importing, node: ItemNode) -> tuple[Item, ...] | None:
    """All rounds, one after the other."""
    return UnrolledLoop(importing, node).run()


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
    return (*states, *(no_rows(editor, row, _output_axis(axis, row.type)) for row, axis in places))


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
