"""Specialisations: some sizes of a model with free dimensions that get kernels of their own (decision 025).

A library has a general graph for all of its sizes, and a specialised one for each of these. A run takes the
first whose sizes hold its own; the narrowest ones come first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.frontend.free_dims import FreeDims, Given, SymbolSum
from compiler.graph.convert import LaidOut
from compiler.graph.ir import Graph, Symbol
from compiler.reports import CompileOptions, SizeRange, SpecialisedSizes
from compiler.stages.plan_tensors import plan_states
from compiler.stages.states import states_of


@dataclass(frozen=True, slots=True)
class Specialised:
    """A graph for some sizes: those in the ranges of each symbol of the general graph, a free batch first."""

    graph: Graph
    ranges: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class Imported:
    """A model for all its sizes, and for some of them, the narrowest first."""

    general: Graph
    specialised: tuple[Specialised, ...] = ()

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All of them, the general one first."""
        return (self.general, *(one.graph for one in self.specialised))


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Values or ranges of the symbols that are narrower than those of the library; ranges has them all."""

    values: Mapping[str, Given]
    ranges: tuple[Symbol, ...]

    @property
    def count(self) -> int:
        """How many sizes that are."""
        return prod((item.maximum - item.minimum) // item.step + 1 for item in self.ranges)


def _symbols(graph: Graph, dims: FreeDims) -> tuple[Symbol, ...]:
    """The symbols by the names that `dims` has for them, a free batch first."""
    batch = (Symbol(dims.batch, 1, graph.batch.largest),) if graph.batch is not None else ()
    return (*batch, *graph.symbols)


def specialised_sizes(graph: Graph, dims: FreeDims, options: CompileOptions) -> tuple[_Sizes, ...]:
    """The sizes of each specialisation of the general graph, the narrowest first.

    Raises UsageError for names that there are not, for sizes that are no part of the library's, and for those
    that are there already.
    """
    general = _symbols(graph, dims)
    found: list[_Sizes] = []
    fixed = {name for name, extent in options.dims.items() if isinstance(extent, int)}
    for one in options.specialisations:
        sizes = _narrowed(general, dict(_values(one, dims, fixed)))
        same = next((item for item in found if item.ranges == sizes.ranges), None)
        if same is not None or sizes.ranges == general:
            other = "those of another one" if same is not None else "all that the library has"
            what = f"specialisation for {_text(sizes.ranges)}: these are {other}"
            raise UsageError(what, where="--shape, --dim")
        found.append(sizes)
    return tuple(sorted(found, key=lambda item: item.count))


def check_states(laid_out: Sequence[LaidOut], *, on_device: bool) -> None:
    """Raise UsageError where a context could not go on from what another graph of the library keeps."""
    general, *specialised = (plan_states(one.fused.graph, states_of(one)) for one in laid_out)
    if any(states != general for states in specialised):
        what = "a specialisation for one size of what the model keeps from run to run"
        why = "a context has to go on from it with all kernels"
        hint = "leave the dimension of what was before open: specialise for the number of new places"
        raise UsageError(what, where="--shape, --dim", why=why, hint=hint)
    if specialised and general and on_device:
        what = "specialisations of a model that keeps states, on a device"
        why = "states stay in the device's memory, as one of the plans has them"
        raise UsageError(what, where="--shape, --dim", why=why, hint="give one range, or compile for `cpu`")


def _narrowed(general: Sequence[Symbol], asked: Mapping[str, Given]) -> _Sizes:
    """All ranges, those that were asked for in the place of the library's."""
    values: dict[str, Given] = {}
    ranges = []
    for symbol in general:
        given = asked.get(symbol.name, (symbol.minimum, symbol.maximum))
        least, most = (given, given) if isinstance(given, int) else given
        low, high = -(-least // symbol.step) * symbol.step, most // symbol.step * symbol.step
        if least < symbol.minimum or most > symbol.maximum or low > high:
            steps = f" in steps of {symbol.step}" if symbol.step > 1 else ""
            raise UsageError(
                f"specialisation for {symbol.name}={_range_text(least, most)}: not among the library's sizes",
                where="--shape, --dim",
                why=f"it has {symbol.name} from {symbol.minimum} to {symbol.maximum}{steps}",
                hint="give the range of all sizes first, then some of them",
            )
        if not symbol.counted:
            values[symbol.name] = low if low == high else (low, high)
        ranges.append(Symbol(symbol.name, low, high, symbol.step))
    return _Sizes(values, tuple(ranges))


def _values(asked: SpecialisedSizes, dims: FreeDims, fixed: Collection[str]) -> Iterator[tuple[str, Given]]:
    """What sizes of inputs and symbols say of symbols; raises UsageError where two of them differ."""
    found: dict[str, Given] = {}
    for name, item in (*_of_shapes(asked, dims), *_of_dims(asked, dims, fixed)):
        if found.setdefault(name, item) != item:
            both = " and ".join(_given_text(one) for one in (found[name], item))
            raise UsageError(f"a specialisation has {both} for {name!r}", where="--shape, --dim")
    yield from found.items()


def _of_dims(asked: SpecialisedSizes, dims: FreeDims, fixed: Collection[str]) -> Iterator[tuple[str, Given]]:
    for name, extent in asked.dims.items():
        if name in fixed:
            hint = "give the range of all sizes first, then some of them"
            raise UsageError(f"{name!r} has one size only", where=f"--dim {name}", hint=hint)
        if name not in dims.symbols:
            hint = did_you_mean(name, dims.symbols) or f"free are {', '.join(map(repr, dims.symbols))}"
            what = f"{name!r} is no free dimension of the library"
            raise UsageError(what, where=f"--dim {name}", hint=hint)
        yield name, _given(extent)


def _of_shapes(asked: SpecialisedSizes, dims: FreeDims) -> Iterator[tuple[str, Given]]:
    inputs = {one.name: extents for one, extents in dims.inputs}
    for name, shape in asked.shapes.items():
        where = f"--shape {name}"
        if name not in inputs:
            hint = did_you_mean(name, inputs) or f"free dimensions have {', '.join(map(repr, inputs))}"
            raise UsageError(f"{name!r} is no input with free dimensions", where=where, hint=hint)
        if len(shape) != len(inputs[name]):
            what = f"input {name!r} has {len(inputs[name])} dimensions, not {len(shape)}"
            raise UsageError(what, where=where)
        for axis, (extent, item) in enumerate(zip(shape, inputs[name], strict=True)):
            if isinstance(item, SymbolSum) and len(item.symbols) == 1 and not item.number:
                yield item.symbols[0], _given(extent)
            elif item != extent:
                why = f"it is {item if isinstance(item, int) else _sum_text(item)} in all of the library"
                raise UsageError(f"dimension {axis} of {name!r} cannot be specialised", where=where, why=why)


def _given(extent: int | SizeRange) -> Given:
    return extent if isinstance(extent, int) else (extent.minimum, extent.maximum)


def _sum_text(item: SymbolSum) -> str:
    return " + ".join([*item.symbols, *([str(item.number)] if item.number else [])])


def _text(ranges: Sequence[Symbol]) -> str:
    return ", ".join(f"{item.name}={_range_text(item.minimum, item.maximum)}" for item in ranges)


def _given_text(given: Given) -> str:
    return _range_text(given, given) if isinstance(given, int) else _range_text(*given)


def _range_text(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}..{most}"
