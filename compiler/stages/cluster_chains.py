"""What one launch of a cluster of blocks saves for small layers that follow each other, on a target."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.core.target import TargetFacts
from compiler.graph.fuse import Group
from compiler.graph.ir import Graph
from compiler.graph.join_groups import FIRST, joined_group
from compiler.graph.to_loops import group_forms
from compiler.schedule.rules.common import inline_injective
from compiler.schedule.rules.threads.chain_cost import seconds_saved
from compiler.schedule.rules.threads.chain_links import count, find_chain
from compiler.schedule.rules.threads.cluster import most_blocks
from compiler.schedule.schedule import Schedule


def has_clusters(facts: TargetFacts) -> bool:
    """Whether blocks of a target pass values to each other."""
    return most_blocks(facts) > 1


def seconds_of_chain(groups: Sequence[Group], graph: Graph, facts: TargetFacts) -> float:
    """Seconds that one launch for groups saves by estimate; below 0 where several are better."""
    forms = group_forms(joined_group(groups, graph, FIRST), graph.constants, threads=True)
    schedule = Schedule(next(iter(forms.values())).func)
    inline_injective(schedule, repeat=True)
    links = find_chain(schedule.program)
    layers = [group for group in groups if group.anchor is not None]
    if len(links) != len(layers):
        return -1.0
    return seconds_saved(count(links[0].samples), [link.layer for link in links], facts)
