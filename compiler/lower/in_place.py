"""What is in place already is not copied: an operand that is the beginning of its result, in its memory."""

from __future__ import annotations

from compiler.core.node import IRNode, rewrite_nodes
from compiler.core.types import BOOL
from compiler.loops.ir import IN_PLACE, Block, Func, Load, Store, const
from compiler.loops.simplify import simplify_stmt
from compiler.loops.walk import with_body


def leave_in_place(func: Func) -> Func:
    """Scheduled loops -> the same without copies of elements to where they are, as IN_PLACE says."""
    number = dict(func.attrs).get(IN_PLACE)
    if number is None:
        return func
    source = func.params[number]

    def step(item: IRNode) -> IRNode | None:
        if not isinstance(item, Block) or not isinstance(item.body, Store):
            return None
        stored = item.body
        same = stored.value == Load(source, stored.indices) and stored.buffer in func.results
        return item.replace(predicate=const(0, BOOL)) if same else None

    return with_body(func, simplify_stmt(rewrite_nodes(func.body, step)))
