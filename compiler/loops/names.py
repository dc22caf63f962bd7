"""Names that nothing else has yet."""

from __future__ import annotations

from compiler.core.node import IRNode
from compiler.loops.ir import Buffer, Var


def fresh(name: str, taken: set[str]) -> str:
    """`name`, or `name_1`, `name_2`, ... when it is taken; the result is taken from now on."""
    made, count = name, 0
    while made in taken:
        count += 1
        made = f"{name}_{count}"
    taken.add(made)
    return made


def names_in(root: IRNode) -> set[str]:
    """The names of all variables and buffers in a statement."""
    return {item.name for item in root.walk() if isinstance(item, Var | Buffer)}
