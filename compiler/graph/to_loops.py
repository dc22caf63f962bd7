"""One fused group of operators -> one loop function.

Each record's form writes its blocks into a common Builder. Parameters are named by position, so that equal
work gives equal functions, whatever the model calls its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.core.node import Node as TreeNode
from compiler.core.node import rewrite
from compiler.graph.dtypes import Array
from compiler.graph.fuse import Group
from compiler.graph.ir import Node, Value
from compiler.graph.op import Form
from compiler.loops.build import Builder
from compiler.loops.ir import Block, Const, Func, Load, const


PIECES = "pieces"
"""Name of forms that write disjoint parts of their result in several blocks."""


@dataclass(frozen=True, slots=True)
class GroupFunc:
    """The loop function of a group, and the tensor behind each of its parameters."""

    func: Func
    values: tuple[Value, ...]


def group_func(group: Group, constants: Mapping[Value, Array]) -> GroupFunc:
    """Build the function of a group with the default form of each operator."""
    builder = Builder("kernel")
    buffers = {}
    scalars: dict[str, Const] = {}
    values: list[Value] = []
    for number, value in enumerate(group.inputs):
        array = constants.get(value)
        if array is None:
            buffers[value] = builder.input(f"x{number}", value.type.shape, value.type.dtype)
        else:
            buffers[value] = builder.constant(f"w{number}", value.type.shape, value.type.dtype)
        if array is not None and array.size == 1:
            scalars[buffers[value].name] = const(array.item(), value.type.dtype)
        values.append(value)
    for node in group.nodes:
        form = _form(node, last=node is group.nodes[-1])
        made = form(builder, [buffers[value] for value in node.inputs], node.info)
        buffers.update(zip(node.outputs, made, strict=True))
    func = builder.finish([buffers[value] for value in group.outputs])
    func = _inline_scalars(func, scalars)
    kept = [value for value, buffer in zip(values, func_inputs(func, scalars, values), strict=True) if buffer]
    func = func.replace(params=tuple(item for item in func.params if item.name not in scalars))
    return GroupFunc(func, (*kept, *group.outputs))


def _form(node: Node, *, last: bool) -> Form:
    """The form to use: the result of a group may be written in pieces, what is read inside it must be one block."""
    forms = node.op.forms_for(node.info)
    if last and PIECES in forms:
        return forms[PIECES]
    return next((form for name, form in forms.items() if name != PIECES), next(iter(forms.values())))


def func_inputs(func: Func, scalars: Mapping[str, Const], values: list[Value]) -> list[bool]:
    """For each input value whether it is still a parameter (constants of one element became literals)."""
    return [item.name not in scalars for item in func.params[: len(values)]]


def _inline_scalars(func: Func, scalars: Mapping[str, Const]) -> Func:
    if not scalars:
        return func

    def step(item: TreeNode) -> TreeNode | None:
        if isinstance(item, Load) and item.buffer.name in scalars:
            return scalars[item.buffer.name]
        if isinstance(item, Block) and any(region.buffer.name in scalars for region in item.reads):
            return item.replace(reads=tuple(r for r in item.reads if r.buffer.name not in scalars))
        return None

    return rewrite(func, step)
