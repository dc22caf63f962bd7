"""Resize where extents depend on the size: positions and weights are computed for the extents of a run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import Array, from_numpy
from compiler.graph.ops.resize_at_run import Traced
from compiler.graph.ops.resize_tables import COORDINATES, ROUNDINGS, cubic_weights
from compiler.graph.rewrites.sizes.instances import Instance, Nodes
from compiler.graph.rewrites.sizes.node_writer import NodeWriter

_F32, _I64 = (from_numpy(np.dtype(kind)) for kind in (np.float32, np.int64))
_MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn")


def resized(w: NodeWriter) -> Sequence[Nodes] | None:
    """One axis after the other; None for what tables alone can say."""
    node = w.replaced[0]
    source, attrs = node.inputs[0], node.attrs
    is_plain = not attrs.flag("antialias", default=False) and not attrs.flag("exclude_outside", default=False)
    mode = attrs.text("coordinate_transformation_mode")
    can_weigh = attrs.text("mode") == "nearest" or source.type.dtype == _F32
    if mode not in _MODES or not is_plain or not can_weigh:
        return None
    found = source.id
    for axis in range(source.type.rank):
        if not all(_factor(w, axis, item) == 1 for item in w.instances.all):
            made = _Axis(w, found, axis).resized(attrs)
            if made is None:
                return None
            found = made
    return w.finish("Cast", found, to=node.output.type.dtype)


def _factor(w: NodeWriter, axis: int, item: Instance) -> float:
    """How much longer an axis becomes in an instance, as its attributes say."""
    return w.node_of(item).attrs.numbers("scales")[axis]


class _Emitter:
    """Adds nodes and constants for numpy's arithmetic; tensors are numbers."""

    def __init__(self, w: NodeWriter) -> None:
        self._writer = w

    def emit(self, op: str, *inputs: int) -> int:
        return self._writer.emit(op, *inputs)

    def constant(self, array: Array) -> int:
        return self._writer.instances.constant(lambda _: array)


class _Axis:
    """One axis of a tensor, as long as it is before and after in this run."""

    def __init__(self, w: NodeWriter, data: int, axis: int) -> None:
        self.writer, self.data, self.axis = w, data, axis
        self.emitter: Any = _Emitter(w)
        places = w.instances.constant(lambda item: np.arange(self._target(item), dtype=np.float32))
        self.places = self._traced(w.emit("Cast", places, to=_F32))
        self.length = w.instances.length(data, axis)
        self.source = self._traced(w.emit("Cast", self.length, to=_F32))
        self.target = self._traced(w.emit("Cast", w.instances.length(places, 0), to=_F32))

    def resized(self, attrs: Attrs) -> int | None:
        """The tensor with another extent along this axis; None where the factor follows from nothing."""
        factor = self._scale()
        if factor is None:
            return None
        at = self._coordinates(attrs.text("coordinate_transformation_mode"), factor)
        kind = attrs.text("mode")
        if kind == "nearest":
            return self._take(ROUNDINGS[attrs.text("nearest_mode")](at))
        low: Any = np.floor(at)
        part = at - low
        weights = [1 - part, part]
        first = 0
        if kind == "cubic":
            weights, first = cubic_weights(part, attrs.number("cubic_coeff_a")), -1
        taps = enumerate(weights, start=first)
        parts = (self.writer.emit("Mul", self._take(low + at), self._column(one)) for at, one in taps)
        return reduce(lambda a, b: self.writer.emit("Add", a, b), parts)

    def _traced(self, number: int) -> Any:
        return Traced(self.emitter, number)  # type: ignore[arg-type]

    def _target(self, item: Instance) -> int:
        return self.writer.node_of(item).output.type.shape[self.axis]

    def _scale(self) -> Any:
        """One factor for all sizes, or the quotient of the extents."""
        items = self.writer.instances.all
        factors = [_factor(self.writer, self.axis, item) for item in items]
        if len(set(factors)) == 1:
            return np.float32(factors[0])
        lengths = ((self._target(item), item.type_of(self.data).shape[self.axis]) for item in items)
        quotients = [after / before for after, before in lengths]
        return self.target / self.source if quotients == factors else None

    def _coordinates(self, mode: str, factor: Any) -> Any:
        """Where elements come from; with one alone, two modes take the first."""
        if mode == "align_corners":
            return self.places * (self.source - 1) / self._largest(self.target - 1, 1)
        if mode == "pytorch_half_pixel":
            several = self._traced(self.writer.emit("Min", (self.target - 1).value, self._number(1)))
            return COORDINATES["half_pixel"](self.places, factor, 0, 0) * several
        return COORDINATES[mode](self.places, factor, 0, 0)

    def _number(self, value: float) -> int:
        return self.writer.instances.constant(lambda _: np.asarray(value, np.float32))

    def _largest(self, traced: Any, least: float) -> Any:
        return self._traced(self.writer.emit("Max", traced.value, self._number(least)))

    def _take(self, places: Any) -> int:
        """Elements along the axis; places beyond an end are those of the end."""
        w = self.writer
        index = w.emit("Max", w.emit("Cast", places.value, to=_I64), w.integers(lambda _: 0))
        last = w.emit("Sub", self.length, w.integers(lambda _: 1))
        return w.emit("Gather", self.data, w.emit("Min", index, last), axis=self.axis)

    def _column(self, weight: Any) -> int:
        rank = self.writer.instances.largest.type_of(self.data).rank

        def shape(item: Instance) -> dict[str, tuple[int, ...]]:
            return {"shape": (self._target(item), *(1,) * (rank - self.axis - 1))}

        return self.writer.emit_by("Reshape", [weight.value], shape)
