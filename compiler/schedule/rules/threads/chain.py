"""The rule for a chain of small layers: one cluster of blocks makes them all, in one launch.

Each layer adds up, for each of its results, all results of the one before: squeeze-and-excitation (a mean of
each channel, two dense layers), dense layers of one row. A block of the cluster has a share of the results of
every layer:

    blockIdx.x (samples)
      for each layer
        blockRank
          threadIdx.x: factor[term] = f(what all blocks made)              shared; not of the first layer
          sub-groups: result[rank, row] = sum of factor[...] * weights     cluster; of the last layer: shared
      blockRank, threadIdx.x
        output[row] = g(result[row])

What a block makes lies in its own memory, where all blocks read it behind a barrier of the cluster. Sums that
are shorter than a sub-group are done by a thread each. Hu, Shen and Sun, "Squeeze-and-Excitation Networks",
2018; CUDA C++ Programming Guide, "Distributed Shared Memory".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.core.target import TargetFacts
from compiler.loops.annotations import LANES
from compiler.loops.index_map import AXES, IndexMap
from compiler.loops.ir import CLUSTER, CONSTANT, RANK, REGISTER, SHARED, Expr
from compiler.loops.queries import variables
from compiler.loops.simplify import substitute
from compiler.schedule.chooser import Chooser
from compiler.schedule.primitives.operand import factors as factors_of
from compiler.schedule.rules.common import plainly_indexed
from compiler.schedule.rules.threads.axes import read_by
from compiler.schedule.rules.threads.chain_cost import chain_options
from compiler.schedule.rules.threads.chain_links import Link, count, find_chain, reads_along_terms
from compiler.schedule.rules.threads.common import BLOCK, THREAD, shuffled
from compiler.schedule.rules.threads.rows import take_result
from compiler.schedule.schedule import Schedule


def cluster_chain(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> bool:
    """Schedule a chain of sums, each of which reads the one before; False, and no change, for others."""
    links = find_chain(schedule.program)
    if not links or not all(reads_along_terms(schedule.program, link) for link in links):
        return False
    options = chain_options(count(links[0].samples), [link.layer for link in links], facts)
    if not options:
        return False
    blocks, threads = chooser.choose("chain.team", options)
    return schedule.attempt(_Chain(links, blocks, threads, shuffled(facts)).run)


@dataclass(frozen=True, slots=True)
class _Chain:
    """How a cluster makes a chain: blocks of the cluster, threads of a block, lanes of a sub-group."""

    links: Sequence[Link]
    blocks: int
    threads: int
    lanes: int

    def run(self, schedule: Schedule) -> None:
        """Number what all blocks of the program do; then place it, from the last layer to the first."""
        end = self.links[-1]
        last = take_result(schedule, end.name, follow=True)
        sample, rank, row = self._number_last(schedule, last)
        factors = [self._number(schedule, number) for number in range(len(self.links))]
        made = [self._number_result(schedule, link) for link in self.links]
        ranks = [rank]
        for link, factor, (writer, part) in [*zip(self.links, factors, made, strict=True)][::-1]:
            if link is not end:
                _, rank, row, *_ = schedule.compute_at(writer, sample, preserve_unit_loops=True)
                ranks.append(rank)
            elif part:
                self._to_threads(schedule, row)
                _, _, row, *_ = schedule.compute_at(writer, rank, preserve_unit_loops=True)
            if part:
                self._combine(schedule, row)
                self._place_parts(schedule, part, rank)
            else:
                self._place_sum(schedule, link.name, self._to_threads(schedule, row))
            if factor:
                self._place_factor(schedule, factor, rank)
        for loop in ranks:
            schedule.bind(loop, RANK)
        schedule.bind(sample, BLOCK)

    def _by_lanes(self, link: Link) -> bool:
        """Whether the lanes of a sub-group share a sum: of more terms than there are lanes."""
        return link.layer.terms > self.lanes

    # -- iterations, and how what is passed on lies in memory

    def _apart(self, link: Link, row: Expr) -> list[Expr]:
        """The block that has a result, and its place there: equal shares, or one after the other."""
        if link.layer.is_even(self.blocks):
            share = link.layer.share(self.blocks)
            return [row // share, row % share]
        return [row % self.blocks, row // self.blocks]

    def _number_last(self, schedule: Schedule, last: str) -> tuple[str, ...]:
        """Let the block behind the chain run over samples, blocks of the cluster and results of each."""
        end = self.links[-1]
        site = schedule.site(last)
        sample, row = read_by(site, schedule.site(end.name).target, end.dims)
        outputs = [sample, *self._apart(end, row)]
        return schedule.transform_block_layout(last, IndexMap.of(len(site.block.iters), outputs))

    def _number(self, schedule: Schedule, number: int) -> str:
        """Let a sum run over samples, results and terms, and read its factor from memory of its block.

        Gives the block that puts the factor there, "" where there is none.
        """
        link = self.links[number]
        rank = len(schedule.block(link.name).iters)
        factor = self._stage(schedule, link, self.links[number - 1]) if number else ""
        self._lay_out_weights(schedule, link)
        sample, row, term = link.numbers
        outputs = [sample, *self._apart(link, row), term]
        schedule.transform_block_layout(link.name, IndexMap.of(rank, outputs))
        return factor

    def _stage(self, schedule: Schedule, link: Link, before: Link) -> str:
        block = schedule.block(link.name)
        parts = factors_of(block)
        assert link.operand is not None
        assert parts is not None
        used = variables(parts[link.operand])
        axes = [number for number, item in enumerate(block.iters) if item.var.name in used]
        factor, buffer = schedule.cache_operand(link.name, link.operand, tuple(axes), SHARED)
        at = {AXES[number].name: AXES[place] for place, number in enumerate(axes)}
        sample, _, term = (substitute(role, at) for role in link.numbers)
        schedule.transform_layout(buffer, IndexMap.of(len(axes), [sample, term]))
        outputs = [sample, *self._apart(before, term)]
        schedule.transform_block_layout(factor, IndexMap.of(len(axes), outputs))
        return factor

    def _lay_out_weights(self, schedule: Schedule, link: Link) -> None:
        """What neighbouring threads read lies side by side: terms where lanes share a sum, else rows."""
        block, lanes = schedule.site(link.name), self._by_lanes(link)
        terms = {item.var for item in block.reduce}
        for load in block.loads:
            if load.buffer.scope != CONSTANT or not plainly_indexed(load):
                continue
            order = sorted(range(len(load.indices)), key=lambda dim: (load.indices[dim] in terms) == lanes)
            if order != sorted(order):
                schedule.transform_layout(load.buffer.name, IndexMap.identity(len(order)).reordered(order))

    def _number_result(self, schedule: Schedule, link: Link) -> tuple[str, str]:
        """Let results lie in the block of the cluster that makes them.

        Gives the block that writes them, and the block of the parts that lanes have; "" where there is none.
        """
        target, end = schedule.site(link.name).target, link is self.links[-1]
        sample, row = link.dims
        block, place = self._apart(link, row)
        rank = len(schedule.func.buffer(target).shape)
        schedule.transform_layout(target, IndexMap.of(rank, [block, sample, place]))
        if not self._by_lanes(link):
            writer = "" if end else schedule.cache_write(link.name, target, REGISTER)
            schedule.set_scope(target, REGISTER if end else CLUSTER)
            return writer, ""
        schedule.set_scope(target, SHARED if end else CLUSTER)
        return link.name, self._cut(schedule, link.name)

    def _cut(self, schedule: Schedule, name: str) -> str:
        """Cut a sum into parts, one for each lane of a sub-group; gives the block that makes them."""
        lane = schedule.split(schedule.loops(name)[-1], (None, self.lanes))[1]
        part, buffer = schedule.rfactor(name, lane)
        schedule.set_scope(buffer, REGISTER)
        return part

    # -- loops

    def _place_sum(self, schedule: Schedule, name: str, thread: str) -> None:
        """Let a thread do a short sum by itself, all terms asked for at a time."""
        term = schedule.compute_at(name, thread, preserve_unit_loops=True)[-1]
        schedule.decompose_reduction(name, term)
        schedule.unroll(term)

    def _combine(self, schedule: Schedule, row: str) -> None:
        """Let the lanes of each sub-group add up what they have of one result, and of the next ones."""
        own, group = schedule.split(row, (None, self.threads // self.lanes))
        schedule.unroll(own)
        schedule.annotate(group, LANES, self.lanes)

    def _place_parts(self, schedule: Schedule, part: str, rank: str) -> None:
        """Let the lanes of sub-groups make the parts of sums, as much as they can at a time."""
        row, lane, term = schedule.compute_at(part, rank, preserve_unit_loops=True)[-3:]
        row, group = schedule.split(row, (None, self.threads // self.lanes))
        schedule.reorder(group, lane, row, term)
        schedule.bind(schedule.fuse(group, lane), THREAD)
        schedule.decompose_reduction(part, term)
        for loop in (row, term):
            schedule.unroll(loop)

    def _place_factor(self, schedule: Schedule, factor: str, rank: str) -> None:
        """Let neighbouring threads read what neighbours in a block of the cluster made, of all blocks."""
        _, block, place = schedule.compute_at(factor, rank, preserve_unit_loops=True)
        schedule.reorder(place, block)
        schedule.unroll(block)
        self._to_threads(schedule, place)

    def _to_threads(self, schedule: Schedule, loop: str) -> str:
        """Give each iteration of a loop to a thread; gives the loop of a thread over its own ones."""
        own, thread = schedule.split(loop, (None, self.threads))
        schedule.reorder(thread, own)
        schedule.bind(thread, THREAD)
        return own
