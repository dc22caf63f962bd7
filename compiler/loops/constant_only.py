"""Blocks that depend on constants alone are taken out of a Func, to be computed once at compile time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.diagnostics import InternalError
from compiler.loops.annotations import is_constant_only
from compiler.loops.ir import CONSTANT, Block, Buffer, Func, Seq, Stmt, seq
from compiler.loops.regions import buffers_read, buffers_written
from compiler.loops.walk import replace_buffers


@dataclass(frozen=True, slots=True)
class Parted:
    """A Func without its constant-only blocks, and the Funcs that make the constants that it gets instead.

    The new constants are parameters with the names of the buffers that those blocks wrote, behind the other
    inputs; constants that nothing else reads are no parameters any more.
    """

    func: Func
    makers: tuple[Func, ...]


def part_constants(func: Func) -> Parted | None:
    """Take the constant-only blocks out of a Func that no schedule has touched.

    None where such a block reads what is not constant, as a convolution with computed weights does.
    """
    parts = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    marks = [is_constant_only(_block(item)) for item in parts]
    fixed = [item for item, mark in zip(parts, marks, strict=True) if mark]
    inputs = {item for item in func.params if item.scope != CONSTANT}
    if any(not inputs.isdisjoint(buffers_read(item)) for item in fixed):
        return None
    if not fixed:
        return Parted(func, ())
    rest = [item for item, mark in zip(parts, marks, strict=True) if not mark]
    written = {buffer for item in fixed for buffer in buffers_written(item)}
    used = {buffer for item in rest for buffer in buffers_read(item)}
    needed = [buffer for buffer in func.allocs if buffer in written and buffer in used]
    makers = tuple(_maker(func, buffer, fixed) for buffer in needed)
    constants = {item: item.replace(scope=CONSTANT) for item in needed}
    remaining = func.replace(
        params=(
            *(item for item in func.inputs if item.scope != CONSTANT or item in used),
            *constants.values(),
            *func.results,
        ),
        allocs=tuple(item for item in func.allocs if item not in written),
        body=replace_buffers(seq(*rest), constants),
    )
    return Parted(remaining, makers)


def _maker(func: Func, result: Buffer, fixed: Sequence[Stmt]) -> Func:
    """The Func that computes one buffer from constants."""
    wanted = {result}
    chosen: list[Stmt] = []
    for item in reversed(fixed):
        if not wanted.isdisjoint(buffers_written(item)):
            chosen.insert(0, item)
            wanted |= buffers_read(item)
    inputs = tuple(item for item in func.params if item in wanted)
    allocs = tuple(item for item in func.allocs if item in wanted and item != result)
    made = {buffer for item in chosen for buffer in buffers_written(item)}
    unknown = wanted - made - {item for item in inputs if item.scope == CONSTANT}
    if unknown:
        names = ", ".join(sorted(item.name for item in unknown))
        raise InternalError("a constant-only block reads what is not constant", where=names)
    return Func(result.name, (*inputs, result), seq(*chosen), allocs)


def _block(nest: Stmt) -> Block:
    return next(item for item in nest.walk() if isinstance(item, Block))
