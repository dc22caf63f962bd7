"""Extents that a library with free dimensions is run with: as asked for, as inputs have them, or by the run.

A free batch has 1, 3, 5 samples and so on, run after run. What has a largest extent by which memory is laid
out is tried at that first, then at its least, then between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.runtime.manifest import plan_for
from compiler.runtime.specs import SymbolicDim, TensorSpec, extents_of
from compiler.runtime.tensors import Array


@dataclass(frozen=True, slots=True)
class Sum:
    """An extent as the manifest has it: offset and each factor times its symbol, by divisor, rounded down."""

    factors: tuple[int, ...]
    offset: int
    divisor: int

    def of(self, symbols: Sequence[int]) -> int:
        """The extent for these extents of the symbols."""
        return (self.offset + sum(f * n for f, n in zip(self.factors, symbols, strict=True))) // self.divisor


@dataclass(frozen=True, slots=True)
class Sizes:
    """How the inputs of a library may differ from run to run; extents by number of the library's symbol.

    ranges: those that have a least and a largest extent worth trying. derived: those that follow from others.
    asked: those that the user gave. further: to be tried behind these, for kernels that only some sizes have.
    """

    ranges: frozenset[int] = frozenset()
    derived: Mapping[int, Sum] = field(default_factory=dict)
    asked: Mapping[int, int] = field(default_factory=dict)
    further: tuple[Mapping[int, int], ...] = ()

    @property
    def tries(self) -> int:
        """In how many runs there is something new to try."""
        return self._general_tries + len(self.further)

    @property
    def _general_tries(self) -> int:
        return 3 if self.ranges - self.asked.keys() else 2

    def extents(self, specs: Sequence[TensorSpec], given: Mapping[str, Array], run: int) -> dict[int, int]:
        """The extent of each symbol of inputs in a run, of which `given` are there already."""
        found = dict(self.asked)
        for spec in specs:
            shape = given[spec.name].shape if spec.name in given else ()
            for dim, extent in zip(spec.shape, shape, strict=False):
                if isinstance(dim, SymbolicDim) and dim.symbol not in self.derived:
                    found.setdefault(dim.symbol, extent)
        at = run - self._general_tries
        for number, extent in (self.further[at] if 0 <= at < len(self.further) else {}).items():
            found.setdefault(number, extent)
        for dim in _symbolic(specs):
            if dim.symbol not in self.derived and dim.symbol not in found:
                found[dim.symbol] = self._by_run(dim, run)
        follows = {
            number: extent.of([found.get(symbol, 0) for symbol in range(len(extent.factors))])
            for number, extent in self.derived.items()
        }
        return found | follows

    def _by_run(self, dim: SymbolicDim, run: int) -> int:
        least = max(dim.minimum, dim.divisor) if dim.symbol not in self.ranges else dim.minimum
        if dim.symbol not in self.ranges:
            return min(dim.maximum, least + 2 * run * dim.divisor)
        if run < 2:
            return least if run else dim.maximum
        between = int((dim.maximum - least) * _spread(run - 1 + dim.symbol))
        return least + between // dim.divisor * dim.divisor


def _spread(number: int) -> float:
    """1/2, 1/4, 3/4, 1/8, 5/8 and so on for 1, 2, 3 ...: the sequence of van der Corput."""
    found, part = 0.0, 0.5
    while number:
        found, part, number = found + part * (number & 1), part / 2, number >> 1
    return found


def _symbolic(specs: Sequence[TensorSpec]) -> Iterator[SymbolicDim]:
    yield from (dim for spec in specs for dim in spec.shape if isinstance(dim, SymbolicDim))


def plan_of(
    manifest: Mapping[str, Any], specs: Sequence[TensorSpec], feeds: Mapping[str, Array]
) -> Mapping[str, Any]:
    """What the manifest says of the plan that runs with these inputs: `steps`, `flops`, memory."""
    return plan_for(manifest, extents_of(specs, [feeds[one.name] for one in specs]))


def samples_of(manifest: Mapping[str, Any], specs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> int:
    """How many samples of a free batch these inputs have; kernels do for each what the manifest says."""
    if not manifest.get("batch"):
        return 1
    return extents_of(specs, [feeds[one.name] for one in specs])[0]


def free_names(manifest: Mapping[str, Any]) -> list[str]:
    """What the model calls the dimensions that a run decides, by the library's number of them."""
    batch = manifest.get("batch")
    return [*([batch["name"]] if batch else []), *(one["name"] for one in manifest.get("symbols", ()))]


