"""Import of a model whose inputs have free dimensions: a batch, sizes that a run decides, or both.

A free batch is a loop around what is made for one sample (decision 021). Other dimensions are compiled for
their largest extents, of which a run has a part (decision 024).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, product

from compiler.core.diagnostics import BadInputError, TkError, UsageError
from compiler.frontend.free_dims import FreeDims, Given, Range, free_dims
from compiler.frontend.onnx import import_model
from compiler.frontend.open_dims import OpenDimensionsError
from compiler.frontend.refusals import UnsupportedModelError
from compiler.frontend.tensors import LIMIT_BYTES
from compiler.graph.extents import packed_ends
from compiler.graph.ir import Batch, Graph, Symbol
from compiler.graph.rewrites import canonical
from compiler.graph.rewrites.sizes import COUNTS, FixedSizeError, Point, for_all_sizes, try_samples
from compiler.graph.samples import NotSeparateError, check_samples
from compiler.reports import SizeRange
from compiler.stages.job import CompileJob

_LARGEST_BATCH = 1 << 16
_LARGEST_SIZE = 512
"""Where neither the model nor the caller says how large a dimension can be."""
_TENSOR_BYTES = 256 << 20
"""No larger tensor for a size that nobody asked for."""
_MANY = 6
"""Symbols, of which a few may be sums; of more there are too many combinations."""
_MULTIPLES = (64, 192, 224)
"""Sizes that models take which take multiples of something only."""
_SMALL = (12, 48, 96, 256)
"""Sizes for experiments, the first that the model can have: windows and strides want some room."""


def import_for_job(job: CompileJob) -> Graph:
    """The model as the options say; what they leave open, or give ranges of, is decided by each run."""
    shapes, dims = _fixed(job.options.shapes), _fixed_dims(job.options.dims)
    try:
        graph = _imported(job, shapes, dims)
    except OpenDimensionsError as error:
        return _Free.of(job, error).graph()
    ranged = [name for name in job.options.shapes if name not in shapes]
    ranged += [name for name in job.options.dims if name not in dims]
    if ranged:
        what = f"{ranged[0]!r}: a range for dimensions that the model fixes"
        raise UsageError(what, hint="give ranges for dimensions that the model leaves open")
    return graph


@dataclass(frozen=True, slots=True)
class _Free:
    """What is open in a model, and the error that says so where it cannot stay open."""

    job: CompileJob
    error: OpenDimensionsError
    dims: FreeDims
    steps: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, job: CompileJob, error: OpenDimensionsError) -> _Free:
        """Raises `error` where an input has no rank."""
        found = free_dims(error.inputs, _ranged(job.options.shapes), _ranged_dims(job.options.dims))
        if found is None:
            raise error
        return cls(job, error, found)

    def graph(self) -> Graph:
        """The graph for all sizes.

        Where sizes do not go together, it may be that a model takes multiples of some only: what is halved
        and doubled has to meet what was not. Or that one size is the sum of two others: exporters give these
        names of their own, too. Raises OpenDimensionsError where there is no such graph.
        """
        try:
            return self.attempt()
        except UnsupportedModelError:
            raise
        except (BadInputError, OpenDimensionsError) as found:
            steps = self._found_steps()
            if steps:
                return replace(self, steps=steps).attempt()
            if isinstance(found, OpenDimensionsError):
                raise
            for dims in self._with_sums():
                with suppress(BadInputError):
                    return replace(self, dims=dims).attempt()
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

    def _refusal(self, reason: str) -> OpenDimensionsError:
        return OpenDimensionsError(self.error.inputs, self.error.where, reason)

    def attempt(self) -> Graph:
        """With the first dimension as a batch where samples are separate, else as a size like others."""
        reason = ""
        on_device = self.job.target.device is not None  # whose launches are for one number of samples
        if self.dims.batch and not on_device and self.dims.symbols[self.dims.batch] is None:
            try:
                return self._with_batch()
            except (NotSeparateError, FixedSizeError) as found:
                reason = str(found)
            except BadInputError as found:  # fine for one sample
                reason = f"{found.what}: {found.why}"
        try:
            return self._sized({}, tuple(self.dims.symbols))[0]
        except FixedSizeError as found:
            reasons = dict.fromkeys(item for item in (reason, str(found)) if item)
            raise self._refusal("; ".join(reasons)) from found

    def _with_batch(self) -> Graph:
        batch = self.dims.batch
        others = tuple(name for name in self.dims.symbols if name != batch)
        one, small = self._sized({batch: 1}, others)
        first, largest = self._import({**small, batch: 1}), _most_samples(one)
        try:
            for count in (2, largest if not others else 3):
                check_samples(canonical(first), canonical(self._import({**small, batch: count})), count)
        except NotSeparateError:
            try_samples([self._import({**small, batch: count}) for count in COUNTS])
        return replace(one, batch=Batch(batch if self.dims.is_named(batch) else "batch", largest))

    # ------------------------------------------------------------ sizes

    def _sized(self, fixed: Mapping[str, int], names: tuple[str, ...]) -> tuple[Graph, Mapping[str, int]]:
        """The graph for all values of these symbols, and small values of them all."""
        if not names:
            return self._import(fixed), {}
        small = self._small(fixed, names)
        point = next(iter(small))
        top, largest = self._largest(fixed, names, point)
        one = dict(zip(names, point, strict=True))
        symbols = [
            Symbol(name, self._least(fixed, one, name), high, self._step(name))
            for name, high in zip(names, top, strict=True)
        ]

        def at(point: Point) -> Graph:
            return self._import({**fixed, **dict(zip(names, point, strict=True))})

        graph = for_all_sizes([largest, *small.values()], [top, *small], symbols, at)
        packed = packed_ends(graph)
        if packed:
            raise FixedSizeError(f"{packed[0]!r} has elements of fewer than 8 bits, which are packed")
        return graph, one

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

    def _range(self, name: str) -> Range | None:
        """As asked for, in whole steps."""
        found, step = self.dims.symbols[name], self._step(name)
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

        def takes(size: int) -> bool:
            try:
                graph = self._import({**fixed, **small, name: size})
            except BadInputError:
                return False
            return all(value.type.size for value in graph.producers)

        step = self._step(name)
        sizes = range(step, small[name], step)
        if takes(step):
            return step
        return step * (1 + bisect_left(sizes, 1, lo=1, key=lambda size: int(takes(size))))

    def _largest(self, fixed: Mapping[str, int], names: tuple[str, ...], small: Point) -> tuple[Point, Graph]:
        """The largest sizes: as asked for, else what the model takes up to a limit."""

        def at(size: int) -> Point:
            return tuple(
                item[1] if (item := self._range(name)) else max(size // step * step, low)
                for name, low, step in zip(names, small, map(self._step, names), strict=True)
            )

        def attempt(size: int) -> Graph | None:
            try:
                graph = self._import({**fixed, **dict(zip(names, at(size), strict=True))})
            except BadInputError:
                return None
            return graph if _fits(graph) else None

        if all(self._range(name) for name in names):
            return at(0), self._import({**fixed, **dict(zip(names, at(0), strict=True))})
        low, high = max(small), _LARGEST_SIZE
        best = attempt(high)
        if best is not None:
            return at(high), best
        while high - low > 1:
            middle = (low + high) // 2
            found = attempt(middle)
            low, high, best = (middle, high, found) if found is not None else (low, middle, best)
        return at(low), best or self._import({**fixed, **dict(zip(names, at(low), strict=True))})

    def _import(self, values: Mapping[str, int]) -> Graph:
        """The model for these values of the symbols."""
        options = self.job.options
        shapes, dims = self.dims.options(values)
        return _imported(
            self.job, {**_fixed(options.shapes), **shapes}, {**_fixed_dims(options.dims), **dims}
        )


def _imported(job: CompileJob, shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> Graph:
    """The model with the sizes that these options give."""
    # Binds are objects in options, which are read without numpy.
    return import_model(job.model, shapes, job.options.binds, job.external, dims)  # type: ignore[arg-type]


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
    return max((value.type.bytes for value in (*graph.inputs, *graph.producers)), default=1)


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
