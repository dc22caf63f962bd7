"""Lowering to loops: one fused group of operators -> one loop function.

Each record's form writes its blocks into a common Builder. Parameters are named by position, so that equal
work gives equal functions, whatever the model calls its tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.core.node import IRNode, rewrite_nodes
from compiler.graph.dtypes import Array
from compiler.graph.fuse import Group
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import PIECES, Form
from compiler.loops.build import Builder
from compiler.loops.constant_only import part_constants
from compiler.loops.ir import Block, Const, Func, Load, const
from compiler.loops.layout import Layout

FORM = "form"
"""Func attribute: the form of the group's anchor, where there was a choice."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A constant that is computed from others at compile time: by which function, from which tensors."""

    func: Func
    inputs: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class GroupFunc:
    """The loop function of a group, and the tensor behind each of its parameters.

    `derived` says how to compute those that are no tensors of the graph.
    """

    func: Func
    values: tuple[Value, ...]
    derived: Mapping[Value, Derived] = field(default_factory=dict)


ChooseForm = Callable[[str, Mapping[str, GroupFunc]], str]
"""Picks one of several forms, given the name of the decision and the function that each form gives."""


def group_forms(
    group: Group,
    constants: Mapping[Value, Array],
    *,
    pieces: bool = True,
    searched: bool = True,
    threads: bool = False,
) -> dict[str, GroupFunc]:
    """Build the function of a group in each form of its anchor that fits, by name; `""` is no choice.

    pieces: whether a result may be written by several blocks, each a part. searched: those, too, that only a
    search takes. threads: those, too, for devices that bind loops to threads.
    """
    names = _candidates(group)
    if len(names) < 2:
        made = _in_form(group, constants, None, pieces=pieces)
        assert made is not None
        return {"": made}
    if not searched:
        names = [name for name in names if not _is_searched(group, name)]
    if not threads:
        names = [name for name in names if not _is_for_threads(group, name)]
    tried = {name: _in_form(group, constants, name, pieces=pieces) for name in names}
    return {name: made for name, made in tried.items() if made is not None}


def _is_searched(group: Group, name: str) -> bool:
    """Whether only a search takes a form of a group's anchor."""
    anchor = group.anchor
    return anchor is not None and anchor.op.forms[name].searched(anchor.info)


def _is_for_threads(group: Group, name: str) -> bool:
    """Whether a form of a group's anchor is for devices that bind loops to threads."""
    return group.anchor is not None and group.anchor.op.forms[name].threads


def form_decision(group: Group) -> str:
    """What the choice among the forms of a group's anchor is called."""
    return f"{group.anchor.op.name}.{FORM}" if group.anchor is not None else FORM


def chosen_form(group: Group, forms: Mapping[str, GroupFunc], choose: ChooseForm) -> str:
    """The form that `choose` takes, where there is a choice."""
    return next(iter(forms)) if len(forms) == 1 else choose(form_decision(group), forms)


class GroupForms:
    """Functions of groups; those that do the same to tensors of the same kinds and layouts are built once."""

    def __init__(
        self,
        constants: Mapping[Value, Array],
        layouts: Mapping[Value, Layout],
        *,
        pieces: bool = True,
        searched: bool = True,
        threads: bool = False,
    ) -> None:
        self._constants = constants
        self._layouts = layouts
        self._pieces, self._searched, self._threads = pieces, searched, threads
        self._known: dict[Hashable, tuple[Group, dict[str, GroupFunc]]] = {}

    def of(self, group: Group) -> dict[str, GroupFunc]:
        """The functions of a group, as `group_forms` builds them."""
        key = self._key(group)
        if key in self._known:
            other, forms = self._known[key]
            return {name: _rebound(made, other, group) for name, made in forms.items()}
        forms = group_forms(
            group,
            self._constants,
            pieces=self._pieces,
            searched=self._searched,
            threads=self._threads,
        )
        self._known[key] = group, forms
        return forms

    def _key(self, group: Group) -> Hashable:
        """All that the function of a group depends on; its tensors are numbers, in order of appearance."""
        numbers = {value: number for number, value in enumerate(group.inputs)}
        nodes = []
        for node in group.nodes:
            read = tuple(numbers[value] for value in node.inputs)
            for value in node.outputs:
                numbers[value] = len(numbers)
            types = tuple(value.type for value in node.outputs)
            # As text: 0.0 and -0.0, or 1 and True, are equal, and not the same.
            nodes.append((node.op.name, repr(node.attrs), read, types, node is group.anchor))
        tensors = tuple(
            (numbers[value], value.type, self._layouts.get(value), self._content(value))
            for value in (*group.inputs, *group.outputs)
        )
        return tuple(nodes), tensors

    def _content(self, value: Value) -> bytes | bool:
        """What a function knows of a tensor's content: a scalar that is known, or that it is a constant."""
        array = self._constants.get(value)
        return array is not None and (array.tobytes() if array.size == 1 else True)


