"""The primitive that takes a factor out of a sum: factor_out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.core.node import IRNode, rewrite_nodes
from compiler.loops.ir import Binary, Block, Const, Expr, Func, Load, Store, Var, const
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import substitute
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program, Site
from compiler.schedule.rewriting import declared, replace_statements, update_of


@dataclass(frozen=True, slots=True)
class FactorOut(Primitive[None]):
    """Multiply a sum of products once by a factor that all of them share.

    block: a block of the form C += a * f * b, from 0, where f depends on spatial iterations only. C is a
    local buffer; the blocks that read it multiply what they read by f. As other rearrangements of sums do, it
    changes how results are rounded. Outputs: none.
    rewrite: C[i] += x[i, k] * f[i] * w[k]; y[i] = g(C[i]) -> C[i] += x[i, k] * w[k]; y[i] = g(C[i] * f[i])
    LLVM: reassociate. TVM: -.
    """

    name: ClassVar[str] = "factor_out"

    block: str

    def apply(self, program: Program) -> tuple[Func, None]:
        site = program.site(self.block, self.name)
        shared, kept = self._parts(site)
        readers = self._readers(program, site, shared)
        store = site.body
        own = Load(store.buffer, store.indices)
        changed = {
            self.block: declared(site.block.replace(body=store.replace(value=Binary("add", own, kept)))),
            **{reader.name: self._multiplied(site, reader, shared) for reader in readers},
        }
        return replace_statements(program.func, changed), None

    def _parts(self, site: Site) -> tuple[Expr, Expr]:
        """The shared factor, and the product of the others."""
        op, value = (update_of(site.block.body) or ("", None)) if site.is_store else ("", None)
        init = site.block.init
        zero = isinstance(init, Store) and isinstance(init.value, Const) and init.value.value == 0
        if op != "add" or value is None or not site.reduce or not zero:
            raise self.refuse(
                "it is no sum of products",
                "its body is not of the form C = C + a * b, from 0",
                "name a block that adds up products",
            )
        steps = {item.var.name for item in site.reduce}
        shared: list[Expr] = []
        kept: list[Expr] = []
        for factor in _factors(value):
            (kept if variables(factor) & steps else shared).append(factor)
        if not shared or not kept:
            raise self.refuse(
                "its products share no factor",
                f"every factor depends on {', '.join(sorted(steps))}" if kept else "nothing would be left",
                "leave it as it is",
            )
        return _product(shared), _product(kept)

    def _readers(self, program: Program, site: Site, shared: Expr) -> list[Site]:
        """The blocks that read the sums; refuses where they cannot multiply by the factor."""
        target = site.target
        if target in program.outputs or len(program.writers(target)) != 1:
            raise self.refuse(
                f"{target} is seen elsewhere",
                "it is an output, or another block writes it, too",
                "use cache_write first",
            )
        indices = [index for index in site.store.indices if not isinstance(index, Const)]
        loose = len(set(indices)) != len(indices) or not all(isinstance(index, Var) for index in indices)
        free = [item for item in site.spatial if item.var not in indices and int_of(item.extent) != 1]
        if loose or free:
            raise self.refuse(
                f"the iterations of its result {target} are not its indices",
                "a reader could not tell which factor belongs to an element",
                "factor out before layouts change",
            )
        readers = list(program.readers(target))
        used = {item.buffer.name for item in shared.walk() if isinstance(item, Load)}
        last = max((reader.order for reader in readers), default=0)
        for other in program.sites.values():
            if site.order < other.order <= last and any(other.writes(name) for name in used):
                raise self.refuse(
                    f"{other.name} changes the factor before the sums are read",
                    f"it writes one of {', '.join(sorted(used))}",
                    "factor out before moving blocks",
                )
        return readers

    def _multiplied(self, site: Site, reader: Site, shared: Expr) -> Block:
        """A reader that multiplies the sums by the factor of their place."""

        def times(item: IRNode) -> Expr | None:
            if not isinstance(item, Load) or item.buffer.name != site.target:
                return None
            places = dict(zip(site.store.indices, item.indices, strict=True))
            values = {one.var.name: places.get(one.var, const(0)) for one in site.spatial}
            return item * substitute(shared, values)

        block = reader.block
        return declared(block.replace(body=rewrite_nodes(block.body, times)))


def _factors(expr: Expr) -> list[Expr]:
    """The factors of a product, of products among them, too."""
    if isinstance(expr, Binary) and expr.op == "mul":
        return [*_factors(expr.a), *_factors(expr.b)]
    return [expr]


def _product(parts: list[Expr]) -> Expr:
    value, *others = parts
    for other in others:
        value = value * other
    return value