def sizes_of(
    manifest: Mapping[str, Any],
    specs: Sequence[TensorSpec],
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Sizes:
    """The sizes of the library with this manifest and these inputs.

    dims: extents by what the model calls a dimension; shapes: those of inputs. Raises UsageError for a name
    that there is not, for a shape that does not fit, and for two extents of one dimension.
    """
    names, first = free_names(manifest), 1 if manifest.get("batch") else 0
    symbols = enumerate(manifest.get("symbols", ()), first)
    counted = {number for number, one in symbols if one.get("counted")}
    ranges = frozenset(range(first, len(names))) - counted
    asked: dict[int, int] = {}
    for name, extent in (dims or {}).items():
        if name not in names or names.index(name) in counted:
            hint = did_you_mean(name, names) or f"free dimensions: {', '.join(map(repr, names)) or 'none'}"
            raise UsageError(f"the library has no free dimension {name!r}", where="--dim", hint=hint)
        asked[names.index(name)] = extent
    derived = _derived(manifest, specs, first)
    for name, shape in (shapes or {}).items():
        for number, extent in _of_shape(name, shape, specs).items():
            if number not in derived and asked.setdefault(number, extent) != extent:
                why = f"it is {asked[number]} elsewhere, and {extent} here"
                raise UsageError("a dimension has two extents", where=f"--shape {name}", why=why)
    further = (item for item in _of_specialisations(manifest) if not item.keys() <= asked.keys())
    return Sizes(ranges, derived, asked, tuple(further))


def _of_specialisations(manifest: Mapping[str, Any]) -> Iterator[dict[int, int]]:
    """For each specialisation its largest and least sizes, and those beyond, of what it narrows."""
    batch = manifest.get("batch")
    general = [(1, batch["largest"], 1)] if batch else []
    general += [(one["minimum"], one["maximum"], one.get("step", 1)) for one in manifest.get("symbols", ())]
    for one in manifest.get("specialisations", ()):
        pairs = enumerate(zip(one["ranges"], general, strict=True))
        narrowed = {n: (own, of) for n, (own, of) in pairs if tuple(own) != of[:2]}
        largest = {n: most for n, ((_, most), _) in narrowed.items()}
        least = {n: low for n, ((low, _), _) in narrowed.items()}
        beyond = {n: min(most + step, high) for n, ((_, most), (_, high, step)) in narrowed.items()}
        yield largest
        yield from (item for item in (least, beyond) if item != largest)


def _derived(manifest: Mapping[str, Any], specs: Sequence[TensorSpec], first: int) -> dict[int, Sum]:
    """What the manifest says of extents that are no symbol alone, by the library's number of them."""
    count = first + len(manifest.get("symbols", []))
    entries = {one["name"]: one.get("extents", ()) for one in manifest.get("inputs", ())}
    found = {}
    for spec in specs:
        for dim, extent in zip(spec.shape, entries.get(spec.name, ()), strict=False):
            if isinstance(dim, SymbolicDim) and extent and dim.symbol >= count:
                factors = (*(0 for _ in range(first)), *extent["factors"])
                found[dim.symbol] = Sum(factors, extent["offset"], extent["divisor"])
    return found


def _of_shape(name: str, shape: Sequence[int], specs: Sequence[TensorSpec]) -> dict[int, int]:
    spec = next((one for one in specs if one.name == name), None)
    if spec is None:
        names = [one.name for one in specs]
        hint = did_you_mean(name, names) or f"inputs: {', '.join(map(repr, names))}"
        raise UsageError(f"the model has no input {name!r}", where="--shape", hint=hint)
    pairs = list(zip(shape, spec.shape, strict=False))
    if len(shape) != len(spec.shape) or any(isinstance(dim, int) and n != dim for n, dim in pairs):
        why = f"the library takes {','.join(map(str, spec.shape))}"
        raise UsageError(f"input {name!r} cannot be {','.join(map(str, shape))}", where="--shape", why=why)
    return {dim.symbol: n for n, dim in pairs if isinstance(dim, SymbolicDim)}
