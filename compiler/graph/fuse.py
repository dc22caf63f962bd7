"""Operator fusion: group operators into kernels.

A group is computed by one kernel: a heavy operator (anchor or reduction) with the elementwise operators
that follow it and a padding at the end, or a chain of injective operators. Every group has one result, which
is what makes the order of groups simple: a group runs where its last operator stood.

Views cost nothing: they are another shape over the memory of the value that they view. Slices and expansions
are repeated in every group that reads them, as index arithmetic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain

from compiler.graph.ir import Graph, Node, NodeInfo, Value
from compiler.graph.op import PIECES, Kind, Op
from compiler.loops.build import Builder
from compiler.loops.ir import Load

MOST_TRUTH_VALUES = 64
"""By which a run decides whether it needs a kernel; to read more would cost about as much as many a one."""


def selects_rows(graph: Graph, item: Node) -> bool:
    """Whether a node takes each row from one operand or the other, by a few truth values that a run finds."""
    if not item.op.selects or item.inputs[0] in graph.constants:
        return False
    condition = item.inputs[0].type
    return condition.size <= MOST_TRUTH_VALUES and condition.shape[-1:] in ((), (1,))


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that one kernel computes, in order; `anchor` is the heavy one, if any."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    anchor: Node | None

    @property
    def kind(self) -> Kind:
        """The kind of the anchor, or injective."""
        return self.anchor.op.kind if self.anchor is not None else Kind.INJECTIVE

    @property
    def flops(self) -> int:
        """Floating-point operations of one run."""
        return sum(item.op.flops(item.info) for item in self.nodes)

    @property
    def origin(self) -> tuple[str, ...]:
        """Names of the ONNX nodes that the group computes, each once."""
        return tuple(dict.fromkeys(name for item in self.nodes for name in item.origin))

    def __str__(self) -> str:
        body = " + ".join(item.op.name for item in self.nodes)
        reads, makes = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"{makes} = {self.kind}[{body}]({reads})"


@dataclass(frozen=True, slots=True)
class FusedGraph:
    """A graph cut into groups, in the order in which they run; `views` are (source, view) pairs.

    options: what groups were limited to. joined: the operators that joined others.
    """

    graph: Graph
    groups: tuple[Group, ...]
    views: tuple[tuple[Value, Value], ...]
    options: FusionOptions
    joined: tuple[Node, ...] = ()

    @property
    def fixed(self) -> dict[Value, None]:
        """Tensors whose layout is given, in order: the model's own, and both sides of views."""
        return dict.fromkeys((*self.graph.inputs, *self.graph.outputs, *chain.from_iterable(self.views)))

    def __str__(self) -> str:
        lines = ["fused"]
        lines += [f"  view {view}: {view.type} of {source}: {source.type}" for source, view in self.views]
        lines += [f"  {item}" for item in self.groups]
        return "\n".join(lines) + "\n"


MOST_NODES = 32
"""A group ends here: expressions become no deeper than Python and the C++ compiler like them."""
MOST_OPERATIONS = 64
"""And here where what is read twice is written out twice; v * sigmoid(v) doubles expressions at each node."""


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """What groups may be.

    most_nodes: how many operators one has; with one, every operator is a kernel. most_joins: after how many
    operators that joined others each further one is a group of its own. reorders: whether kernels may store
    the rows of their results in another order than that in which their loops compute them. leaves_out:
    whether a run leaves out kernels whose results no selection takes.
    """

    most_nodes: int = MOST_NODES
    most_joins: int | None = None
    reorders: bool = False
    leaves_out: bool = False


@dataclass(slots=True)
class _Draft:
    """A group under construction; `tail` is its result."""

    nodes: list[Node]
    tail: Value
    anchor: Node | None = None
    closed: bool = False


