"""What layouts cost on a device whose matrix units read channels side by side: row-major or channels-last.

A matrix unit takes the terms of a sum, channels, side by side. From a row-major tensor each lane reads a
place of its own, a whole channel from the next; from a channels-last one, vectors along the channels. Every
other kernel is as fast in one order as in the other, where all that it touches lies alike: its time is bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.core.types import F32, DType
from compiler.graph.fuse import Group
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import Kind
from compiler.graph.ops.factors import FACTORS
from compiler.graph.rewrites.lower_precision import IMAGE_CHANNELS
from compiler.loops.layout import Layout
from compiler.loops.matrix_units import RECORDS, units_for
from compiler.stages.layout_costs import feeding, groups_of, has_weights

_FROM_CACHE = 3.0
"""How much faster the last cache is than memory, about: all costs here are bytes through it."""

_APART = 4.0
"""How many times the bytes of sectors that are read for one element each, caches considered."""

_STEPS = 32
"""Channels that a tile stages at a time: where they do not come out even, each one has a condition."""

_WINDOW = 2.0
"""Times the bytes for a pool of channels side by side: neighbours in space are other vectors."""

_WORST = 6.0
"""The same for what is predicted to be slower channels-last than row-major: convolutions of single channels,
of uneven channels; and row-major factors of channels-last results."""

_NEVER = 64.0
"""The same where an innermost loop divides: uneven channels, where either side is channels-last."""


@dataclass(frozen=True, slots=True)
class DeviceLayoutCosts:
    """The costs of layouts on one device; see `compiler.graph.choose_layouts.LayoutCosts`."""

    facts: TargetFacts

    @property
    def lanes(self) -> int:
        """No blocks of channels."""
        return 1

    @property
    def channels_last(self) -> bool:
        """Whether a matrix unit takes products of 16 bits, or of f32 rounded on purpose."""
        return any(RECORDS[name].factor.bits == 16 for name, _ in self.facts.matrix_rates) or self._rounds

    @property
    def _rounds(self) -> bool:
        """Whether matrix units may multiply factors of f32 as tf32, or as parts of it."""
        return any(RECORDS[name].precision == self.facts.precision for name, _ in self.facts.matrix_rates)

    def write(self, group: Group, value: Value, result: Layout) -> float:  # noqa: ARG002 - whoever writes
        """Seconds that it takes to write `value` in a layout: bytes, whatever the order."""
        return self._moved(value.type)

    def read(self, group: Group, value: Value, source: Layout, result: Layout) -> float:
        """Seconds that `group` takes for `value` in a layout, and for what it computes with it."""
        anchor, moved = group.anchor, self._moved(value.type)
        if value.type.rank < 3:
            return moved
        if anchor is None or value not in feeding(group, anchor):
            return moved if bool(source.lanes) == bool(result.lanes) else _APART * moved
        if not anchor.op.channels:
            return moved * (_APART if source.lanes else 1.0)
        if self._is_product(anchor):
            return moved * _for_product(anchor, source, result)
        return moved * _for_window(anchor, source, result)

    def _moved(self, kind: TensorType) -> float:
        return kind.size * kind.dtype.bits / 8 / (self.facts.bandwidth * _FROM_CACHE)

    def _is_product(self, anchor: Node) -> bool:
        """Whether matrix units take a convolution."""
        kind = anchor.attrs.dtype(FACTORS) if FACTORS in anchor.attrs else anchor.inputs[0].type.dtype
        return has_weights(anchor) and groups_of(anchor) == 1 and self._multiplies(kind)

    def _multiplies(self, kind: DType) -> bool:
        return self._rounds if kind == F32 else bool(units_for(kind, self.facts.matrix_rates))


def _for_product(anchor: Node, source: Layout, result: Layout) -> float:
    """How many times the bytes of its input a convolution on matrix units takes."""
    channels = anchor.inputs[0].type.shape[1]
    if channels < IMAGE_CHANNELS and not source.lanes:
        return 1.0  # they are gathered with the taps of the window, whatever the result's order
    even = channels % _STEPS == 0
    if not source.lanes and not result.lanes:
        return _APART
    if not even:
        return _NEVER
    return 1.0 if source.lanes else _WORST


def _for_window(anchor: Node, source: Layout, result: Layout) -> float:
    """How many times the bytes of its input an operator on single channels, or on groups of them, takes."""
    if not source.lanes and not result.lanes:
        return 1.0
    if anchor.op.kind is Kind.ANCHOR:
        return _WORST
    return _WINDOW if source.lanes and result.lanes else _APART
