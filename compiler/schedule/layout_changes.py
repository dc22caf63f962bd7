"""What a Func remembers about transformed buffers, and what follows from padding.

Each `transform_layout` leaves an entry in the attribute `layout:BUFFER` of the Func:
`((logical shape), index map text, pad value or None)`, oldest first. The pipeline repacks constants with
these maps; steps that round loops up use them to see which elements are padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.core.node import IRNode
from compiler.loops.index_map import IndexMap
from compiler.loops.ir import Binary, Block, Buffer, Const, Expr, Func, Load, Region, Store
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import reads_of, writes_of
from compiler.loops.simplify import Simplifier
from compiler.schedule.program import ranges
from compiler.schedule.rewriting import update_of

_PREFIX = "layout:"


@dataclass(frozen=True, slots=True)
class LayoutChange:
    """One change of layout: the shape before, the map to the shape after, the content of new elements.

    `pad` None says that the content of elements which no index reaches does not matter.
    """

    shape: tuple[int, ...]
    index_map: IndexMap
    pad: float | None = None

    @property
    def padded(self) -> bool:
        return self.index_map.is_padded(self.shape)


def layouts_of(func: Func, buffer: str) -> tuple[LayoutChange, ...]:
    """The changes of layout of a buffer, oldest first."""
    entries = dict(func.attrs).get(_PREFIX + buffer, ())
    return tuple(LayoutChange(tuple(shape), IndexMap.parse(text), pad) for shape, text, pad in entries)


def all_layouts(func: Func) -> dict[str, tuple[LayoutChange, ...]]:
    """The changes of layout of every transformed buffer."""
    names = [key.removeprefix(_PREFIX) for key, _ in func.attrs if key.startswith(_PREFIX)]
    return {name: layouts_of(func, name) for name in names}


def with_layouts(func: Func, buffer: str, layouts: tuple[LayoutChange, ...]) -> Func:
    """The Func with the recorded changes of a buffer replaced."""
    key = _PREFIX + buffer
    entries = tuple((item.shape, item.index_map.text, item.pad) for item in layouts)
    others = tuple((name, value) for name, value in func.attrs if name != key)
    return func.replace(attrs=(*others, (key, entries)) if entries else others)


# ---------------------------------------------------------------- rounding iterations up


def cannot_round_up(func: Func, block: Block, name: str, extent: int) -> str | None:
    """Why iteration variable `name` of a block cannot run to `extent` without a predicate; None when it can.

    Beyond its domain a spatial variable may only write padding; a reduction variable may only add zeros. No
    access may leave its buffer.
    """
    item = next(found for found in block.iters if found.var.name == name)
    domain = int_of(item.extent)
    if domain is None:
        return f"the extent of {name} is not a constant"
    if extent <= domain:
        return None
    known = Simplifier({**ranges(block.iters), name: (domain, extent - 1)})
    if (found := _leaves_a_buffer(block, name, known)) is not None:
        return found
    if item.kind == "spatial":
        return _spoils_writes(func, block, known)
    return _spoils_sum(func, block, name, known)


def _boxes(block: Block, *touched: Callable[[IRNode], tuple[Region, ...]]) -> list[Region]:
    parts = [part for part in (block.body, block.init) if part is not None]
    return [box for part in parts for item in part.walk() for by in touched for box in by(item)]


def _uses(indices: tuple[Expr, ...], name: str) -> bool:
    return any(name in variables(index) for index in indices)


def _leaves_a_buffer(block: Block, name: str, known: Simplifier) -> str | None:
    for item in _boxes(block, reads_of, writes_of):
        if not _uses(item.begin, name):
            continue
        for index, extent in zip(item.begin, item.buffer.shape, strict=True):
            low, high = known.interval(index)
            size = int_of(extent)
            if name in variables(index) and (
                low is None or high is None or size is None or low < 0 or high >= size
            ):
                return f"it would reach outside of {item.buffer.name}, which is not padded that far"
    return None


def _is_padding(
    func: Func, buffer: Buffer, indices: tuple[Expr, ...], known: Simplifier
) -> tuple[bool, float | None]:
    """(whether the indices always hit padding of a transformed buffer, the content of that padding)."""
    current = tuple(known.simplify(item) for item in indices)
    for layout in reversed(layouts_of(func, buffer.name)):
        current = tuple(known.simplify(i) for i in layout.index_map.inverse(layout.shape).apply(current))
        for index, size in zip(current, layout.shape, strict=True):
            low, _ = known.interval(index)
            if low is not None and low >= size:
                return True, layout.pad
    return False, None


def _spoils_writes(func: Func, block: Block, known: Simplifier) -> str | None:
    for item in _boxes(block, writes_of):
        padding, content = _is_padding(func, item.buffer, item.begin, known)
        if not padding:
            return f"it would overwrite elements of {item.buffer.name} that are not padding"
        if content is not None:
            return f"the padding of {item.buffer.name} has to stay {content}"
    return None


def _spoils_sum(func: Func, block: Block, name: str, known: Simplifier) -> str | None:
    body = block.body
    if not (isinstance(body, Store) and isinstance(body.value, Binary) and body.value.op == "add"):
        return "only sums can take more terms without changing"
    update = update_of(body)
    if update is None or not _is_zero(func, update[1], name, known):
        return f"the terms beyond the end of {name} are not known to be 0"
    return None


def _is_zero(func: Func, term: IRNode, name: str, known: Simplifier) -> bool:
    """Whether a product has a factor from padding that holds 0, and none from padding without content."""
    if isinstance(term, Const):
        return term.value == 0
    if isinstance(term, Binary) and term.op == "mul":
        zero = [_is_zero(func, side, name, known) for side in (term.a, term.b)]
        return any(zero) and all(_is_defined(func, side, known) for side in (term.a, term.b))
    if isinstance(term, Load) and _uses(term.indices, name):
        return _is_padding(func, term.buffer, term.indices, known) == (True, 0)
    return False


def _is_defined(func: Func, term: IRNode, known: Simplifier) -> bool:
    return all(
        _is_padding(func, item.buffer, item.indices, known) != (True, None)
        for item in term.walk()
        if isinstance(item, Load)
    )
