"""Import of a model with free dimensions: a batch, sizes that a run's inputs have, sizes that a run finds.

A free batch is a loop around what is made for one sample (decision 021). Other dimensions are compiled for
their largest extents, of which a run has a part (decisions 024 and 027).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

from compiler.core.diagnostics import BadInputError, TkError, UsageError
from compiler.frontend.counted import Supposed, count_refusal, counted_symbols
from compiler.frontend.free_dims import NOTHING_FREE, FreeDims, Given, Range, free_dims
from compiler.frontend.onnx import import_model
from compiler.frontend.open_dims import OpenDimensionsError
from compiler.frontend.refusals import UnsupportedModelError
from compiler.frontend.tensors import LIMIT_BYTES
from compiler.graph.extents import packed_ends
from compiler.graph.ir import Batch, Graph, Symbol
from compiler.graph.ops import knowing
from compiler.graph.rewrites import canonical
from compiler.graph.rewrites.sizes import (
    COUNTS,
    FixedSizeError,
    Point,
    UnevenExtentError,
    Witness,
    for_all_sizes,
    try_samples,
)
from compiler.graph.samples import NotSeparateError, check_samples
from compiler.reports import SizeRange
from compiler.stages.job import CompileJob
from compiler.stages.specialised import Imported, Specialised, specialised_sizes

_LARGEST_BATCH = 1 << 16
_LARGEST_SIZE = 512
"""Where neither the model nor the caller says how large a dimension can be."""
_MOST_CLIPPED = 16
_TENSOR_BYTES = 256 << 20
"""No larger tensor for a size that nobody asked for."""
_MANY = 6
"""Symbols, of which a few may be sums; of more there are too many combinations."""
_MULTIPLES = (64, 192, 224)
"""Sizes that models take which take multiples of something only."""
_SMALL = (12, 48, 96, 256)
"""Sizes for experiments, the first that the model can have: windows and strides want some room."""


def import_for_job(job: CompileJob) -> Imported:
    """The model as the options say; what they leave open, or give ranges of, is decided by each run."""
    shapes, dims = _fixed(job.options.shapes), _fixed_dims(job.options.dims)
    try:
        graph = _imported(job, shapes, dims)
    except OpenDimensionsError as error:
        return _Free.of(job, error).imported()
    counted = counted_symbols(graph)
    ranged = [name for name in job.options.shapes if name not in shapes]
    known = {*dims, *(item.name for item in counted)}
    ranged += [name for name in job.options.dims if name not in known]
    if ranged:
        what = f"{ranged[0]!r}: a range for dimensions that the model fixes"
        raise UsageError(what, hint="give ranges for dimensions that the model leaves open")
    if job.options.specialisations:
        what = "several sizes, and no range that holds them"
        hint = "give the range first, as in `--dim tokens=1..512 --dim tokens=128`"
        raise UsageError(what, where="--shape, --dim", hint=hint)
    return _Free(job, None, NOTHING_FREE).imported() if counted else Imported(graph)


@dataclass(frozen=True, slots=True)
class _Free:
    """What is open in a model, and the error that says so where it cannot stay open.

    error: None where inputs are fixed, and only what the run finds is open. clipped: tensors that end at
    a limit.
    """

    job: CompileJob
    error: OpenDimensionsError | None
    dims: FreeDims
    steps: Mapping[str, int] = field(default_factory=dict)
    clipped: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, job: CompileJob, error: OpenDimensionsError) -> _Free:
        """Raises `error` where an input has no rank."""
        found = free_dims(error.inputs, _ranged(job.options.shapes), _ranged_dims(job.options.dims))
        if found is None:
            raise error
        return cls(job, error, found)

    def imported(self) -> Imported:
        """The graph for all sizes, and those for some of them that were asked for."""
        graph, found = self._found()
        kinds = specialised_sizes(graph, found.dims, self.job.options)
        narrowed = [replace(found, dims=found.dims.with_values(one.values)) for one in kinds]
        made = (Specialised(one.attempt(), sizes.ranges) for one, sizes in zip(narrowed, kinds, strict=True))
        return Imported(graph, tuple(made))

    def _found(self) -> tuple[Graph, _Free]:
        """The graph for all sizes, and what it was made from.

        Where sizes do not go together, it may be that a model takes multiples of some only: what is halved
        and doubled has to meet what was not. Or that one size is the sum of two others: exporters give these
        names of their own, too. Raises OpenDimensionsError where there is no such graph.
        """
        try:
            return self.attempt(), self
        except UnsupportedModelError:
            raise
        except (BadInputError, OpenDimensionsError) as found:
            if self.error is None:
                raise self._refusal(f"{found.what}: {found.why}") from found
            steps = self._found_steps()
            if steps:
                stepped = replace(self, steps=steps)
                return stepped.attempt(), stepped
            if isinstance(found, OpenDimensionsError):
                raise
            for dims in self._with_sums():
                with suppress(BadInputError):
                    summed = replace(self, dims=dims)
                    return summed.attempt(), summed
            if any(self.dims.symbols.values()):
                raise  # it is what was asked for that does not do
            raise self._refusal(f"{found.what}: {found.why}") from found

    def _with_sums(self) -> Iterator[FreeDims]:
        """With one of the symbols as another one and a value that was given, or as the sum of two others.

        A batch is no part of sums, and what the caller gave a range is none.
        """
        names = [name for name in self.dims.symbols if name != self.dims.batch]
        given = sorted(set(_fixed_dims(self.job.options.dims).values()))
        for name in names if len(names) <= _MANY else ():
            others = [item for item in names if item != name] if self.dims.symbols[name] is None else []
            for other, number in product(others, given):
                yield self.dims.with_sum(name, (other,), number)
            for terms in combinations(others, 2):
                yield self.dims.with_sum(name, terms)

    def _refusal(self, reason: str) -> TkError:
        if self.error is not None:
            return OpenDimensionsError(self.error.inputs, self.error.where, reason)
        counted = counted_symbols(self._import({}))
        return UnsupportedModelError(str(self.job.model), [count_refusal(one, reason) for one in counted])

    def attempt(self) -> Graph:
        """The graph, where that much stays open; what ends at a limit is found one after the other."""
        try:
            return self._attempt()
        except UnevenExtentError as uneven:
            if uneven.tensor in self.clipped or len(self.clipped) >= _MOST_CLIPPED:
                raise self._refusal(str(uneven)) from uneven
            return replace(self, clipped={**self.clipped, uneven.tensor: uneven.axis}).attempt()

    def _attempt(self) -> Graph:
        """With the first dimension as a batch where samples are separate, else as a size like others."""
        reason = ""
        if self._may_be_batch():
            try:
                return self._with_batch()
            except (NotSeparateError, FixedSizeError) as found:
                reason = str(found)
            except BadInputError as found:  # fine for one sample
                reason = f"{found.what}: {found.why}"
        try:
            return self._sized({}, tuple(self.dims.symbols))[0]
        except UnevenExtentError:
            raise
        except FixedSizeError as found:
            reasons = dict.fromkeys(item for item in (reason, str(found)) if item)
            raise self._refusal("; ".join(reasons)) from found

    def _may_be_batch(self) -> bool:
        """Whether there is a first dimension of which any run has one or more."""
        asked = self.dims.symbols[self.dims.batch] if self.dims.batch else (0, 0)
        return asked is None or asked[0] == 1

    def _with_batch(self) -> Graph:
        batch = self.dims.batch
        others = tuple(name for name in self.dims.symbols if name != batch)
        one, small = self._sized({batch: 1}, others, separate=True)
        asked = self.dims.symbols[batch]
        first, largest = self._import({**small, batch: 1}), _most_samples(one)
        largest = min(largest, asked[1]) if asked is not None else largest
        try:
            for count in (2, largest if not others else 3):
                check_samples(canonical(first), canonical(self._import({**small, batch: count})), count)
        except NotSeparateError:
            try_samples([self._import({**small, batch: count}) for count in COUNTS])
        return replace(one, batch=Batch(batch if self.dims.is_named(batch) else "batch", largest))

    # ------------------------------------------------------------ sizes

    def _sized(
        self, fixed: Mapping[str, int], names: tuple[str, ...], *, separate: bool = False
    ) -> tuple[Graph, Mapping[str, int]]:
        """The graph for all values of these symbols and of those counted, and small values of all.

        separate: for one sample of several; raises NotSeparateError where a count is that of all samples.
        """
        small = self._small(fixed, names)
        counted = tuple(item.name for item in counted_symbols(next(iter(small.values()))))
        if counted and separate:
            raise NotSeparateError(f"{counted[0]!r} is counted in all samples together")
        if not names and not counted:
            return small[()], {}
        names += counted
        small = self._small(fixed, names) if counted else small
        point = next(iter(small))
        one = dict(zip(names, point, strict=True))
        top, largest = self._largest(fixed, names, point)
        rooms = {item.name: item.room for item in counted_symbols(largest)}
        if rooms.keys() != set(counted):
            raise FixedSizeError("what a run counts is there for some sizes only")
        symbols = [
            self._symbol(fixed, one, name, rooms.get(name, high), counted=name in rooms)
            for name, high in zip(names, top, strict=True)
        ]

        def at(point: Point) -> Graph:
            return self._import({**fixed, **dict(zip(names, point, strict=True))})

        few = {point: at(point) for point in self._fewest(one, symbols)}
        graphs = [largest, *small.values(), *few.values()]
        least = self._at_least(fixed, one, symbols)
        points = [top, *small, *few]
        graph = for_all_sizes(graphs, points, symbols, at, tried=1 + len(small), least=least)
        packed = packed_ends(graph)
        if packed:
            raise FixedSizeError(f"{packed[0]!r} has elements of fewer than 8 bits, which are packed")
        return graph, one

    def _at_least(
        self, fixed: Mapping[str, int], small: Mapping[str, int], symbols: Sequence[Symbol]
    ) -> list[Witness]:
        """Shapes where all sizes are the least; where the model does not take that, where each of them is."""
        least = {item.name: max(item.minimum, item.step) for item in symbols if not item.counted}
        some = {name: small[name] for name in least}
        counted = [item.name for item in symbols if item.counted]
        alone = ({**some, name: size} for name, size in least.items())
        return self._witnesses(fixed, [least], counted) or self._witnesses(fixed, alone, counted)

    def _witnesses(
        self, fixed: Mapping[str, int], points: Iterable[Mapping[str, int]], counted: Sequence[str]
    ) -> list[Witness]:
        """Shapes at these sizes, and as much counted as there can be."""
        found = []
        for point in points:
            with suppress(BadInputError):
                graph = self._import({**fixed, **point}, least=0)
                rooms = {item.name: item.supposed for item in counted_symbols(graph)}
                counts = (rooms.get(name, 0) for name in counted)
                found.append(Witness.of(graph, (*point.values(), *counts)))
        return found

    @staticmethod
    def _fewest(one: Mapping[str, int], symbols: Sequence[Symbol]) -> list[Point]:
        """A point with as little as a run can find; results that end at a limit are shorter there."""
        found = tuple(max(item.minimum, 1) if item.counted else one[item.name] for item in symbols)
        return [found] if any(item.counted for item in symbols) else []

    def _symbol(
        self, fixed: Mapping[str, int], small: Mapping[str, int], name: str, high: int, *, counted: bool
    ) -> Symbol:
        asked = self._range(name)
        high = min(high, asked[1]) if asked else high
        return Symbol(name, min(self._least(fixed, small, name), high), high, self._step(name), counted)

    def _found_steps(self) -> Mapping[str, int]:
        """What symbols are multiples of in sizes that the model takes; nothing where it is 1, or unknown."""
        few = {self.dims.batch: 1} if self.dims.batch else {}
        names = [name for name in self.dims.symbols if name not in few]
        size = next((n for n in _MULTIPLES if self._takes({**few, **dict.fromkeys(names, n)})), 0)
        some = {**few, **dict.fromkeys(names, size)}
        found = {name: self._step_from(size, some, name) for name in names} if size else {}
        return found if all(found.values()) and max(found.values(), default=1) > 1 else {}

    def _step_from(self, size: int, some: Mapping[str, int], name: str) -> int:
        """The least step from one size to more, all multiples of it; 0 where there is none."""
        steps = (step for step in range(1, size + 1) if size % step == 0)
        for step in steps:
            if all(self._takes({**some, name: size + count * step}) for count in (1, 2)):
                return step
        return 0

    def _takes(self, values: Mapping[str, int]) -> bool:
        try:
            self._import(values)
        except BadInputError:
            return False
        return True

    def _step(self, name: str) -> int:
        return self.steps.get(name, 1)

    @property
    def _asked(self) -> Mapping[str, Range]:
        """Ranges that the caller gave, those of counted symbols among them."""
        given = _ranged_dims(self.job.options.dims)
        return {name: item for name, item in given.items() if isinstance(item, tuple)}

    def _range(self, name: str) -> Range | None:
        """As asked for, in whole steps."""
        found, step = self.dims.symbols.get(name, self._asked.get(name)), self._step(name)
        return (-(-found[0] // step) * step, found[1] // step * step) if found else None

    def _small(self, fixed: Mapping[str, int], names: tuple[str, ...]) -> dict[Point, Graph]:
        """The model at sizes for experiments, the largest of them first; raises what an import raises."""
        trouble: TkError | None = None
        for size in _SMALL:
            steps = tuple(map(self._step, names))
            sizes = [(-(-size // step) + at) * step for at, step in enumerate(steps)]
            whole = tuple(
                min(n, item[1]) if (item := self._range(name)) else n
                for n, name in zip(sizes, names, strict=True)
            )
            parts = _parts(whole, steps)
            if size != _SMALL[-1] and not _differ(whole, parts):
                continue
            try:
                return {
                    point: self._import({**fixed, **dict(zip(names, point, strict=True))})
                    for point in (whole, *parts)
                }
            except BadInputError as found:
                trouble = found
        assert trouble is not None
        raise trouble

    def _least(self, fixed: Mapping[str, int], small: Mapping[str, int], name: str) -> int:
        """The least value of a symbol: as asked for, 0 for a part of sums, else what the model takes."""
        given = self._range(name)
        if given is not None or self.dims.is_term(name):
            return given[0] if given is not None else 0

        counted = name not in self.dims.symbols

        def takes(size: int) -> bool:
            try:
                graph = self._import({**fixed, **small, name: size})
            except BadInputError:
                return False
            return counted or all(value.type.size for value in graph.producers)

        step = self._step(name)
        sizes = range(step, small[name], step)
        for least in (0, step) if counted else (step,):
            if takes(least):
                return least
        return step * (1 + bisect_left(sizes, 1, lo=1, key=lambda size: int(takes(size))))

    def _largest(self, fixed: Mapping[str, int], names: tuple[str, ...], small: Point) -> tuple[Point, Graph]:
        """The largest sizes: as asked for, else what the model takes up to a limit; all that is counted."""
        free = tuple(name for name in names if name in self.dims.symbols)
        least = max(small[len(free) :], default=0)
        top, graph = self._largest_free(fixed, free, small[: len(free)], least)
        rooms = {item.name: item.supposed for item in counted_symbols(graph)}
        return (*top, *(rooms.get(name, 0) for name in names[len(free) :])), graph

    def _largest_free(
        self, fixed: Mapping[str, int], names: tuple[str, ...], small: Point, least: int
    ) -> tuple[Point, Graph]:
        def at(size: int) -> Point:
            return tuple(
                item[1] if (item := self._range(name)) else max(size // step * step, low)
                for name, low, step in zip(names, small, map(self._step, names), strict=True)
            )

        def imported(point: Point) -> Graph:
            return self._import({**fixed, **dict(zip(names, point, strict=True))}, least)

        def attempt(size: int) -> Graph | None:
            try:
                graph = imported(at(size))
            except BadInputError:
                return None
            return graph if _fits(graph) else None

        if all(self._range(name) for name in names):
            return at(0), imported(at(0))
        low, high = max(small), _LARGEST_SIZE
        best = attempt(high)
        if best is not None:
            return at(high), best
        while high - low > 1:
            middle = (low + high) // 2
            found = attempt(middle)
            low, high, best = (middle, high, found) if found is not None else (low, middle, best)
        return at(low), best or imported(at(low))

    def _import(self, values: Mapping[str, int], least: int = _SMALL[0]) -> Graph:
        """The model for these values of the symbols; least: of what is counted and has no value."""
        options = self.job.options
        shapes, dims = self.dims.options(values)
        counts = {name: value for name, value in values.items() if name not in self.dims.symbols}
        most = {name: high for name, (_, high) in self._asked.items()}
        return _imported(
            self.job,
            {**_fixed(options.shapes), **shapes},
            {**_fixed_dims(options.dims), **dims},
            Supposed(counts, least, most, self.clipped),
        )


def _imported(
    job: CompileJob,
    shapes: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
    supposed: Supposed | None = None,
) -> Graph:
    """The model with the sizes that these options give."""
    # Binds are objects in options, which are read without numpy.
    binds: Any = job.options.binds
    with knowing(job.target.plugins.operators):
        return import_model(job.model, shapes, binds, job.external, dims, supposed)


def _parts(whole: Point, steps: Point) -> list[Point]:
    """Points that are smaller in one symbol, and in all; two of each, as far as there are, and one more.

    They have no divisor in common but the step: what comes out even at some is to show where it does not.
    Those of 12 and 48 leave every remainder by 2 and by 3: windows in such steps end differently by these.
    """
    found = []
    for times, by, less in ((3, 4, 0), (2, 3, 1)):
        sizes = ((n * times // by - less) // step * step for n, step in zip(whole, steps, strict=True))
        smaller = tuple(max(step, size) for step, size in zip(steps, sizes, strict=True))
        found += [(*whole[:at], smaller[at], *whole[at + 1 :]) for at in range(len(whole))]
        found.append(smaller)
    found.append(
        tuple(max(step, n * 5 // 6 // step * step - 2 * step) for n, step in zip(whole, steps, strict=True))
    )
    return list(dict.fromkeys(point for point in found if point != whole))


def _differ(whole: Point, parts: Sequence[Point]) -> bool:
    """Whether there are parts with two other values of each symbol, which show how extents follow from it."""
    return all(len({point[at] for point in (whole, *parts)}) > 2 for at in range(len(whole)))


def _most_samples(one: Graph) -> int:
    """As many samples as no tensor becomes too large for."""
    return max(2, min(_LARGEST_BATCH, LIMIT_BYTES // _most_bytes(one)))


def _fits(graph: Graph) -> bool:
    return _most_bytes(graph) <= _TENSOR_BYTES


def _most_bytes(graph: Graph) -> int:
    """Of the largest tensor; 1 where none has elements."""
    return max(1, *(value.type.bytes for value in (*graph.inputs, *graph.producers)))


def _fixed(shapes: Mapping[str, tuple[int | SizeRange, ...]]) -> dict[str, tuple[int, ...]]:
    """Shapes without ranges."""
    given = {name: tuple(item for item in shape if isinstance(item, int)) for name, shape in shapes.items()}
    return {name: shape for name, shape in given.items() if len(shape) == len(shapes[name])}


def _fixed_dims(dims: Mapping[str, int | SizeRange]) -> dict[str, int]:
    return {name: item for name, item in dims.items() if isinstance(item, int)}


def _ranged(shapes: Mapping[str, tuple[int | SizeRange, ...]]) -> dict[str, tuple[Given, ...]]:
    """Shapes with ranges."""
    fixed = _fixed(shapes)
    return {
        name: tuple(item if isinstance(item, int) else (item.minimum, item.maximum) for item in shape)
        for name, shape in shapes.items()
        if name not in fixed
    }


def _ranged_dims(dims: Mapping[str, int | SizeRange]) -> dict[str, Given]:
    return {name: (item.minimum, item.maximum) for name, item in dims.items() if isinstance(item, SizeRange)}
