"""Redundancy elimination: each tensor is stored once, padded for its hungriest reader.

Where several readers pad one tensor, one Pad with the largest pads is kept; the others, and those that want
it bare, read a Slice of it, which costs nothing. A tensor that is an input, an output or viewed under
another shape has to exist bare, so only its Pads are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.graph.edit import Editor
from compiler.graph.ir import Graph, Node, Value
from compiler.graph.op import Kind
from compiler.graph.ops.indexing import adds_constants


@dataclass(frozen=True, slots=True)
class _Plan:
    """The Pads of one tensor that become one, its pads, and whether bare readers read a Slice of it."""

    pads: tuple[Node, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    bare: bool


def merge_pads(graph: Graph) -> Graph:
    """Merge the Pads of each value."""
    plans = {value: plan for value in graph.consumers if (plan := _plan(graph, value)) is not None}
    if not plans:
        return graph
    editor = Editor(graph)
    moved: dict[Value, Value] = {}
    merged: dict[Node, tuple[Value, _Plan]] = {}
    for value in graph.inputs:
        _emit(editor, value, plans, moved, merged)
    for item in graph.nodes:
        if item in merged:
            padded, plan = merged[item]
            moved[item.output] = _read(editor, padded, plan, _pads(item), item.output)
        else:
            inputs = tuple(moved.get(value, value) for value in item.inputs)
            editor.append(Node(item.op, inputs, item.outputs, item.attrs, item.origin))
        for value in item.outputs:
            _emit(editor, value, plans, moved, merged)
    outputs = tuple(moved.get(value, value) for value in graph.outputs)
    return graph.replace(nodes=editor.nodes, outputs=outputs, constants=editor.constants)


def _plan(graph: Graph, value: Value) -> _Plan | None:
    users = graph.users(value)
    pads = [item for item in users if _is_plain(item)]
    if not pads or value in graph.constants:
        return None
    fill = pads[0].attrs["value"]
    chosen = tuple(item for item in pads if item.attrs["value"] == fill)
    others = [item for item in users if item not in chosen]
    viewed = any(item.op.kind is Kind.VIEW for item in others)
    bare = bool(others) and not viewed and value not in graph.output_set and graph.producer(value) is not None
    if len(chosen) == 1 and not bare:
        return None
    before = tuple(max(column) for column in zip(*(_pads(item)[0] for item in chosen), strict=True))
    after = tuple(max(column) for column in zip(*(_pads(item)[1] for item in chosen), strict=True))
    return _Plan(chosen, before, after, bare)


def _is_plain(item: Node) -> bool:
    """A Pad with a constant that cuts nothing."""
    return item.op.name == "Pad" and adds_constants(item.info)


def _pads(item: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return item.attrs.integers("before"), item.attrs.integers("after")


def _emit(
    editor: Editor,
    value: Value,
    plans: dict[Value, _Plan],
    moved: dict[Value, Value],
    merged: dict[Node, tuple[Value, _Plan]],
) -> None:
    """Behind the definition of `value`: its one Pad, and the Slice that bare readers read."""
    plan = plans.get(value)
    if plan is None:
        return
    editor.origin = plan.pads[0].origin
    attrs = plan.pads[0].attrs.with_(before=plan.before, after=plan.after)
    (padded,) = editor.emit_all(plan.pads[0].op, (value,), attrs)
    merged.update(dict.fromkeys(plan.pads, (padded, plan)))
    if plan.bare:
        nothing = (0,) * value.type.rank
        moved[value] = _read(editor, padded, plan, (nothing, nothing), value)


def _read(
    editor: Editor, padded: Value, plan: _Plan, wanted: tuple[Sequence[int], Sequence[int]], like: Value
) -> Value:
    """The part of the padded tensor that has the wanted pads only."""
    begin = tuple(have - want for have, want in zip(plan.before, wanted[0], strict=True))
    if padded.type == like.type:
        return padded
    return editor.emit("Slice", padded, begin=begin, step=(1,) * len(begin), size=like.type.shape)