def fuse(graph: Graph, options: FusionOptions | None = None) -> FusedGraph:
    """Cut a graph in canonical form into groups; `options` limit them (default: all that fits)."""
    options = options or FusionOptions()
    drafts: dict[Value, _Draft] = {}
    inlined: dict[Value, Node] = {}
    views: list[tuple[Value, Value]] = []
    joined: list[Node] = []
    for item in graph.nodes:
        if item.op.kind is Kind.VIEW:
            views.append((item.inputs[0], item.output))
        elif _is_inlined(graph, item):
            inlined[item.output] = item
        else:
            are_left = options.most_joins is None or len(joined) < options.most_joins
            _place(graph, item, drafts, options if are_left else replace(options, most_nodes=1))
            joined += [item] if len(drafts[item.output].nodes) > 1 else []
    place = {item: number for number, item in enumerate(graph.nodes)}
    ready = [_finish(graph, draft, inlined, place) for draft in drafts.values()]
    return FusedGraph(graph, tuple(ready), tuple(views), options, tuple(joined))


def _is_inlined(graph: Graph, item: Node) -> bool:
    """Whether a node can be repeated in all its readers: it only says where to read."""
    users, inline = graph.users(item.output), item.op.inline
    if inline is None or not users or item.output in graph.output_set:
        return False
    return all(inline(item.info, user) for user in users)


def _place(graph: Graph, item: Node, drafts: dict[Value, _Draft], options: FusionOptions) -> None:
    """Put a node into a group with those of its producers that fit, or into one of its own."""
    joined: list[_Draft] = []
    anchor = item if item.op.kind is not Kind.INJECTIVE else None
    if item.op.alone:
        drafts[item.output] = _Draft([item], item.output, closed=True)
        return
    if item.op.kind is Kind.INJECTIVE or (item.op.kind is Kind.REDUCTION and item.op.reads_once(item.info)):
        joined = _injective_producers(graph, item, drafts, options)
    if item.op.kind is Kind.INJECTIVE:
        heavy = _heavy_producer(graph, item, joined, drafts, options)
        if heavy is not None:
            joined, anchor = [heavy, *joined], heavy.anchor
    nodes = [node for draft in joined for node in draft.nodes]
    for draft in joined:
        del drafts[draft.tail]
    drafts[item.output] = _Draft([*nodes, item], item.output, anchor, closed=_ends(item))


def _injective_producers(
    graph: Graph, item: Node, drafts: dict[Value, _Draft], options: FusionOptions
) -> list[_Draft]:
    """Injective groups that nobody reads but `item` and each other, found from `item` upwards."""
    joined: list[_Draft] = []
    members = {item}
    waiting = list(dict.fromkeys(item.inputs))
    while waiting:
        value = waiting.pop(0)
        draft = drafts.get(value)
        if draft is None or draft in joined or draft.anchor is not None or not _inlines(item, draft):
            continue
        if _only_read_by(graph, value, members):
            if len(members) + len(draft.nodes) > options.most_nodes:
                break
            if _may_explode(item) and _operations([*draft.nodes, *members]) > MOST_OPERATIONS:
                continue
            joined.append(draft)
            members.update(draft.nodes)
            waiting.extend(operand for node in draft.nodes for operand in node.inputs)
    return joined


def _may_explode(item: Node) -> bool:
    """Whether a group that ends here writes out what is read twice; plain loop nests bind it."""
    return item.op.kind is not Kind.INJECTIVE or _ends(item)


def _heavy_producer(
    graph: Graph, item: Node, joined: list[_Draft], drafts: dict[Value, _Draft], options: FusionOptions
) -> _Draft | None:
    """The group of the last anchor that `item` and the joined groups can follow, element by element."""
    nodes = [*(node for draft in joined for node in draft.nodes), item]
    read = dict.fromkeys(value for node in nodes for value in node.inputs)
    found = [drafts[value] for value in read if value in drafts and drafts[value].anchor is not None]
    members = set(nodes)
    short = [
        draft
        for draft in found
        if len(members) + len(draft.nodes) <= options.most_nodes
        and _operations([*draft.nodes, *nodes]) <= MOST_OPERATIONS
    ]
    fits = [
        draft
        for draft in short
        if _only_read_by(graph, draft.tail, members) and _follows(graph, nodes, draft, options)
    ]
    return fits[-1] if fits else None


