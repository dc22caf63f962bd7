"""Primitives about padding: decompose_padding, pad_einsum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from compiler.loops.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Func,
    Iter,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    all_of,
    const,
    minimum,
    seq,
)
from compiler.loops.linear import operands
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute
from compiler.schedule.nest import own_loops
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.primitives.operand import unconverted
from compiler.schedule.program import Fresh, Program, Site, outer_blocks, ranges
from compiler.schedule.rewriting import (
    copying,
    declared,
    fresh_iters,
    name_of,
    nest_of,
    replace_statements,
    update_of,
    use_buffer,
)

Range = tuple[int, int]
"""First value and end."""


def _extents(block: Block) -> dict[str, int] | None:
    found = {item.var.name: int_of(item.extent) for item in block.iters}
    known = {name: extent for name, extent in found.items() if extent is not None}
    return known if len(known) == len(found) else None


@dataclass(frozen=True, slots=True)
class DecomposePadding(Primitive[tuple[str, ...]]):
    """Part a block that pads into one that copies the interior and blocks that fill the border.

    block: a block alone in its loops whose value is `select(condition, interior, border)`, the condition a
    conjunction of bounds of single iteration variables. The interior keeps the name of the block.
    Outputs: the blocks of the border, for each dimension the part before the interior, then the part behind.
    rewrite: y[i] = select(1 <= i < 9, x[i - 1], 0) -> y[i + 1] = x[i]; y[0] = 0; y[9] = 0
    TVM: decompose_padding (which fills everything first).
    """

    name: ClassVar[str] = "decompose_padding"

    block: str

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        site, fresh = program.site(self.block, self.name), program.namer()
        body, extents = self._select(site.block)
        own = own_loops(site, self.refuse)
        assert isinstance(body.value, Select)
        inside = self._interior(site.block, body.value.cond, extents)
        kept = {loop.var.name for loop in own}
        interior = body.replace(value=body.value.a)
        nests = [self._part(site.block, self.block, inside, interior, fresh, kept)]
        limits: dict[str, Range] = {name: (0, extent) for name, extent in extents.items()}
        for number, item in enumerate(site.block.iters):
            name = item.var.name
            low, high = inside[name]
            for side, part in (("before", (0, low)), ("behind", (high, extents[name]))):
                if part[0] < part[1]:
                    border, filled = fresh(f"{self.block}_{side}{number}"), {**limits, name: part}
                    nests.append(
                        self._part(site.block, border, filled, body.replace(value=body.value.b), fresh)
                    )
            limits[name] = inside[name]
        place = name_of(own[0] if own else site.block)
        made = tuple(block.name for part in nests[1:] for block in outer_blocks(part))
        return replace_statements(program.func, {place: seq(*nests)}), made

    def _select(self, block: Block) -> tuple[Store, dict[str, int]]:
        body, extents = block.body, _extents(block)
        if not isinstance(body, Store) or not isinstance(body.value, Select) or block.is_reduction:
            raise self.refuse(
                "its value is no select",
                "only a block that chooses between an interior and a border can be parted",
                "name a block that pads",
            )
        if extents is None:
            raise self.refuse(
                "it has a symbolic extent", "the border is not known", "compile for a fixed shape"
            )
        return body, extents

    def _interior(self, block: Block, cond: Expr, extents: Mapping[str, int]) -> dict[str, Range]:
        """The box of iterations in which the condition holds."""
        known = Simplifier(ranges(block.iters))
        box = {name: (0, extent) for name, extent in extents.items()}
        for item in operands(known.simplify(cond), "and"):
            if isinstance(item, Const) and item.value:
                continue
            found = _bound(item, known)
            if found is None or found[0] not in box:
                raise self.refuse(
                    "its condition is not a box",
                    "a part of it is no bound of a single iteration variable",
                    "write the condition as first <= i and i < end",
                )
            name, (low, high) = found
            box[name] = (max(box[name][0], low), min(box[name][1], high))
        if any(low >= high for low, high in box.values()):
            raise self.refuse("it has no interior", "the condition never holds", "nothing to decompose")
        return box

    def _part(
        self,
        block: Block,
        name: str,
        box: Mapping[str, Range],
        body: Store,
        fresh: Fresh,
        kept: Collection[str] = (),
    ) -> Stmt:
        """The block over a part of its iterations; its own variables and the loops `kept` keep their name."""
        iters: list[Iter] = []
        values: dict[str, Expr] = {}
        for number, item in enumerate(block.iters):
            low, high = box[item.var.name]
            var = item.var
            if name != self.block:
                loop = fresh(f"{name}_i{number}")
                var = Var(fresh(f"v{loop}"))
            elif isinstance(item.binding, Var) and item.binding.name in kept:
                loop = item.binding.name
            else:
                loop = fresh(var.name.removeprefix("v"))
            iters.append(Iter(var, const(high - low), "spatial", Var(loop)))
            values[item.var.name] = var + low
        known = Simplifier(ranges(iters))
        at = tuple(known.simplify(substitute(item, values)) for item in body.indices)
        value = known.simplify(substitute(body.value, values))
        made = block.replace(name=name, iters=tuple(iters), body=Store(body.buffer, at, value))
        return nest_of(declared(made))


def _bound(cond: Expr, known: Simplifier) -> tuple[str, Range] | None:
    """(variable, the range in which the condition holds) for a bound of one variable."""
    if not isinstance(cond, Binary) or cond.op not in {"lt", "le", "gt", "ge"}:
        return None
    total = known.linear(cond.a).plus(known.linear(cond.b), -1)
    if cond.op in {"gt", "ge"}:
        total = total.times(-1)
    strict = cond.op in {"lt", "gt"}
    if len(total.terms) != 1:
        return None
    ((atom, factor),) = total.terms.items()
    if not isinstance(atom, Var):
        return None
    most = -total.constant - strict  # factor * atom <= most
    far = 1 << 62
    if factor > 0:
        return atom.name, (-far, most // factor + 1)
    return atom.name, (-(most // -factor), far)


# ---------------------------------------------------------------- pad_einsum


@dataclass(frozen=True, slots=True)
class PadEinsum(Primitive[tuple[str, ...]]):
    """Let a sum of products run over extents that are multiples, with zeros behind the end.

    block: a reduction by addition of products, alone in its loops; a padded variable is an index of its own
    wherever it is used. padding: for each iteration variable the multiple that its extent is rounded up to.
    The operands are copied into padded buffers, the result is copied back. repeated: numbers of spatial
    variables behind whose end is the last element again instead of zeros: nothing reads what comes of it.
    Outputs: the blocks that pad the operands, then the block that copies the result.
    rewrite: y[i] += x[i, r] * w[r] -> xp = x and 0; wp = w and 0; yp[i] += xp[i, r] * wp[r]; y = yp
    TVM: pad_einsum.
    """

    name: ClassVar[str] = "pad_einsum"

    block: str
    padding: tuple[int, ...]
    repeated: tuple[int, ...] = ()

    def apply(self, program: Program) -> tuple[Func, tuple[str, ...]]:
        site, fresh = program.site(self.block, self.name), program.namer()
        own = own_loops(site, self.refuse)
        body, new = self._checked(site)
        renamed: dict[str, Buffer] = {}
        before: list[Stmt] = []
        grown = {name for name, extent in new.items() if extent != _extent_in(site.block, name)}
        for access in _accesses(body):
            if access.buffer.name in renamed or not any(variables(i) & grown for i in access.indices):
                continue
            padded = self._padded(fresh, access, new)
            renamed[access.buffer.name] = padded
            if access.buffer != body.buffer:
                before.append(self._fill(fresh, access, padded, site.block))
        after: list[Stmt] = []
        if body.buffer.name in renamed:
            after.append(self._copy_back(fresh, body, renamed[body.buffer.name], site))
        iters = tuple(item.replace(extent=const(new[item.var.name])) for item in site.block.iters)
        core = site.block.replace(iters=iters)
        for old, padded in renamed.items():
            core = use_buffer(core, old, padded)
        func = program.func.replace(allocs=(*program.func.allocs, *renamed.values()))
        nest = seq(*before, _nest_like(own, core), *after)
        made = tuple(block.name for part in (*before, *after) for block in outer_blocks(part))
        return replace_statements(func, {name_of(own[0] if own else site.block): nest}), made

    def _checked(self, site: Site) -> tuple[Store, dict[str, int]]:
        """(the body, the new extents)."""
        block, extents = site.block, _extents(site.block)
        body = block.body
        if not isinstance(body, Store) or not _is_sum_of_products(body) or block.init is None:
            raise self.refuse(
                "it is no sum of products with a start",
                "only there do zeros behind the end change nothing",
                "pad before decompose_reduction, and only sums",
            )
        if extents is None or len(self.padding) != len(extents) or min(self.padding, default=0) < 1:
            raise self.refuse(
                f"padding {self.padding} does not fit its {len(block.iters)} iteration variables",
                "each needs one positive multiple",
                "1 leaves an extent as it is",
            )
        if any(not 0 <= n < len(block.iters) or block.iters[n].kind != "spatial" for n in self.repeated):
            raise self.refuse(
                f"{self.repeated} are not all spatial iteration variables",
                "only results behind the end are read by nobody",
                "leave sums to zeros",
            )
        new = {
            name: -(-extent // multiple) * multiple
            for (name, extent), multiple in zip(extents.items(), self.padding, strict=True)
        }
        self._check_repeats(block, body, {name for name in new if new[name] != extents[name]})
        for access in _accesses(body):
            for index in access.indices:
                grown = {name for name in variables(index) if new[name] != extents[name]}
                if grown and not isinstance(index, Var):
                    raise self.refuse(
                        f"{', '.join(sorted(grown))} is only a part of an index of {access.buffer.name}",
                        "beyond its end other elements would be read",
                        "pad only variables that are indices of their own",
                    )
        return body, new

    def _check_repeats(self, block: Block, body: Store, grown: set[str]) -> None:
        """A longer variable has to pick other elements: of the result, or of an operand that gets zeros."""
        placed = {name for index in body.indices for name in variables(index)}
        used = {name for access in _accesses(body) for index in access.indices for name in variables(index)}
        for item in block.iters:
            if item.var.name in grown - (placed if item.kind == "spatial" else used):
                raise self.refuse(
                    f"{item.var.name} picks no element",
                    "its new iterations would add the same products again",
                    "pad only variables that are indices of their own",
                )

    def _padded(self, fresh: Fresh, access: Load | Store, new: Mapping[str, int]) -> Buffer:
        shape = tuple(
            const(new[index.name]) if isinstance(index, Var) and index.name in new else extent
            for index, extent in zip(access.indices, access.buffer.shape, strict=True)
        )
        name = fresh(f"{access.buffer.name}_padded")
        return Buffer(name, access.buffer.dtype, shape)

    def _fill(self, fresh: Fresh, access: Load | Store, padded: Buffer, block: Block) -> Stmt:
        """The nest that copies an operand and writes zeros behind its end."""
        name = fresh(f"{access.buffer.name}_pad")
        iters = fresh_iters(fresh, name, padded.shape)
        at = tuple(item.var for item in iters)
        repeated = {block.iters[number].var for number in self.repeated}
        inside: Expr | None = None
        places: list[Expr] = []
        for index, var, small, large in zip(
            access.indices, at, access.buffer.shape, padded.shape, strict=True
        ):
            extent = _extent_in(block, index.name) if isinstance(index, Var) else None
            if extent is None or small == large:
                places.append(var)
            elif index in repeated:
                places.append(minimum(var, extent - 1))
            else:
                places.append(var)
                inside = all_of(inside, var.lt(extent))
        value: Expr = Load(access.buffer, tuple(places))
        if inside is not None:
            value = Select(inside, value, const(0, padded.dtype))
        return nest_of(declared(Block(name, iters, (), (), Store(padded, at, value))))

    def _copy_back(self, fresh: Fresh, body: Store, padded: Buffer, site: Site) -> Stmt:
        name = fresh(f"{body.buffer.name}_unpad")
        iters = fresh_iters(fresh, name, [item.extent for item in site.spatial])
        values = {old.var.name: item.var for old, item in zip(site.spatial, iters, strict=True)}
        at = tuple(substitute(item, values) for item in body.indices)
        return nest_of(copying(name, iters, body.buffer, padded, at))


def _extent_in(block: Block, name: str) -> int | None:
    return next((int_of(item.extent) for item in block.iters if item.var.name == name), None)


def _accesses(body: Store) -> list[Load | Store]:
    return [item for item in body.walk() if isinstance(item, Load | Store)]


def _is_sum_of_products(body: Store) -> bool:
    """`y[i] = y[i] + a * b * ...` with loads as factors, as they are or converted (zeros stay zeros)."""
    op, value = update_of(body) or ("", None)
    if op != "add" or value is None:
        return False
    return all(isinstance(unconverted(item), Load) for item in operands(value, "mul"))


def _nest_like(own: Sequence[For], block: Block) -> Stmt:
    """The block under its loops, with the extents that its variables have now."""
    extents = {item.binding.name: item.extent for item in block.iters if isinstance(item.binding, Var)}
    stmt: Stmt = block
    for loop in reversed(own):
        stmt = loop.replace(body=stmt, extent=extents[loop.var.name])
    return stmt
