"""What rules need to know about a block: who reads what, and how far apart neighbours lie in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compiler.core.node import Node
from compiler.loops.ir import Block, Buffer, Const, Expr, For, Func, Iter, Load, Store, Var
from compiler.loops.simplify import Simplifier


def extent_of(expr: Expr) -> int:
    """A constant extent; AssertionError for a symbolic one (symbolic kernels are not scheduled yet)."""
    assert isinstance(expr, Const), f"extent {expr} is not constant"
    return int(expr.value)


def static_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape of a buffer whose extents are constants."""
    return tuple(extent_of(item) for item in buffer.shape)


def variables(node: Node) -> frozenset[str]:
    """Names of all variables in an expression or statement."""
    return frozenset(item.name for item in node.walk() if isinstance(item, Var))


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


def loop_over(func: Func, name: str) -> For:
    """The loop whose variable is called `name`; KeyError when there is none."""
    for item in func.body.walk():
        if isinstance(item, For) and item.var.name == name:
            return item
    raise KeyError(name)


def loops_around(func: Func, block: str) -> Iterator[For]:
    """The loops around a block, outermost first."""
    path: list[For] = []

    def visit(item: Node) -> bool:
        if isinstance(item, Block):
            return item.name == block
        if isinstance(item, For):
            path.append(item)
        if any(visit(child) for child in item.children() if not isinstance(child, Expr)):
            return True
        if isinstance(item, For):
            path.pop()
        return False

    visit(func.body)
    return iter(path)


def extents(func: Func) -> Mapping[str, int]:
    """Extent of every loop by name."""
    return {item.var.name: extent_of(item.extent) for item in func.body.walk() if isinstance(item, For)}
