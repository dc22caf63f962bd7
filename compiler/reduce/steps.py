"""From the whole model to few nodes: the first wrong kernel, bisection, delta debugging, fewer outputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.core.progress import Progress
from compiler.reduce.candidate import Candidate, KnownValues, bypassed, exposed, part, with_outputs
from compiler.reduce.checker import FaultChecker
from compiler.reduce.ddmin import ddmin, smallest_prefix
from compiler.reduce.report import WRONG
from compiler.reduce.store import ReductionStore
from compiler.verify.boundaries import Boundary

Cells = Sequence[Sequence[int]]
"""Places of nodes in parts that belong together, in order."""


@dataclass(slots=True)
class Reducer:
    """The smallest model so far, and what makes it smaller; `known` is of the values of the original one."""

    current: Candidate
    known: KnownValues
    checker: FaultChecker
    store: ReductionStore
    progress: Progress

    def take(self, candidate: Candidate | None) -> bool:
        """Go on from a model where it shows the fault."""
        if candidate is None or not self.checker.shows(candidate):
            return False
        self.current = candidate
        return True

    def fewer_nodes(self, kernels: Sequence[Boundary]) -> None:
        """All steps that take nodes away; `kernels` are those of the model's library, if there is one."""
        if len(kernels) > 1 and self._first_wrong(kernels):
            kernels = ()
        self._bisect(_cells(self.current, kernels))
        self._minimise()
        self._fewer_outputs()
        while self._bypass():
            pass

    def _first_wrong(self, kernels: Sequence[Boundary]) -> bool:
        """Try the first kernel whose value is wrong by itself, then with more and more of those before it."""
        fault = self.checker.fault
        if fault is None or fault.kind != WRONG:
            return False
        self.progress("looking for the first wrong kernel", 0, 0)
        base = self.current
        found = self.checker.outcome(exposed(base, [one.value for one in kernels]))
        wrong = [number for number, one in enumerate(kernels) if one.value in found.worst]
        if not wrong:
            return False
        cells, last, before = _cells(base, kernels), wrong[0], 0
        own = kernels[last].nodes
        if self.take(self._part(base, own)):
            return True
        while before < last:
            before = 2 * before + 1
            places = [place for cell in cells[max(0, last - before) : last + 2] for place in cell]
            if self.take(self._part(base, {*places, *own})):
                return True
        return False

    def _bisect(self, cells: Cells) -> None:
        """The shortest beginning of the model that shows the fault, and of that the shortest end."""
        self._shorten(self._shorten(cells, at_end=True), at_end=False)

    def _shorten(self, cells: Cells, *, at_end: bool) -> Cells:
        """Cut cells off at one side by bisection; returns those left, in the places of the model left."""
        self.progress(f"cutting off the {'end' if at_end else 'start'}", 0, 0)
        base = self.current

        def places(count: int) -> list[int]:
            kept = cells[:count] if at_end else cells[len(cells) - count :]
            return [place for cell in kept for place in cell]

        count = smallest_prefix(len(cells), lambda count: self.take(self._part(base, places(count))))
        if count == len(cells):
            return cells
        left = {place: number for number, place in enumerate(sorted(places(count)))}
        return [[left[place] for place in cell] for cell in cells if cell[0] in left]

    def _part(self, base: Candidate, places: Iterable[int]) -> Candidate | None:
        return part(base, places, self.known, self.store)

    def _minimise(self) -> None:
        base, count = self.current, len(self.current.nodes)

        def shows(places: Sequence[int]) -> bool:
            self.progress(f"taking nodes away, {len(self.current.nodes)} left", 0, 0)
            return self.take(self._part(base, places))

        if count > 1:
            ddmin(range(count), shows)

    def _bypass(self) -> bool:
        """Take one node out of the middle: what it reads goes where its result went, if it looks alike."""
        base = self.current
        for place, node in enumerate(base.nodes) if len(base.nodes) > 1 else ():
            kind = self._kind(base, node.output[0])
            alike = [
                name for name in node.input if name and kind is not None and self._kind(base, name) == kind
            ]
            if any(self.take(bypassed(base, place, name)) for name in alike):
                return True
        return False

    def _kind(self, base: Candidate, name: str) -> tuple[object, ...] | None:
        """Type and shape of a value, as far as the reference made it."""
        kept = base.feeds.get(name) or self.known.arrays.get(name)
        if kept is None:
            return None
        array = self.store.get(kept)
        return (array.dtype, *array.shape)

    def _fewer_outputs(self) -> None:
        """One output where one is enough."""
        base = self.current
        if len(base.outputs) < 2:
            return
        for name in base.outputs:
            if self.take(with_outputs(base, [name])):
                return
        ddmin(base.outputs, lambda names: self.take(with_outputs(base, names)))


def _cells(candidate: Candidate, kernels: Sequence[Boundary]) -> list[list[int]]:
    """The nodes of each kernel with those before them in the file that belong to none; else single nodes."""
    count = len(candidate.nodes)
    if not kernels:
        return [[place] for place in range(count)]
    owner = {place: number for number, one in enumerate(kernels) for place in one.nodes}
    cells: list[list[int]] = [[] for _ in kernels]
    waiting: list[int] = []
    for place in range(count):
        waiting.append(place)
        if place in owner:
            cells[owner[place]] += waiting
            waiting = []
    cells[-1] += waiting
    return [cell for cell in cells if cell]