def _operations(nodes: Sequence[Node]) -> int:
    """Operations of the longest expression that the nodes make; what is read twice counts twice."""
    makers = {value: item for item in nodes for value in item.outputs}

    @cache
    def count(item: Node) -> int:
        times = _reads(item.op, item.info) if item.op.elementwise else (1,) * len(item.inputs)
        read = zip(times, item.inputs, strict=True)
        return 1 + sum(often * count(makers[value]) for often, value in read if value in makers)

    return max(map(count, nodes))


@lru_cache(maxsize=1024)
def _reads(op: Op, info: NodeInfo) -> tuple[int, ...]:
    """How often the formula of an elementwise operator has each operand: x * clip(x + 3) has x twice."""
    builder = Builder("formula")
    operands = [builder.input(f"x{n}", kind.shape, kind.dtype) for n, kind in enumerate(info.in_types)]
    form = next(iter(op.forms_for(info).values()))
    func = builder.finish([form.build(builder, operands, info)])
    found = Counter(item.buffer.name for item in func.body.walk() if isinstance(item, Load))
    return tuple(found[operand.name] for operand in operands)


def _only_read_by(graph: Graph, value: Value, members: set[Node]) -> bool:
    return value not in graph.output_set and all(user in members for user in graph.users(value))


def _follows(graph: Graph, nodes: Sequence[Node], draft: _Draft, options: FusionOptions) -> bool:
    """Whether every reader of a group's result continues it, and so does everything up to the last node."""
    if draft.closed:
        return False
    reached = {draft.tail}
    for node in nodes:
        if reached.isdisjoint(node.inputs):
            continue
        if not _continues(node, draft, options) or (
            options.leaves_out and _may_leave_out(graph, node, draft)
        ):
            return False
        reached.update(node.outputs)
    return nodes[-1].output in reached


def _ends(item: Node) -> bool:
    """Whether nothing but the end of a group may be computed so: several results, or written in parts."""
    return PIECES in item.op.forms or len(item.outputs) > 1


def _continues(item: Node, draft: _Draft, options: FusionOptions) -> bool:
    """Whether a node can follow the anchor of a group, element by element or as its record says."""
    if item.op.elementwise and item.output.type.shape == draft.tail.type.shape:
        return True
    heavy = draft.anchor is not None and draft.anchor.op.kind is Kind.ANCHOR
    return item.op.epilogue(item.info) or (options.reorders and heavy and item.op.reorders(item.info))


def _may_leave_out(graph: Graph, item: Node, draft: _Draft) -> bool:
    """Whether a selection decides by rows if an anchor is needed: as one kernel they would always run."""
    heavy = draft.anchor is not None and draft.anchor.op.kind is Kind.ANCHOR
    return heavy and selects_rows(graph, item)


def _inlines(item: Node, draft: _Draft) -> bool:
    """Whether computing a group's elements where `item` reads them repeats no work to speak of."""
    if draft.closed:
        return False
    larger = item.op.kind is Kind.INJECTIVE and item.output.type.size >= 2 * draft.tail.type.size
    repeats = larger and not item.op.reads_once(item.info)
    return not repeats or all(node.op.flops(node.info) == 0 for node in draft.nodes)


def _finish(graph: Graph, draft: _Draft, inlined: dict[Value, Node], place: dict[Node, int]) -> Group:
    """Order the nodes, bring in the index arithmetic between them, and list what comes from outside."""
    ordered: list[Node] = []
    seen: set[Value] = set()
    for item in sorted(draft.nodes, key=place.__getitem__):
        for value in item.inputs:
            for extra in _through(value, inlined, seen):
                ordered.append(extra)
                seen.add(extra.output)
        ordered.append(item)
    made = {value for item in ordered for value in item.outputs}
    inputs = dict.fromkeys(value for item in ordered for value in item.inputs if value not in made)
    outputs = tuple(
        value
        for value in draft.nodes[-1].outputs
        if value in graph.output_set or graph.users(value) or value == draft.tail
    )
    return Group(tuple(ordered), tuple(inputs), outputs, draft.anchor)


def _through(value: Value, inlined: dict[Value, Node], seen: set[Value]) -> Iterator[Node]:
    item = inlined.get(value)
    if item is None or value in seen:
        return
    yield from _through(item.inputs[0], inlined, seen)
    yield item
