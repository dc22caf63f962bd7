"""Which part of each tensor a run has, as far as what is beyond has no meaning, after rewrites and fusion.

Inputs say it (`Graph.extents`), and what the model's operators make (`Graph.undefined`); from there it
follows through the loops of groups: a place of a result that is computed from what has no meaning has none. A
selection by the place itself is where that ends: masks give what is beyond a number, and others read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.graph.convert import LaidOut
from compiler.graph.extents import regrouped
from compiler.graph.ir import Extent, Node, Value
from compiler.graph.op import Kind
from compiler.graph.to_loops import GroupFunc
from compiler.loops.ir import (
    Binary,
    Block,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Store,
    Unary,
    Var,
    statements,
)
from compiler.loops.queries import variables

Part = Mapping[int, Extent]
"""Of the axes behind which there is no meaning, how much a run has."""
_ABSORBS = frozenset({"mul", "min", "max", "and", "or", "bitand", "bitor"})
"""One side may decide alone; not so in products of floats, as no number stays no number."""


class Parts:
    """The parts of a model's tensors, group by group."""

    def __init__(self, laid_out: LaidOut) -> None:
        self._graph = laid_out.fused.graph
        self._known: dict[Value, Part] = {
            value: {axis: extent for axis, extent in enumerate(extents) if extent is not None}
            for value, extents in self._graph.extents.items()
            if value in self._graph.inputs
        }
        self._declared: dict[Value, Part] = {
            value: {axis: extent for axis, extent in enumerate(extents) if extent is not None}
            for value, extents in self._graph.undefined.items()
        }

    def of(self, value: Value) -> Part:
        """The part of a tensor; of one that a group makes, once that was added."""
        if value not in self._known:
            node = self._graph.producer(value)
            seen = self._of_view(node) if node is not None and node.op.kind is Kind.VIEW else {}
            self._known[value] = {**seen, **self._declared.get(value, {})}
        return self._known[value]

    def _of_view(self, node: Node) -> Part:
        source, result = node.inputs[0], node.output
        if source.type.size != result.type.size:
            return {}
        pairs = self.of(source).items()
        found = (regrouped(source.type.shape, axis, end, result.type.shape) for axis, end in pairs)
        return dict(item for item in found if item is not None)

    def add(self, made: GroupFunc) -> None:
        """Find the parts of what a group makes."""
        func = made.func
        values = dict(zip((item.name for item in func.params), made.values, strict=True))
        known: dict[str, Part] = {
            name: self.of(value) for name, value in values.items() if value not in made.derived
        }
        for item in func.results:
            known.pop(item.name, None)
        for block in func.blocks():
            _follow(block, known)
        for item in func.results:
            value = values[item.name]
            self._known[value] = {**known.get(item.name, {}), **self._declared.get(value, {})}


def _follow(block: Block, known: dict[str, Part]) -> None:
    """What follows from a block for the tensors that it writes."""
    places = {item.var.name for item in block.iters if item.kind == "spatial"}
    for store in (item for item in statements(block.body) if isinstance(item, Store)):
        found = {}
        for axis, index in enumerate(store.indices):
            if isinstance(index, Var) and index.name in places:
                extent = _decided(store.value, index.name, known)
                if extent is not None:
                    found[axis] = extent
        name = store.buffer.name
        before = known.get(name)
        known[name] = (
            found if before is None else {axis: e for axis, e in found.items() if before.get(axis) == e}
        )


def _decided(expr: Expr, place: str, known: Mapping[str, Part]) -> Extent | None:
    """The extent beyond which an expression has no meaning at a place; None where it always may have one."""
    if isinstance(expr, Load):
        return _of_load(expr, place, known)
    if isinstance(expr, Select):
        sides = [_decided(item, place, known) for item in (expr.a, expr.b)]
        return None if None in sides and place in variables(expr.cond) else _first(sides)
    if isinstance(expr, Binary):
        sides = [_decided(item, place, known) for item in (expr.a, expr.b)]
        absorbs = expr.op in _ABSORBS and not (expr.op == "mul" and expr.a.dtype.is_float)
        literal = isinstance(expr.a, Const) or isinstance(expr.b, Const)
        return None if absorbs and not literal and None in sides else _first(sides)
    if isinstance(expr, Unary | Cast | Call):
        return _first([_decided(item, place, known) for item in expr.children() if isinstance(item, Expr)])
    return None


def _of_load(expr: Load, place: str, known: Mapping[str, Part]) -> Extent | None:
    """An element beyond the part, or at a place that is itself read from there."""
    part = known.get(expr.buffer.name, {})
    for axis, index in enumerate(expr.indices):
        if isinstance(index, Var) and index.name == place and axis in part:
            return part[axis]
    return _first([_decided(index, place, known) for index in expr.indices if not isinstance(index, Var)])


def _first(found: Sequence[Extent | None]) -> Extent | None:
    return next((item for item in found if item is not None), None)
