"""From the canonical graph to groups of operators in their layouts, as the job's target and options ask."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from compiler.core.target import TargetFacts
from compiler.graph.choose_layouts import LayoutCosts
from compiler.graph.convert import LaidOut, lay_out
from compiler.graph.edit import described
from compiler.graph.fuse import MOST_NODES, FusedGraph, FusionOptions, Group, fuse
from compiler.graph.fuse_attention import fuse_attention
from compiler.graph.fuse_chains import fuse_chains
from compiler.graph.fuse_factors import fuse_factors
from compiler.graph.ir import Graph, Node
from compiler.stages.cluster_chains import has_clusters, seconds_of_chain
from compiler.stages.device_layout_costs import DeviceLayoutCosts
from compiler.stages.job import CompileJob
from compiler.stages.layout_costs import Cycles, TargetLayoutCosts
from compiler.stages.made_factors import pays
from compiler.stages.optional import (
    BLOCK_LAYOUTS,
    FUSE,
    FUSE_ATTENTION,
    FUSE_CHAINS,
    FUSE_DEPTHWISE,
    FUSE_ELEMENTWISE,
    FUSE_SCORES,
    IN_PLACE,
)
from compiler.stages.tuned import Layouts

_LANES = {Layouts.CHEAP_LANES: 0.5, Layouts.DEAR_LANES: 2.0}
"""How much dearer what fills no vectors is taken to be."""


def fused_groups(graph: Graph, job: CompileJob) -> FusedGraph:
    """The graph cut into groups, each one kernel."""
    applications = job.limits.of(FUSE)
    most = job.graph.fusion or MOST_NODES
    blocks = job.target.facts.binds_threads
    most = most if job.does(FUSE) else 1
    on_host = job.target.device is None
    fused = fuse(graph, FusionOptions(most, applications.most, reorders=blocks, leaves_out=on_host))
    for node in fused.joined:
        applications.add(described(node))
    joins = job.does(FUSE) and job.graph.attention and job.does_whole(FUSE_ATTENTION)
    if joins:
        whole = not blocks or (not graph.symbols and job.does_whole(FUSE_SCORES))
        fused = fuse_attention(fused, threads=blocks, scores=whole)
    if not blocks or not job.does(FUSE) or graph.symbols:
        return fused
    facts = job.target.facts
    windows = job.graph.depthwise and job.does_whole(FUSE_DEPTHWISE)
    elementwise = job.graph.elementwise and job.does_whole(FUSE_ELEMENTWISE)

    def joins_factor(first: Group, product: Node) -> bool:
        wanted = windows if first.anchor is not None else elementwise
        return wanted and pays(first, product, facts)

    fused = fuse_factors(fused, joins_factor)
    if has_clusters(facts) and job.graph.chains and job.does_whole(FUSE_CHAINS):
        fused = fuse_chains(fused, partial(seconds_of_chain, graph=graph, facts=facts))
    return fused


def _costs(facts: TargetFacts, way: Layouts) -> LayoutCosts:
    """What layouts cost on a target."""
    if facts.binds_threads:
        return DeviceLayoutCosts(facts)
    return TargetLayoutCosts(facts, Cycles().scaled(_LANES.get(way, 1.0)))


def laid_out_groups(fused: FusedGraph, job: CompileJob) -> LaidOut:
    """The groups, and how each tensor between them lies in memory."""
    way = job.graph.layout
    costs = _costs(job.target.facts, way)
    blocks = job.does_whole(BLOCK_LAYOUTS) and way != Layouts.ROW_MAJOR
    laid_out = lay_out(fused, costs, blocks=blocks, conversions=way != Layouts.WITHOUT_COPIES)
    made = replace(laid_out, in_place=job.does(IN_PLACE))
    if made.aliases:
        job.limits.of(IN_PLACE).are_all("the model")
    return made
