"""Lowering of blocks: iteration variables are replaced by their bindings, predicates by `if`.

The start value of a reduction moves in front of its outermost reduction loop, as a loop nest of its own over
the spatial loops it depends on. Where another statement inside that loop uses the same buffer, this would
change the result; there the start value stays with the block, under "all reduce iterations are 0".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler.core.node import IRNode
from compiler.loops.ir import Block, Expr, For, Func, If, Stmt, Var, all_of, const, seq
from compiler.loops.queries import reduced_over, variables
from compiler.loops.regions import buffers_read, buffers_written
from compiler.loops.simplify import simplify_stmt, substitute
from compiler.loops.walk import Rewriter, scoped, with_body


def lower_blocks(func: Func) -> Func:
    """Remove all blocks; loops keep their kinds."""
    return with_body(func, simplify_stmt(_LowerBlocks().visit(func.body)))


@dataclass(eq=False)
class _LowerBlocks(Rewriter):
    hoisted: set[str] = field(default_factory=set)
    inside: set[str] = field(default_factory=set)

    def visit_for(self, item: For) -> Stmt:
        starts = [_start(item, block) for block in self._reductions(item)]
        return seq(*starts, self.parts(item)) if starts else self.parts(item)

    def visit_block(self, block: Block) -> Stmt:
        body = block.body
        if block.init is not None and block.name not in self.hoisted:
            first = all_of(*(item.var.eq(0) for item in block.iters if item.kind == "reduce"))
            body = seq(_when(first, block.init), body)
        body = self.visit(body)
        return _when(block.predicate, substitute(body, {item.var.name: item.binding for item in block.iters}))

    def _reductions(self, loop: For) -> list[Block]:
        """Blocks whose outermost reduction loop is this one and whose start value may move in front of it."""
        found = []
        for block in _blocks(loop):
            if block.init is None or block.name in self.hoisted:
                continue
            if loop.var.name not in reduced_over(block) or block.name in self.inside:
                continue
            if _alone(block, loop):
                self.hoisted.add(block.name)
                found.append(block)
            else:  # a loop further in would store the start value again in each iteration of this one
                self.inside.add(block.name)
        return found


def _start(loop: For, block: Block) -> Stmt:
    """The loop nest that stores the start value of a block inside `loop`.

    Where a block around the loop carries a part of the reduction, or this block has only the rest of one, the
    loops inside do not tell whether the reduction starts here; its other iterations do.
    """
    reduced = reduced_over(block)
    needed = {name for item in block.iters if item.kind == "spatial" for name in variables(item.binding)}
    path = next(scope.loops for item, scope in scoped(loop) if item is block)
    kept = [item for item in path if item.var.name in needed - reduced]
    values: dict[str, Expr] = {item.var.name: const(0) for item in path if item not in kept}
    values.update({item.var.name: Var(f"{item.var.name}_init") for item in kept})
    assert block.init is not None
    bindings = {item.var.name: substitute(item.binding, values) for item in block.iters}
    predicate = None if block.predicate is None else substitute(block.predicate, values)
    nest = _when(predicate, substitute(block.init, bindings))
    for item in reversed(kept):
        var = Var(f"{item.var.name}_init")
        nest = For(var, item.extent, nest, item.kind, item.tag, item.annotations)
    first = [bindings[item.var.name].eq(0) for item in block.iters if item.kind == "reduce"]
    return _when(all_of(*first), nest)


def _blocks(root: IRNode) -> Iterator[Block]:
    return (item for item in root.walk() if isinstance(item, Block))


def _alone(block: Block, loop: For) -> bool:
    """Whether only this block touches what it writes, everywhere inside `loop`, and it is not nested."""
    mine = {item.buffer for item in block.writes}
    others = [item for item in _blocks(loop) if item is not block]
    return not any(
        (buffers_read(other) | buffers_written(other)) & mine or block in _blocks(other.body)
        for other in others
    )


def _when(cond: Expr | None, body: Stmt) -> Stmt:
    return body if cond is None else If(cond, body)
