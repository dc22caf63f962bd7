"""What is a chain of layers: sums, each of which reads what the one before made, once for each term."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from compiler.loops.index_map import AXES, fused
from compiler.loops.ir import CONSTANT, Buffer, Expr, Iter, Load, Var
from compiler.loops.queries import extent_of, static_shape, variables
from compiler.schedule.primitives.operand import factors
from compiler.schedule.program import Program, Site
from compiler.schedule.rules.threads.chain_cost import Layer


@dataclass(frozen=True, slots=True)
class Axis:
    """An iteration of a sum, or a dimension of what it makes, by number, with its extent."""

    number: int
    extent: int


@dataclass(frozen=True, slots=True)
class Link:
    """A sum of a chain, with its axes of more than one element.

    samples, rows, terms: iterations of the block. sample_dims, row_dims: where samples and rows are in what
    it makes, in the same order. operand: the factor that reads the sum before; None in the first sum. read:
    what else is read for each term.
    """

    name: str
    samples: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    terms: tuple[Axis, ...]
    sample_dims: tuple[Axis, ...]
    row_dims: tuple[Axis, ...]
    operand: int | None
    read: Buffer | None

    @property
    def layer(self) -> Layer:
        """The sizes of one sample."""
        bits = 0 if self.read is None else self.read.dtype.bits
        known = self.read is not None and self.read.scope == CONSTANT
        return Layer(count(self.rows), count(self.terms), bits, known)

    @property
    def numbers(self) -> tuple[Expr, Expr, Expr]:
        """Number of the sample, of the result in it and of the term, in terms of the iterations as `AXES`."""
        return _number(self.samples), _number(self.rows), _number(self.terms)

    @property
    def dims(self) -> tuple[Expr, Expr]:
        """Number of the sample and of the result in it, in terms of the dimensions of what is made."""
        return _number(self.sample_dims), _number(self.row_dims)


def count(axes: Sequence[Axis]) -> int:
    """Combinations of places along axes."""
    return math.prod(axis.extent for axis in axes)


def _number(axes: Sequence[Axis]) -> Expr:
    return fused([(AXES[axis.number], axis.extent) for axis in axes])


def reads_along_terms(program: Program, link: Link) -> bool:
    """Whether the terms of a sum lie side by side, as lanes take them, or can be laid so."""
    site = program.site(link.name)
    terms = {site.block.iters[axis.number].var.name for axis in link.terms}
    last = [load.indices[-1] for load in site.loads if load.buffer == link.read and load.indices]
    return link.layer.known or any(variables(index) & terms for index in last)


def find_chain(program: Program) -> list[Link]:
    """All sums of a program, in order, as a chain; none where they are not one, or fewer than two."""
    sums = [site for site in program.sites.values() if site.is_store and site.reduce]
    if len(sums) < 2 or any(len(program.readers(site.target)) != 1 for site in sums[:-1]):
        return []
    reads = [_read(site, before) for before, site in pairwise(sums)]
    if any(read is None for read in reads):
        return []
    links = [_link(*each) for each in zip(sums, (None, *reads), (*reads, None), strict=True)]
    return [link for link in links if link is not None] if None not in links else []


@dataclass(frozen=True, slots=True)
class _Read:
    """How a sum reads the one before: which factor does, and what it has along the wide dimensions.

    dims: of what is read, by the names of the iterations that go along them.
    """

    operand: int
    dims: dict[str, Axis]
    terms: frozenset[str]

    @property
    def samples(self) -> frozenset[str]:
        """Iterations that the sum before has, too."""
        return frozenset(self.dims) - self.terms


def _read(site: Site, before: Site) -> _Read | None:
    """How a sum of products reads the result of another one, once for each sample and term."""
    parts = factors(site.block) or ()
    mine = {
        (number, item)
        for number, factor in enumerate(parts)
        for item in factor.walk()
        if isinstance(item, Load) and item.buffer.name == before.target
    }
    if len(mine) != 1:
        return None
    ((operand, load),) = mine
    dims = _along(load.indices, static_shape(load.buffer))
    terms = frozenset(_wide(site.reduce))
    if dims is None or not terms or not terms <= dims.keys():
        return None
    same = set(dims) == variables(parts[operand]) & {*_wide(site.spatial), *terms}
    return _Read(operand, dims, terms) if same else None


def _wide(iters: Sequence[Iter]) -> list[str]:
    return [item.var.name for item in iters if extent_of(item.extent) > 1]


def _along(indices: Sequence[Expr], shape: Sequence[int]) -> dict[str, Axis] | None:
    """The wide dimensions by the variables that are their indices; None for other places."""
    found: dict[str, Axis] = {}
    for number, (index, extent) in enumerate(zip(indices, shape, strict=True)):
        if extent == 1:
            continue
        if not isinstance(index, Var) or index.name in found:
            return None
        found[index.name] = Axis(number, extent)
    return found


def _link(site: Site, own: _Read | None, behind: _Read | None) -> Link | None:
    """A sum with the roles of its axes: as it reads the one before, and as the one behind reads it."""
    dims = _along(site.store.indices, static_shape(site.store.buffer))
    if dims is None or set(dims) != set(_wide(site.spatial)):
        return None
    shared = () if behind is None else {behind.dims[name] for name in behind.samples}
    samples = {name for name, dim in dims.items() if dim in shared} if own is None else own.samples
    if len(samples) > 1 or (behind is not None and {dims[name] for name in samples} != shared):
        return None
    numbers = {item.var.name: Axis(n, extent_of(item.extent)) for n, item in enumerate(site.block.iters)}
    rows = [name for name in dims if name not in samples]
    terms = _wide(site.reduce) if own is None else [name for name in own.dims if name in own.terms]
    if not terms:
        return None
    return Link(
        site.name,
        tuple(numbers[name] for name in samples),
        tuple(numbers[name] for name in rows),
        tuple(numbers[name] for name in terms),
        tuple(dims[name] for name in samples),
        tuple(dims[name] for name in rows),
        None if own is None else own.operand,
        next((load.buffer for load in site.loads if load.uses >= {*rows, *terms}), None),
    )
