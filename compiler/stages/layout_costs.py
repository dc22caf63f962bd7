"""What layouts cost on a target: the seconds that layout selection minimises.

Bytes go by the bandwidth of the cache that holds the tensor; arithmetic by the peak; and what a kernel cannot
do with whole vectors by the cycles below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from compiler.core.target import TargetFacts
from compiler.graph.fuse import Group
from compiler.graph.ir import Node, TensorType, Value
from compiler.graph.op import Kind
from compiler.loops.layout import Layout


@dataclass(frozen=True, slots=True)
class Cycles:
    """Cycles per element where lanes do not lie side by side, beside those for bytes.

    Measured on an Intel Xeon with AVX-512, kernels alone. They count scalar loads and stores, of which all
    processors in `compiler.targets.microarchitectures` start about as many in a cycle: with AVX2 and AVX-512
    the layouts of five networks are the same with all of them halved or doubled.
    """

    scatter: float = 0.75  # a vector of channels is stored into a row-major tensor
    gather: float = 0.5  # a vector of channels is loaded from a row-major tensor
    rows_of_blocks: float = 2.5  # a row-major result is filled from blocks
    regroup: float = 0.3  # from blocks to blocks of padded groups
    ungroup: float = 1.0  # from padded groups to blocks, or between kinds of blocks beside a convolution
    uneven: float = 2.3  # the same between blocks and rows where the last block is not full
    scalar: float = 1.1  # one operation of a kernel that finds no lanes
    broadcast: float = 0.25  # a convolution reads its input channel by channel from rows
    whole_blocks: float = 0.5  # of the time of a convolution whose other forms (Winograd) want whole blocks
    slow: float = 2.0  # one product of a grouped convolution whose groups do not fit the blocks

    def scaled(self, factor: float) -> Cycles:
        """The same with all that moves single lanes so many times as dear."""
        moving = ("scatter", "gather", "rows_of_blocks", "regroup", "ungroup", "uneven", "broadcast")
        return replace(self, **{name: factor * getattr(self, name) for name in moving})


@dataclass(frozen=True, slots=True)
class TargetLayoutCosts:
    """The costs of layouts on one target; see `compiler.graph.choose_layouts.LayoutCosts`."""

    facts: TargetFacts
    cycles: Cycles = Cycles()

    @property
    def lanes(self) -> int:
        """Channels per block: lanes of one vector register of f32; 1 where each lane is a thread."""
        return 1 if self.facts.binds_threads else self.facts.lanes(32)

    @property
    def channels_last(self) -> bool:
        """No: channels lie in blocks of a vector."""
        return False

    def write(self, group: Group, value: Value, result: Layout) -> float:
        """Seconds that `group` takes to write `value`, one of its results, in a layout."""
        extra, run = 0.0, _run_of_channels(group)
        if run and not result.lanes and math.prod(value.type.shape[2:]) > 1:
            cycles = self.cycles.uneven if run % self.lanes else self.cycles.scatter
            extra = cycles * value.type.size
        return self._moved(value.type, result) + extra / self.facts.hertz

    def read(self, group: Group, value: Value, source: Layout, result: Layout) -> float:
        """Seconds that `group` takes for `value` in a layout, and for what it computes with it.

        `result` is the layout of its (first) result.
        """
        anchor = group.anchor
        moved = self._moved(value.type, source)
        if anchor is None:
            return moved + self._mismatch(group, value, source, result)
        if not anchor.op.channels:
            return moved + self._rows(anchor, value, source)
        if value not in feeding(group, anchor):
            return moved + self._beside(value, source, result)
        if has_weights(anchor):
            return self._convolution(anchor, value, source, result)
        return moved + self._window(anchor, source, result)

    # ------------------------------------------------------------ parts of it

    def _beside(self, value: Value, source: Layout, result: Layout) -> float:
        """What follows an operator on channels reads another tensor: lanes are channels."""
        if value.type.rank < 3 or (source.lanes and source.group == result.group):
            return 0.0
        cycles = self.cycles.ungroup if source.lanes else self.cycles.gather
        return cycles * value.type.size / self.facts.hertz

    def _moved(self, kind: TensorType, layout: Layout) -> float:
        """Seconds for the bytes of a tensor, padding included."""
        facts, size = self.facts, layout.size * kind.dtype.bits / 8
        if size > facts.l3.bytes / 2:
            return size / facts.bandwidth
        return size / (facts.l2 if size <= facts.l2.bytes / 2 else facts.l3).fed / facts.hertz

    def _mismatch(self, group: Group, value: Value, source: Layout, result: Layout) -> float:
        """An injective group reads a tensor that is kept unlike its result."""
        if value.type.rank != group.outputs[0].type.rank:
            return 0.0
        turning = [node for node in group.nodes if node.op.fills_channels(node.info)]
        others = [node for node in group.nodes if node not in turning]
        if not all(node.op.elementwise or node.op.keeps_channels(node.info) for node in others):
            return 0.0  # channels move: one order is as good as another
        if any(value in feeding(group, node) for node in turning):
            return 0.0 if result.lanes else self.cycles.rows_of_blocks * value.type.size / self.facts.hertz
        return self._between(value.type, source, result) / self.facts.hertz

    def _between(self, kind: TensorType, source: Layout, result: Layout) -> float:
        """Cycles to go from one layout to another, element by element."""
        cycles, lanes = self.cycles, max(source.lanes, result.lanes)
        if not lanes:
            return 0.0
        if kind.shape[1] < lanes:  # no vector is ever full, and such a loop stays scalar
            return cycles.rows_of_blocks * kind.size
        if (source.lanes, source.group) == (result.lanes, result.group):
            return 0.0
        full = kind.shape[1] % lanes == 0 and not source.group and not result.group
        if not result.lanes:
            return cycles.rows_of_blocks * kind.size
        if not source.lanes:
            return (cycles.gather if full else cycles.uneven) * kind.size
        return (cycles.regroup if result.group else cycles.ungroup) * kind.size

    def _rows(self, anchor: Node, value: Value, source: Layout) -> float:
        """An operator that is not one on channels: blocks help where it sums over space, else they hinder."""
        keeps = anchor.output.type.shape[1:2] == value.type.shape[1:2]
        spatial = anchor.op.keeps_channels(anchor.info) and keeps
        if not source.lanes or spatial:
            return 0.0
        return self.cycles.rows_of_blocks * value.type.size / self.facts.hertz

    def _window(self, anchor: Node, source: Layout, result: Layout) -> float:
        """Each channel by itself, or with its neighbours: vectors of channels, or nothing."""
        work = anchor.op.flops(anchor.info) / 2
        if source.lanes and result.lanes and source.group != result.group:
            return math.inf if result.group else work * self.cycles.slow / self.facts.hertz
        if math.prod(anchor.output.type.shape[2:]) == 1:
            return work / self.lanes / self.facts.hertz
        if source.lanes:
            size = source.group or anchor.output.type.shape[1]
            return work * _padding(size, self.lanes) / self.lanes / self.facts.hertz
        scattered = self.cycles.gather * anchor.output.type.size if result.lanes else 0.0
        return (work * self.cycles.scalar + scattered) / self.facts.hertz

    def _convolution(self, anchor: Node, value: Value, source: Layout, result: Layout) -> float:
        products = anchor.op.flops(anchor.info) / 2
        if not _reads(anchor, source, self.lanes) or not _writes(anchor, result, self.lanes):
            return products * self.cycles.slow / self.facts.hertz
        arithmetic = 2 * products / self.facts.peak_flops
        if source.lanes and result.lanes and not source.group and not result.group:
            wanted = any(form.wants_blocks for form in anchor.op.forms_for(anchor.info).values())
            arithmetic *= self.cycles.whole_blocks if wanted else 1.0
        inner, outer = (
            kind.shape[1] // groups_of(anchor) for kind in (anchor.inputs[0].type, anchor.output.type)
        )
        arithmetic *= _padding(result.group or outer, self.lanes)
        plain = source.lanes and source.group in (0, inner)
        reads = 0.0 if plain else self.cycles.broadcast * value.type.size
        return max(arithmetic, self._moved(value.type, source)) + reads / self.facts.hertz


def _run_of_channels(group: Group) -> int:
    """Channels side by side in the lanes of a group's kernel, whatever its layouts; 0 where others are."""
    anchor = group.anchor
    if anchor is None or not anchor.op.channels:
        return 0
    return anchor.output.type.shape[1] // (groups_of(anchor) if has_weights(anchor) else 1)


