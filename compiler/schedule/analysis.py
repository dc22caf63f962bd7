"""What rules need to know about a block: who reads what, and how far apart neighbours lie in memory."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.loops.ir import Block, Buffer, Expr, Iter, Load, Store, Var
from compiler.loops.queries import extent_of, static_shape, variables
from compiler.loops.simplify import Simplifier


@dataclass(frozen=True, slots=True)
class Access:
    """One read or write of a block."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    @property
    def uses(self) -> frozenset[str]:
        """Variables that the indices depend on."""
        return frozenset(name for index in self.indices for name in variables(index))


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """A block whose body is one store, taken apart."""

    block: Block
    store: Access
    loads: tuple[Access, ...]
    spatial: tuple[Iter, ...]
    reduce: tuple[Iter, ...]

    @property
    def bounds(self) -> dict[str, tuple[int, int]]:
        """Ranges of the iteration variables."""
        return {item.var.name: (0, extent_of(item.extent) - 1) for item in self.block.iters}

    def stride(self, access: Access, name: str) -> int | None:
        """Elements between neighbours along iteration variable `name`; None where it is not affine."""
        return flat_stride(access, name, Simplifier(self.bounds))


def flat_stride(access: Access, name: str, simplifier: Simplifier) -> int | None:
    """Change of the row-major offset of an access when variable `name` grows by one."""
    total, step = 0, 1
    shape = static_shape(access.buffer)
    for index, extent in zip(reversed(access.indices), reversed(shape), strict=True):
        coefficient = _coefficient(index, name, simplifier)
        if coefficient is None:
            return None
        total += coefficient * step
        step *= extent
    return total


def _coefficient(index: Expr, name: str, simplifier: Simplifier) -> int | None:
    if name not in variables(index):
        return 0
    form = simplifier.linear(index)
    found = 0
    for atom, factor in form.terms.items():
        if isinstance(atom, Var) and atom.name == name:
            found = factor
        elif name in variables(atom):
            return None
    return found


def block_facts(block: Block) -> BlockFacts | None:
    """Take a block apart; None when its body is not a single store."""
    if not isinstance(block.body, Store):
        return None
    target = Access(block.body.buffer, block.body.indices)
    loads: dict[Access, None] = {}
    for item in block.body.value.walk():
        if isinstance(item, Load):
            access = Access(item.buffer, item.indices)
            if access != target:
                loads[access] = None
    spatial = tuple(item for item in block.iters if item.kind == "spatial")
    reduce = tuple(item for item in block.iters if item.kind == "reduce")
    return BlockFacts(block, target, tuple(loads), spatial, reduce)
