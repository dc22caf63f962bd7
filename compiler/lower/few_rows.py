"""The work of a tile of rows for its first few rows alone: where a run has no more, as at its last tile.

A product of a tile reads each weight once for all of its rows, and computes them all: for one row it is bound
by reading, and for each one more that a run does not have it computes for nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.exprs import Indexed
from compiler.loops.ir import Block, Buffer, Expr, For, ForKind, Iter, Stmt, Var, binary, const, statements
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import simplify

Rows = Mapping[str, Iter]
"""By the name of a block, the iteration over rows."""


def forms_of_few_rows(body: Stmt, first: Expr, results: Collection[Buffer]) -> list[tuple[int, Stmt]]:
    """The body of a loop over tiles whose rows begin at `first`, for fewer rows: how many, ascending, and it.

    One row, a third and two thirds of the tile: more of them would compute less in vain, and be more code.
    Nothing where a tile has one row, where rows are not apart from each other, or where nothing is summed.
    """
    blocks = [item for item in statements(body) if isinstance(item, Block)]
    loops = {item.var.name: item for item in statements(body) if isinstance(item, For)}
    rows = {block.name: row for block in blocks for row in _rows(block, first, loops)}
    inner = {name for row in rows.values() for name in variables(row.binding) & loops.keys()}
    if not any(block.is_reduction for block in blocks) or not _are_several(inner, loops):
        return []
    if not all(_is_apart(block, rows, inner, results) for block in blocks) or not _pass_rows(
        blocks, rows, results
    ):
        return []
    tile = _tile([loops[name] for name in inner])
    counts = sorted({1, -(-tile // 3), -(-2 * tile // 3)} - {tile}) if tile > 1 else [1]
    return [(count, _shortened(body, inner, count)) for count in counts]


def _tile(inner: Sequence[For]) -> int:
    """How many rows a tile has; 1 where its loops do not agree, or rows are the lanes of a vector."""
    extents = {int_of(loop.extent) or 1 for loop in inner}
    if len(extents) > 1 or any(loop.kind is ForKind.VECTORIZED for loop in inner):
        return 1
    return extents.pop()


def _shortened(body: Stmt, inner: Collection[str], count: int) -> Stmt:
    """A body whose loops over rows end after so many."""

    def step(item: IRNode) -> IRNode | None:
        if not isinstance(item, For) or item.var.name not in inner:
            return None
        extent = min(count, int_of(item.extent) or count)
        return item.replace(extent=const(extent), body=rewrite_nodes(item.body, step))

    return rewrite_nodes(body, step)


def _rows(block: Block, first: Expr, loops: Mapping[str, For]) -> Iterator[Iter]:
    """The iteration of a block over the rows of a tile: so many after the first."""
    for item in block.iters:
        for name in variables(item.binding) & loops.keys() if item.kind == "spatial" else ():
            if simplify(binary("add", Var(name), first)) == simplify(item.binding):
                yield item


def _are_several(inner: Collection[str], loops: Mapping[str, For]) -> bool:
    return any((int_of(loops[name].extent) or 0) > 1 for name in inner)


def _is_apart(block: Block, rows: Rows, inner: Collection[str], results: Collection[Buffer]) -> bool:
    """Whether loops over rows number nothing else for a block, and it makes rows of results.

    A condition may ask about the row: it holds for fewer of them as it does for all.
    """
    row = rows.get(block.name)
    others = [item.binding for item in block.iters if item is not row]
    others += [block.predicate] if block.predicate is not None and row is None else []
    makes = any(region.buffer in results for region in block.writes)
    return not any(variables(item) & set(inner) for item in others) and (row is not None or not makes)


def _pass_rows(blocks: Sequence[Block], rows: Rows, results: Collection[Buffer]) -> bool:
    """Whether what passes from block to block does so row by row: each reads the row of it that it makes."""
    made: dict[str, int] = {}
    for block in blocks:
        for region in block.writes:
            if region.buffer in results or block.name not in rows:
                continue
            axes = {_axis_of(item, rows[block.name].var) for item in _accesses(block, region.buffer)}
            if len(axes) > 1 or None in axes or made.get(region.buffer.name, *axes) not in axes:
                return False
            made[region.buffer.name] = axes.pop() or 0
    return all(
        block.name in rows and _axis_of(item, rows[block.name].var) == axis
        for block in blocks
        for name, axis in made.items()
        for item in _accesses(block, name)
    )


def _accesses(block: Block, buffer: Buffer | str) -> Iterator[Indexed]:
    name = buffer if isinstance(buffer, str) else buffer.name
    for part in (block.body, block.init):
        if part is not None:
            yield from (i for i in part.walk() if isinstance(i, Indexed) and i.buffer.name == name)


def _axis_of(item: Indexed, row: Var) -> int | None:
    """The axis along which an access takes the row, and nothing else does."""
    found = [axis for axis, index in enumerate(item.indices) if row.name in variables(index)]
    return found[0] if len(found) == 1 and item.indices[found[0]] == row else None