def has_weights(anchor: Node) -> bool:
    """Whether lanes are output channels of a constant operand, so that the input may lie anyhow."""
    return anchor.op.kind is Kind.ANCHOR and len(anchor.inputs) > 1 and anchor.inputs[1].type.shape[1] > 1


def feeding(group: Group, anchor: Node) -> set[Value]:
    """The values of a group that its anchor's first operand is made of."""
    found = {anchor.inputs[0]}
    for node in reversed(group.nodes):
        if not found.isdisjoint(node.outputs):
            found.update(node.inputs)
    return found


def _padding(channels: int, lanes: int) -> float:
    """How many times so many channels are the lanes that they take."""
    return -(-channels // lanes) * lanes / channels


def _reads(anchor: Node, source: Layout, lanes: int) -> bool:
    """Whether the channels that a block of results reads lie at one place for all of its lanes."""
    count = groups_of(anchor)
    inner = anchor.inputs[0].type.shape[1] // count
    if count == 1 or not source.lanes:
        return True
    if source.group:
        return inner % source.group == 0
    return inner * count <= lanes or inner % lanes == 0 or lanes % inner != 0


def _writes(anchor: Node, result: Layout, lanes: int) -> bool:
    """Whether no block of results belongs to two groups of channels."""
    count = groups_of(anchor)
    outer = anchor.output.type.shape[1] // count
    if not result.lanes or (count > 1 and result.group == outer):
        return True
    if result.group:
        return count == 1 and result.group >= lanes
    return count == 1 or outer * count <= lanes or outer % lanes == 0


def groups_of(anchor: Node) -> int:
    """Groups of channels of a convolution."""
    return anchor.attrs.integer("group", 1)
