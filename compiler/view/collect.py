"""A compile, from what its stages made to the records of a view."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from compiler.frontend.links import NodeLinks
from compiler.graph.extents import dims_text
from compiler.graph.ir import Graph, Value
from compiler.loops.layout import Layout
from compiler.render.host import PlanArg
from compiler.stages.compilation import Compilation
from compiler.stages.text import layout_text, place_text
from compiler.view.report import MemoryBar, MergedNode, ViewedNode, ViewedStep, ViewedTensor

_LONGEST_ATTRIBUTE = 200


@dataclass(frozen=True)
class CompiledParts:
    """The parts of a view that only a compile knows: graph, tensors, memory."""

    made: Compilation

    @property
    def graph(self) -> Graph:
        """The graph that the kernels compute."""
        return self.made.laid_out.fused.graph

    @cached_property
    def tensors(self) -> tuple[ViewedTensor, ...]:
        """All tensors of the graph, in the order in which they come about."""
        found: dict[Value, None] = dict.fromkeys(self.graph.inputs)
        for node in self.graph.nodes:
            found |= dict.fromkeys((*node.inputs, *node.outputs))
        found |= dict.fromkeys(self.graph.outputs)
        return tuple(self._tensor(value) for value in found)

    @cached_property
    def nodes(self) -> tuple[ViewedNode, ...]:
        """All operators, and which steps compute them: a slice is repeated in each group that reads it."""
        steps: dict[int, list[int]] = {}
        for number, step in enumerate(self.made.steps):
            for node in step.group.nodes:
                steps.setdefault(id(node), []).append(number)
        return tuple(
            ViewedNode(
                number=number,
                op=node.op.name,
                origin=node.origin,
                attrs=tuple((name, _shown(value)) for name, value in node.attrs.items()),
                reads=_ids(node.inputs),
                writes=_ids(node.outputs),
                steps=tuple(steps.get(id(node), ())),
            )
            for number, node in enumerate(self.graph.nodes)
        )

    @cached_property
    def steps(self) -> tuple[ViewedStep, ...]:
        """The calls of the model in order."""
        numbers = {id(node): number for number, node in enumerate(self.graph.nodes)}
        constants = self.graph.constants
        return tuple(
            ViewedStep(
                number=number,
                kernel=step.kernel,
                ops=tuple(node.op.name for node in step.group.nodes),
                origin=step.group.origin,
                nodes=tuple(numbers[id(node)] for node in step.group.nodes if id(node) in numbers),
                reads=_ids(value for value in step.group.inputs if value not in constants),
                constants=_ids(value for value in step.group.inputs if value in constants),
                writes=_ids(step.group.outputs),
            )
            for number, step in enumerate(self.made.steps)
        )

    def merged(self, nodes: Sequence[NodeLinks]) -> tuple[MergedNode, ...]:
        """Of a model's nodes those that no operator is named after, and where they went."""
        left: dict[str, list[int]] = {}
        for number, node in enumerate(self.graph.nodes):
            for name in node.origin:
                left.setdefault(name, []).append(number)
        origins = _Origins(nodes, left)
        return tuple(origins.merged(one) for one in nodes if one.name and one.name not in left)

    @cached_property
    def bars(self) -> tuple[MemoryBar, ...]:
        """The memory plan over time."""
        return tuple(self._bars())

    @property
    def input_tensors(self) -> tuple[int, ...]:
        """The model's inputs, in order."""
        return tuple(value.id for value in self.graph.inputs)

    @property
    def output_tensors(self) -> tuple[int, ...]:
        """The model's outputs, in order."""
        return tuple(value.id for value in self.graph.outputs)

    def _bars(self) -> Iterator[MemoryBar]:
        storage = self.made.storage
        for item in storage.lifetimes:
            per_sample = item.key in storage.samples.offsets
            offset = (storage.samples if per_sample else storage.plan).offsets[item.key]
            tensor = item.key.id if isinstance(item.key, Value) else None
            yield MemoryBar(tensor, offset, item.bytes, item.first, item.last, per_sample)

    def _tensor(self, value: Value) -> ViewedTensor:
        laid_out, constants = self.made.laid_out, self.graph.constants
        layout, inside = laid_out.layouts.get(value), laid_out.roots.get(value)
        slot = self.made.storage.slots.get(value)
        internal = layout is None and inside is None and slot is None and value not in constants
        return ViewedTensor(
            number=value.id,
            name=value.name,
            dtype=str(value.type.dtype),
            shape=_shape(self.graph, value),
            layout="" if internal else _layout_name(layout),
            index_map=layout_text(layout) if layout and layout.maps else "",
            bytes=(laid_out.elements(value) * value.type.dtype.bits + 7) // 8,
            memory=_memory(slot, is_constant=value in constants),
            inside=inside.parent.id if inside else None,
            is_constant=value in constants,
        )


def _shape(graph: Graph, value: Value) -> tuple[int | str, ...]:
    """As it lies in memory; where a run has a part of it, how much."""
    if value not in graph.extents:
        return value.type.shape
    dims = dims_text(graph, value, value.type)
    return tuple(f"({dim})" if isinstance(dim, str) and " " in dim else dim for dim in dims)


class _Origins:
    """Where ONNX nodes went that no operator is named after; `left` has the operators of all others."""

    def __init__(self, nodes: Sequence[NodeLinks], left: Mapping[str, Sequence[int]]) -> None:
        self._left = left
        self._readers: dict[str, list[NodeLinks]] = {}
        self._makers = {name: one for one in nodes for name in one.writes}
        for one in nodes:
            for name in one.reads:
                self._readers.setdefault(name, []).append(one)

    def merged(self, node: NodeLinks) -> MergedNode:
        """What became of a node."""
        found = self._nearest(node, self._after) or self._nearest(node, self._before)
        return MergedNode(node.name, found, node.is_constant)

    def _after(self, node: NodeLinks) -> Iterator[NodeLinks]:
        return (reader for name in node.writes for reader in self._readers.get(name, ()))

    def _before(self, node: NodeLinks) -> Iterator[NodeLinks]:
        return (self._makers[name] for name in node.reads if name in self._makers)

    def _nearest(self, node: NodeLinks, step: Callable[[NodeLinks], Iterator[NodeLinks]]) -> tuple[int, ...]:
        """The operators that came of the first nodes on each way that some operator is named after."""
        found: dict[int, None] = {}
        waiting, seen = [node], {id(node)}
        while waiting:
            for one in step(waiting.pop()):
                if id(one) in seen:
                    continue
                seen.add(id(one))
                numbers = self._left.get(one.name, ()) if one.name else ()
                found |= dict.fromkeys(numbers)
                if not numbers:
                    waiting.append(one)
        return tuple(sorted(found))


def _ids(values: Iterable[Value]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(value.id for value in values))


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_ATTRIBUTE else f"{text[:_LONGEST_ATTRIBUTE]}..."


def _layout_name(layout: Layout | None) -> str:
    """A layout in words; constants and views have none of their own and are row-major."""
    if layout is None or not layout.maps:
        return "row-major"
    blocks = f"blocks of {layout.lanes} channels" if layout.lanes else "by index map"
    return f"{blocks}, groups of {layout.group}" if layout.group else blocks


def _memory(slot: PlanArg | None, *, is_constant: bool) -> str:
    """Where a tensor lies; empty for what stays inside of a kernel."""
    if is_constant:
        return "constants"
    return place_text(slot) if slot is not None else ""