def _rebound(made: GroupFunc, other: Group, group: Group) -> GroupFunc:
    """The function of another group for one that does the same."""
    places = dict(zip((*other.inputs, *other.outputs), (*group.inputs, *group.outputs), strict=True))
    ends = other.outputs[-1], group.outputs[-1]
    for value in made.derived:
        number = _derived_id(ends[0], 0) - value.id
        places[value] = Value(_derived_id(ends[1], number), value.type, value.name)
    derived = {
        places[value]: Derived(one.func, tuple(places[item] for item in one.inputs))
        for value, one in made.derived.items()
    }
    return GroupFunc(made.func, tuple(places[value] for value in made.values), derived)


def _candidates(group: Group) -> Sequence[str]:
    if group.anchor is None:
        return ()
    return [name for name in group.anchor.op.forms_for(group.anchor.info) if name != PIECES]


def _in_form(
    group: Group, constants: Mapping[Value, Array], chosen: str | None, *, pieces: bool
) -> GroupFunc | None:
    """The function with its anchor in the form `chosen`; None where that needs constants that are none."""
    builder = Builder("kernel")
    buffers = {}
    scalars: dict[str, Const] = {}
    for number, value in enumerate(group.inputs):
        array = constants.get(value)
        if array is None:
            buffers[value] = builder.input(f"x{number}", value.type.shape, value.type.dtype)
        else:
            buffers[value] = builder.constant(f"w{number}", value.type.shape, value.type.dtype)
        if array is not None and array.size == 1:
            scalars[buffers[value].name] = const(array.item(), value.type.dtype)
    for node in group.nodes:
        form = _form(node, last=pieces and node is group.nodes[-1])
        if chosen is not None and node is group.anchor:
            form = node.op.forms[chosen]
        buffers[node.output] = form.build(builder, [buffers[value] for value in node.inputs], node.info)
    attrs = ((FORM, chosen),) if chosen is not None else ()
    func = builder.finish([buffers[value] for value in group.outputs], attrs)
    func = _inline_scalars(func, scalars)
    kept = [value for value in group.inputs if buffers[value].name not in scalars]
    func = func.replace(params=tuple(item for item in func.params if item.name not in scalars))
    return _without_constant_work(func, (*kept, *group.outputs))


def _without_constant_work(func: Func, values: tuple[Value, ...]) -> GroupFunc | None:
    """The function without the blocks that depend on constants alone; their results are derived constants."""
    parted = part_constants(func)
    if parted is None:
        return None
    known = {buffer.name: value for buffer, value in zip(func.params, values, strict=True)}
    derived: dict[Value, Derived] = {}
    for number, maker in enumerate(parted.makers):
        result = parted.func.buffer(maker.params[-1].name)
        shape = tuple(int(getattr(extent, "value", 0)) for extent in result.shape)
        value = Value(_derived_id(values[-1], number), TensorType(result.dtype, shape))
        derived[value] = Derived(maker, tuple(known[item.name] for item in maker.params[:-1]))
        known[result.name] = value
    return GroupFunc(parted.func, tuple(known[item.name] for item in parted.func.params), derived)


_MOST_DERIVED = 64


def _derived_id(output: Value, number: int) -> int:
    """An identity of its own for each derived constant of the group that computes `output`; below 0."""
    assert number < _MOST_DERIVED
    return -1 - output.id * _MOST_DERIVED - number


def _form(node: Node, *, last: bool) -> Form:
    """The form to use: a group's result may be written in pieces, what is read inside must be one block."""
    forms = node.op.forms_for(node.info)
    if last and PIECES in forms:
        return forms[PIECES]
    return next((form for name, form in forms.items() if name != PIECES), next(iter(forms.values())))


def _inline_scalars(func: Func, scalars: Mapping[str, Const]) -> Func:
    if not scalars:
        return func

    def step(item: IRNode) -> IRNode | None:
        if isinstance(item, Load) and item.buffer.name in scalars:
            return scalars[item.buffer.name]
        if isinstance(item, Block) and any(region.buffer.name in scalars for region in item.reads):
            return item.replace(reads=tuple(r for r in item.reads if r.buffer.name not in scalars))
        return None

    return rewrite_nodes(func, step)
