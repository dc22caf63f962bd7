"""Region inference: which box of a buffer is touched under a loop, and which iterations touch a box.

A `Span` is one dimension of a box: it begins at a sum over outer loop variables and is a known number of
elements long. Spans may be larger than what is really touched; `is_dense` tells when they are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd, inf, isfinite, prod
from typing import TypeAlias

from compiler.loops.ir import Binary, Buffer, Const, Expr, Iter, Region, Var, const
from compiler.loops.linear import Linear, conjuncts, constant_sum, divisor, is_division, single
from compiler.loops.queries import int_of, variables
from compiler.loops.simplify import Simplifier, substitute


@dataclass(frozen=True, slots=True)
class Span:
    """`extent` consecutive values from `begin` on."""

    begin: Linear
    extent: int


@dataclass(frozen=True, slots=True)
class Inner:
    """The variables that move while the others are fixed: name -> number of values.

    `limits` are sums over these variables that are known to stay below a bound (tails of splits), each with a
    variable that stands for it and whose number of values is among the extents.
    """

    extents: Mapping[str, int]
    limits: tuple[tuple[Linear, Var], ...] = ()


def whole(extent: int) -> Span:
    """0..extent."""
    return Span(constant_sum(0), extent)


# ---------------------------------------------------------------- boxes touched under a loop


def relax(value: Linear, inner: Inner, known: Simplifier) -> Span | None:
    """The span of a sum while the inner variables run over their values; None when there is no such span."""
    begin, low, high = constant_sum(value.constant), 0, 0
    for atom, factor in _limited(value, inner).items():
        part = _relax_atom(atom, inner, known)
        if part is None:
            return None
        begin = begin.plus(part.begin, factor)
        reach = (part.extent - 1) * factor
        low, high = low + min(reach, 0), high + max(reach, 0)
    return Span(begin.plus(constant_sum(low)), high - low + 1)


def _limited(value: Linear, inner: Inner) -> dict[Expr, int]:
    """The terms, with sums that are known to stay below a bound gathered in one variable each."""
    terms = dict(value.terms)
    for total, whole_sum in inner.limits:
        first = next(iter(total.terms))
        factor, rest = divmod(terms.get(first, 0), total.terms[first])
        if factor == 0 or rest or any(terms.get(a) != c * factor for a, c in total.terms.items()):
            continue
        for atom in total.terms:
            del terms[atom]
        terms[whole_sum] = factor
    return terms


def _relax_atom(atom: Expr, inner: Inner, known: Simplifier) -> Span | None:
    if isinstance(atom, Var):
        extent = inner.extents.get(atom.name)
        return Span(single(atom), 1) if extent is None else whole(extent)
    names = variables(atom)
    if names.isdisjoint(inner.extents):
        return Span(single(atom), 1)
    if is_division(atom, "floordiv") or is_division(atom, "floormod"):
        return _relax_division(atom, inner, known)
    if names <= inner.extents.keys():
        low, high = known.range(single(atom))
        if isfinite(low) and isfinite(high):
            return Span(constant_sum(low), int(high - low) + 1)
    return None


def _relax_division(atom: Binary, inner: Inner, known: Simplifier) -> Span | None:
    part = relax(known.linear(atom.a), inner, known)
    if part is None:
        return None
    by = divisor(atom)
    step = gcd(by, *part.begin.terms.values())
    largest = by - step + part.begin.constant % step  # largest possible remainder of the begin
    if atom.op == "floordiv":
        return Span(known.divide(part.begin, by), (largest + part.extent - 1) // by + 1)
    if largest + part.extent <= by:
        return Span(known.modulo(part.begin, by), part.extent)
    return whole(by)


def wraps(atom: Expr, inner: Inner, known: Simplifier) -> bool:
    """Whether a remainder may go around its modulus while the inner variables move, and leave out values."""
    if not is_division(atom, "floormod") or variables(atom).isdisjoint(inner.extents):
        return False
    part, span = relax(known.linear(atom.a), inner, known), _relax_division(atom, inner, known)
    return part is None or span is None or part.extent < span.extent


def clip(span: Span | None, extent: int, known: Simplifier) -> Span:
    """The part of a span that can lie inside 0..extent."""
    if span is None or span.extent >= extent:
        return whole(extent)
    if span.begin.terms:
        low, high = known.range(span.begin)
        fixed = low == high
        return whole(extent) if fixed and low <= 0 and span.extent + low >= extent else span
    begin = max(0, span.begin.constant)
    end = min(extent, span.begin.constant + span.extent)
    return Span(constant_sum(begin), max(1, end - begin))


def hull(first: Span | None, second: Span | None) -> Span | None:
    """A span around both; None when their distance is not known."""
    if first is None or second is None:
        return None
    apart = second.begin.plus(first.begin, -1)
    if apart.terms:
        return None
    begin = first.begin if apart.constant >= 0 else second.begin
    ends = max(first.extent, apart.constant + second.extent)
    return Span(begin, ends - min(0, apart.constant))


def hulls(boxes: Iterable[list[Span | None]]) -> list[Span | None]:
    """The box around several boxes; empty for none."""
    return [reduce(hull, spans) for spans in zip(*boxes, strict=True)]


def box(region: Region, values: Mapping[str, Expr], inner: Inner, known: Simplifier) -> list[Span | None]:
    """A region with the iteration variables replaced by `values`, relaxed over the inner variables."""
    spans: list[Span | None] = []
    for begin, extent in zip(region.begin, region.extent, strict=True):
        span, length = relax(known.linear(substitute(begin, values)), inner, known), int_of(extent)
        spans.append(None if span is None or length is None else Span(span.begin, span.extent + length - 1))
    return spans


def region_of(buffer: Buffer, spans: Sequence[Span | None], known: Simplifier) -> Region:
    """A box of a buffer; all of a dimension whose span is not known."""
    begin = tuple(const(0) if span is None else known.emit(span.begin) for span in spans)
    pairs = zip(spans, buffer.shape, strict=True)
    extent = tuple(size if span is None else const(span.extent) for span, size in pairs)
    return Region(buffer, begin, extent)


def is_dense(region: Region, values: Mapping[str, Expr], inner: Inner, known: Simplifier) -> bool:
    """Whether the box of a region has no holes, given that different iterations touch different elements."""
    sums = [known.linear(substitute(item, values)) for item in region.begin]
    groups: list[tuple[set[str], list[int]]] = []
    for number, value in enumerate(sums):
        names = {n for atom in _limited(value, inner) for n in variables(atom)}
        moving = {n for n in names if n in inner.extents}
        dims = [number]
        for group in [g for g in groups if not moving.isdisjoint(g[0])]:
            groups.remove(group)
            moving, dims = moving | group[0], group[1] + dims
        groups.append((moving, dims))
    return all(_group_dense(names, dims, sums, region, inner, known) for names, dims in groups)


def _group_dense(
    names: set[str], dims: list[int], sums: list[Linear], region: Region, inner: Inner, known: Simplifier
) -> bool:
    if not names:
        return True
    lengths = [int_of(region.extent[d]) for d in dims]
    if len(dims) == 1 and lengths[0] is not None and _contiguous(sums[dims[0]], lengths[0], inner, known):
        return True
    spans = [relax(sums[d], inner, known) for d in dims]
    points = prod(inner.extents[n] for n in names)
    return all(n == 1 for n in lengths) and prod(0 if s is None else s.extent for s in spans) == points


def _contiguous(value: Linear, length: int, inner: Inner, known: Simplifier) -> bool:
    """Whether the values of the sum, each `length` long, leave no gaps."""
    steps = []
    for atom, factor in _limited(value, inner).items():
        span = _relax_atom(atom, inner, known)
        pace = _pace(atom, inner, known)
        if span is None or pace is None:
            return False
        if span.extent > 1:
            steps.append((abs(factor) * pace, abs(factor) * (span.extent - 1)))
    reach = length
    for step, distance in sorted(steps):
        if step > reach:
            return False
        reach += distance
    return True


def _pace(atom: Expr, inner: Inner, known: Simplifier) -> int | None:
    """The largest distance between neighbouring values of an atom; None when it is not known."""
    if isinstance(atom, Var) or variables(atom).isdisjoint(inner.extents):
        return 1
    if isinstance(atom, Binary) and atom.op in {"min", "max"} and isinstance(atom.b, Const):
        terms = list(known.linear(atom.a).terms.items())  # the last tile of a split with tail `shift`
        if len(terms) == 1 and isinstance(terms[0][0], Var):
            return abs(terms[0][1])
    return None


def limits_of(predicate: Expr | None, inner: Mapping[str, int], known: Simplifier) -> Inner:
    """The inner variables with what a predicate says about them alone."""
    extents, bounds = dict(inner), dict[str, int]()
    limits: list[tuple[Linear, Var]] = []
    for cond in conjuncts(predicate):
        found = _upper_bound(cond, known)
        if found is None or not all(isinstance(a, Var) and a.name in inner for a in found[0].terms):
            continue
        total, bound = found
        if len(total.terms) == 1:
            ((atom, factor),) = total.terms.items()
            assert isinstance(atom, Var)
            if factor > 0:
                extents[atom.name] = max(1, min(extents[atom.name], (bound - 1) // factor + 1))
        elif bound > 0 and (count := _count_from_zero(total, extents, known)) is not None:
            limits.append((total, Var(f"#{len(limits)}")))
            bounds[f"#{len(bounds)}"] = min(bound, count)
    return Inner({**extents, **bounds}, tuple(limits))


def _count_from_zero(total: Linear, extents: Mapping[str, int], known: Simplifier) -> int | None:
    """How many values a sum takes when they are 0, 1, 2 ... without gaps, else None."""
    inner = Inner(extents)
    span = relax(total, inner, known)
    gapless = span is not None and span.begin == constant_sum(0) and _contiguous(total, 1, inner, known)
    return span.extent if span is not None and gapless else None


def _upper_bound(cond: Expr, known: Simplifier) -> tuple[Linear, int] | None:
    """`(sum, bound)` for a condition `sum < bound`."""
    if not isinstance(cond, Binary) or cond.op not in {"lt", "le"}:
        return None
    difference = known.linear(cond.a).plus(known.linear(cond.b), -1)
    bound = -difference.constant + (cond.op == "le")
    return (Linear(difference.terms, 0), bound) if difference.terms else None


# ---------------------------------------------------------------- iterations that touch a box


Dimension: TypeAlias = tuple[Linear, int, Span]
"""Where a dimension begins, in terms of iteration variables, how long it is, and the span it is to touch."""


def dimensions(region: Region, target: Sequence[Span], known: Simplifier) -> list[Dimension]:
    """The dimensions of a region that is to touch a box."""
    pairs = zip(region.begin, region.extent, target, strict=True)
    return [(known.linear(begin), int_of(extent) or 1, span) for begin, extent, span in pairs]


def solve(dims: Iterable[Dimension], iters: Sequence[Iter], known: Simplifier) -> dict[str, Span]:
    """Spans of iteration variables such that every iteration that touches the target box is inside.

    Variables that the box says nothing about are missing from the result.
    """
    found: dict[str, Span] = {}
    digits: dict[str, dict[str, tuple[int, Span]]] = {}
    for begin, length, span in dims:
        wide = Span(span.begin.plus(constant_sum(1 - length)), span.extent + length - 1)
        _solve_dimension(begin, wide, {i.var.name for i in iters}, known, found, digits)
    for name, parts in digits.items():
        joined = _from_digits(parts)
        if joined is not None:
            keep_smaller(found, name, joined)
    return found


def _solve_dimension(
    begin: Linear,
    span: Span,
    names: set[str],
    known: Simplifier,
    found: dict[str, Span],
    digits: dict[str, dict[str, tuple[int, Span]]],
) -> None:
    for atom, factor in sorted(begin.terms.items(), key=lambda item: -abs(item[1])):
        solved = _solve_atom(begin, atom, factor, span, known)
        if solved is None:
            continue
        if isinstance(atom, Var) and atom.name in names:
            keep_smaller(found, atom.name, solved)
            if solved.extent == 1:  # of a number in several digits, the next ones are what this one leaves
                begin = begin.plus(single(atom), -factor)
                span = Span(_remainders(span.begin.plus(solved.begin, -factor), known), span.extent)
        elif (
            len(begin.terms) == 1
            and (is_division(atom, "floordiv") or is_division(atom, "floormod"))
            and isinstance(atom.a, Var)
        ):
            digits.setdefault(atom.a.name, {})[atom.op] = (divisor(atom), solved)


def _remainders(value: Linear, known: Simplifier) -> Linear:
    """The sum with `a - a // n * n` as `a % n`, whose range is known; `a // n % m` is of `a % (n * m)`."""
    for atom, factor in value.terms.items():
        if is_division(atom, "floordiv"):
            by, number = divisor(atom), atom.a
            terms = known.linear(number)
        elif is_division(atom, "floormod") and is_division(atom.a, "floordiv"):
            by = divisor(atom.a)
            number = Binary("floormod", atom.a.a, const(by * divisor(atom)))
            terms = single(number)
        else:
            continue
        times, left = divmod(-factor, by)
        rest = value.plus(single(atom), -factor).plus(terms, -times)
        if left == 0 and len(rest.terms) < len(value.terms) - 1:
            return rest.plus(single(_remainder(number, by)), times)
    return value


def _remainder(number: Expr, by: int) -> Expr:
    """`number % by`; of what it is a remainder of itself, where that comes to the same."""
    if is_division(number, "floormod") and divisor(number) % by == 0:
        number = number.a
    return Binary("floormod", number, const(by))


def _solve_atom(begin: Linear, atom: Expr, factor: int, span: Span, known: Simplifier) -> Span | None:
    """Values of `atom` for which `begin`, whose other atoms are free, can lie in the span."""
    rest = begin.plus(single(atom), -factor)
    low, high = known.range(rest)
    if low == -inf or high == inf:
        return None
    first = span.begin.plus(constant_sum(-high))
    count = span.extent + int(high - low)
    if factor < 0:
        first, factor = first.plus(constant_sum(count - 1)).times(-1), -factor
    if all(c % factor == 0 for c in first.terms.values()):
        skipped = -first.constant % factor
        extent = (count - 1 - skipped) // factor + 1
    else:
        extent = (count - 1) // factor + 1
    return Span(known.divide(first.plus(constant_sum(factor - 1)), factor), max(1, extent))


def _from_digits(parts: Mapping[str, tuple[int, Span]]) -> Span | None:
    """The span of `v` from what is known about `v // m` and `v % m`."""
    if "floordiv" not in parts:
        return None
    by, quotient = parts["floordiv"]
    remainder = parts.get("floormod")
    begin = quotient.begin.times(by)
    if quotient.extent == 1 and remainder is not None and remainder[0] == by:
        return Span(begin.plus(remainder[1].begin), remainder[1].extent)
    return Span(begin, quotient.extent * by)


def keep_smaller(found: dict[str, Span], name: str, span: Span) -> None:
    """Let a variable run over a span, or over the smaller one that it has already."""
    if name not in found or span.extent < found[name].extent:
        found[name] = span


def within(value: Linear, length: int, span: Span, known: Simplifier) -> list[Expr]:
    """The conditions, not provable, under which `value..value+length` lies inside the span."""
    below = known.emit(value.plus(span.begin, -1))
    above = known.emit(value.plus(span.begin, -1).plus(constant_sum(length)))
    conditions = [
        known.simplify(Binary("ge", below, const(0))),
        known.simplify(Binary("le", above, const(span.extent))),
    ]
    return [item for item in conditions if not (isinstance(item, Const) and item.value)]


def covers(outer: Iterable[Span], inner: Iterable[Span | None], known: Simplifier) -> bool:
    """Whether a box provably contains another."""
    return all(
        b is not None and not within(b.begin, b.extent, a, known) for a, b in zip(outer, inner, strict=True)
    )


# ---------------------------------------------------------------- iterations that are executed


def executed(
    iters: Sequence[Iter], groups: Sequence[tuple[Linear, Sequence[Iter]]], inner: Inner, known: Simplifier
) -> dict[str, Span] | None:
    """Where iteration variables run while the inner loops move: spans for those that miss part of a domain.

    groups: sums of loop variables with the variables whose row-major number they are. None when the
    iterations are not known to be a box.
    """
    found: dict[str, Span] = {}
    done: set[str] = set()
    moving: set[str] = set()
    for value, members in groups:
        names = {item.var.name for item in members}
        if not names.isdisjoint(done):
            continue
        own = {n for atom in _limited(value, inner) for n in variables(atom) if n in inner.extents}
        span = relax(value, inner, known)
        if span is None or not own.isdisjoint(moving) or not _contiguous(value, 1, inner, known):
            continue
        size = prod(int_of(item.extent) or 0 for item in members)
        if clip(span, size, known) != whole(size):
            if len(members) > 1:
                continue
            found[members[0].var.name] = span
        done |= names
        moving |= own
    return found if done == {item.var.name for item in iters} else None
