"""The primitive that computes a factor of a sum of products ahead: cache_operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.core.node import rewrite_nodes
from compiler.core.types import TF32, DType
from compiler.loops.ir import Binary, Block, Buffer, Cast, Expr, Func, Load, Store
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import substitute
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program, Site
from compiler.schedule.rewriting import (
    declared,
    fresh_iters,
    nest_of,
    put_before,
    replace_statements,
    update_of,
)


def factors(block: Block) -> tuple[Expr, Expr] | None:
    """The two factors that a block adds to its result, conversions left out; None for other blocks."""
    op, value = update_of(block.body) or ("", None)
    if op != "add" or not isinstance(value, Binary) or value.op != "mul":
        return None
    return unconverted(value.a), unconverted(value.b)


def unconverted(expr: Expr) -> Expr:
    """A value before a conversion, and before it was rounded to tf32 on the way."""
    if isinstance(expr, Cast) and isinstance(expr.value, Cast) and expr.value.type == TF32:
        return expr.value.value
    return expr.value if isinstance(expr, Cast) else expr


@dataclass(frozen=True, slots=True)
class CacheOperand(Primitive[tuple[str, str]]):
    """Let a block of the form C += a * b read one of its factors from a buffer over its own iterations.

    block: the block, without a predicate. operand: 0 or 1. axes: the numbers of all iterations of the block
    that the factor depends on, in the order that they become dimensions of the buffer. scope: where the
    buffer lives. The factor may be any expression (a window of a padded image, say): it is computed by a
    block of its own, to be moved with compute_at. dtype: what is multiplied, by default the factor's own
    type; `tf32` rounds factors of f32 where the block reads them: the buffer holds f32.
    Outputs: that block, and its buffer.
    rewrite: C[i, j] += x[i + k] * w[k, j] -> t[k, i] = x[i + k]; C[i, j] += t[k, i] * w[k, j]
    TVM: reindex with cache_read.
    """

    name: ClassVar[str] = "cache_operand"

    block: str
    operand: int
    axes: tuple[int, ...]
    scope: str
    dtype: str | None = None

    def apply(self, program: Program) -> tuple[Func, tuple[str, str]]:
        site, fresh = program.site(self.block, self.name), program.namer()
        block, func = site.block, program.func
        expr = self._factor(site)
        iters = [block.iters[number] for number in self._checked(block, expr)]
        name = fresh(f"{self.block}_{'ab'[self.operand]}")
        kind = self._multiplied(expr.dtype)
        buffer = Buffer(name, expr.dtype, tuple(item.extent for item in iters), self.scope)
        loaded = Load(buffer, tuple(item.var for item in iters))
        here = loaded if kind == expr.dtype else Cast(expr.dtype, Cast(kind, loaded))
        own = fresh_iters(fresh, name, [item.extent for item in iters])
        value = substitute(expr, {old.var.name: new.var for old, new in zip(iters, own, strict=True)})
        body = Store(buffer, tuple(item.var for item in own), value)
        made = declared(Block(name, own, (), (), body))
        read = rewrite_nodes(site.body.value, lambda item: here if item == expr else None)
        new = declared(block.replace(body=site.body.replace(value=read)))
        changed = replace_statements(func, {self.block: new})
        changed = changed.replace(
            body=put_before(changed.body, {self.block}, nest_of(made)), allocs=(*func.allocs, buffer)
        )
        return changed, (name, buffer.name)

    def _multiplied(self, kind: DType) -> DType:
        if self.dtype is None or self.dtype == kind.name:
            return kind
        if (kind.name, self.dtype) != ("f32", "tf32"):
            raise self.refuse(
                f"a factor of {kind} cannot be multiplied as {self.dtype}",
                "only f32 may be rounded, to tf32",
                "leave the type out",
            )
        return TF32

    def _factor(self, site: Site) -> Expr:
        block = site.block
        found = factors(block)
        if found is None or self.operand not in (0, 1):
            raise self.refuse(
                "it is no sum of products",
                "its body is not of the form C = C + a * b, or the operand is not 0 or 1",
                "use cache_read",
            )
        if block.predicate is not None or site.inside is not None:
            raise self.refuse(
                "it does not run over all of its iterations",
                "the factor would be computed where the block is not",
                "cache the operand before splitting its loops",
            )
        expr = found[self.operand]
        written = {region.buffer for region in block.writes}
        if any(isinstance(item, Load) and item.buffer in written for item in expr.walk()):
            raise self.refuse(
                "the factor uses what the block writes", "it changes on the way", "take the other one"
            )
        return expr

    def _checked(self, block: Block, expr: Expr) -> tuple[int, ...]:
        used = {n for n, item in enumerate(block.iters) if item.var.name in variables(expr)}
        static = all(int_of(item.extent) is not None for item in block.iters)
        if set(self.axes) != used or len(self.axes) != len(used) or not static:
            numbers = ", ".join(map(str, sorted(used)))
            raise self.refuse(
                f"axes {self.axes} do not make a buffer for it",
                f"the factor depends on iterations {numbers}; each is needed once, with a known extent",
                f"give {numbers} in any order",
            )
        return self.axes
