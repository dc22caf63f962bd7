"""Declared regions of blocks against what their bodies really access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.core.node import IRNode
from compiler.loops import ir
from compiler.loops.intervals import Span, span_of
from compiler.loops.ir import Buffer, Expr, Region, Stmt, statements
from compiler.loops.queries import variables
from compiler.loops.regions import buffers_of, reads_of, variables_of, writes_of
from compiler.loops.verify_exprs import ExprChecker

_Access = tuple[Buffer, tuple[Expr, ...], dict[str, Span]]


def check_block_regions(checker: ExprChecker, block: ir.Block) -> None:
    """Regions are well formed and cover the accesses; a reduction writes one place for all its iterations."""
    for region in (*block.reads, *block.writes):
        checker.region(region)
    reduced = {item.var.name for item in block.iters if item.kind == "reduce"}
    if block.init is not None and not reduced:
        checker.report(f"block `{block.name}` has an init and nothing to reduce")
    for region in block.writes:
        used = {name for begin in region.begin for name in variables(begin)}
        if used & reduced:
            checker.report(
                f"block `{block.name}` writes `{region.buffer.name}` at a place that is reduced over"
            )
    own = {buffer.name for item in statements(block) for buffer in buffers_of(item)}
    for access, kind in _accesses(block, checker.spans):
        if access[0].name in own:
            continue
        _check_covered(checker, block, access, kind)


def _check_covered(checker: ExprChecker, block: ir.Block, access: _Access, kind: str) -> None:
    buffer, indices, spans = access
    declared = block.writes if kind == "writes" else (*block.reads, *block.writes)
    regions = [item for item in declared if item.buffer.name == buffer.name]
    if not regions:
        checker.report(f"block `{block.name}` {kind} `{buffer.name}` and does not declare it")
    elif all(_outside(item, indices, spans) for item in regions):
        checker.report(f"block `{block.name}` {kind} `{buffer.name}` outside of the region that it declares")


def _outside(region: Region, indices: tuple[Expr, ...], spans: Mapping[str, Span]) -> bool:
    """Whether an access surely leaves the box in some iteration."""
    return any(
        index.dtype.lanes == 1 and _leaves(index, begin, extent, spans)
        for index, begin, extent in zip(indices, region.begin, region.extent, strict=False)
    )


def _leaves(index: Expr, begin: Expr, extent: Expr, spans: Mapping[str, Span]) -> bool:
    if index == begin:
        return False
    a, b = _sum_of(index), _sum_of(begin)
    if a is None or b is None:
        return False
    low = high = 0.0
    for name in a.keys() | b.keys():
        factor = a.get(name, 0) - b.get(name, 0)
        first, last = (1.0, 1.0) if name == "" else spans.get(name, (-1.0, 1.0))
        low += factor * (first if factor > 0 else last) if factor else 0
        high += factor * (last if factor > 0 else first) if factor else 0
    return low < 0 or high > span_of(extent, spans)[1] - 1


def _sum_of(expr: Expr) -> dict[str, int] | None:
    """`expr` as coefficients of variables (constant under ""), or None where it is no sum of those."""
    if isinstance(expr, ir.Const):
        return {"": int(expr.value)}
    if isinstance(expr, ir.Var):
        return {expr.name: 1}
    if not isinstance(expr, ir.Binary) or expr.op not in ("add", "sub", "mul"):
        return None
    a, b = _sum_of(expr.a), _sum_of(expr.b)
    if a is None or b is None:
        return None
    if expr.op == "mul":
        if set(b) == {""}:
            a, b = b, a
        return {name: value * a[""] for name, value in b.items()} if set(a) == {""} else None
    sign = 1 if expr.op == "add" else -1
    return {name: a.get(name, 0) + sign * b.get(name, 0) for name in a.keys() | b.keys()}


def _accesses(block: ir.Block, spans: Mapping[str, Span]) -> Iterator[tuple[_Access, str]]:
    for part in (block.init, block.body):
        if part is not None:
            yield from _accesses_in(part, dict(spans))


def _accesses_in(stmt: Stmt, spans: dict[str, Span]) -> Iterator[tuple[_Access, str]]:
    """Every access below a statement, with the bounds of the variables there.

    Inner blocks answer for themselves.
    """
    stack: list[IRNode] = [stmt]
    while stack:
        item = stack.pop()
        if isinstance(item, ir.For):
            spans[item.var.name] = (0, span_of(item.extent, spans)[1] - 1)
        inner = {var.name for var in variables_of(item)} if isinstance(item, ir.Block) else set()
        for kind, boxes in (("reads", reads_of(item)), ("writes", writes_of(item))):
            direct = (box for box in boxes if not any(variables(begin) & inner for begin in box.begin))
            yield from (((box.buffer, box.begin, spans), kind) for box in direct)
        if not isinstance(item, Buffer | ir.Block):
            stack.extend(reversed(item.children()))
