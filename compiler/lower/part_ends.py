"""Where the axes of what lies between a kernel's launches end: where the results end that it is read for.

Chunks of a sum are added up by a launch of their own. Of what these read, places beyond the end of a result
are read for places of the result beyond it, so nobody needs them either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.loops.ir import Block, Func, Load, Store, Var
from compiler.loops.regions import buffers_written

Row = tuple[int, ...]
"""How many places of an axis a run has: offset, divisor, a factor for each symbol."""
Rows = Mapping[tuple[str, int], Row]
"""The rows of axes, by a buffer's name and the number of the axis."""


def ends_of_parts(func: Func, rows: Rows) -> Rows:
    """The rows of a function's results, and those that follow for its own buffers."""
    known, blocks = dict(rows), list(func.blocks())
    own = {buffer for block in blocks for buffer in buffers_written(block)} - set(func.results)
    readers = {buffer: [block for block in blocks if any(_loads(block, buffer.name))] for buffer in own}
    while True:
        found = {
            (buffer.name, axis): row
            for buffer in own
            for axis in range(len(buffer))
            if (buffer.name, axis) not in known
            and (row := _common([_row(one, buffer.name, axis, known) for one in readers[buffer]]))
        }
        if not found:
            return known
        known |= found


def _common(rows: list[Row | None]) -> Row | None:
    return rows[0] if rows and all(row == rows[0] for row in rows) else None


def _row(block: Block, name: str, axis: int, known: Rows) -> Row | None:
    """Where an axis ends, as far as a block reads it; None where it may read all of it."""
    stores = [item for item in block.walk() if isinstance(item, Store)]
    if {store.buffer for store in stores} != buffers_written(block):
        return None
    read = {_place(load, axis) for load in _loads(block, name)}
    number = read.pop() if len(read) == 1 else None
    if number not in {item.var.name for item in block.iters if item.kind == "spatial"}:
        return None
    return _common([_written(store, number, known) for store in stores])


def _loads(block: Block, name: str) -> Iterator[Load]:
    """What a block reads of a buffer, beside the place that it adds to."""
    added = {item.indices for item in block.walk() if isinstance(item, Store) and item.buffer.name == name}
    for item in block.walk():
        if isinstance(item, Load) and item.buffer.name == name and item.indices not in added:
            yield item


def _place(load: Load, axis: int) -> str | None:
    index = load.indices[axis]
    return index.name if isinstance(index, Var) else None


def _written(store: Store, number: str | None, known: Rows) -> Row | None:
    """The row of an axis along which a variable says the place that is written."""
    for axis, index in enumerate(store.indices):
        if isinstance(index, Var) and index.name == number and (store.buffer.name, axis) in known:
            return known[store.buffer.name, axis]
    return None
