"""From the canonical graph to groups of operators in their layouts, as the job's target and options ask."""

from __future__ import annotations

from dataclasses import replace

from compiler.graph.convert import LaidOut, lay_out
from compiler.graph.edit import described
from compiler.graph.fuse import MOST_NODES, FusedGraph, fuse
from compiler.graph.fuse_attention import fuse_attention
from compiler.graph.ir import Graph
from compiler.stages.job import CompileJob
from compiler.stages.layout_costs import TargetLayoutCosts
from compiler.stages.optional import BLOCK_LAYOUTS, FUSE, FUSE_ATTENTION, IN_PLACE


def fused_groups(graph: Graph, job: CompileJob) -> FusedGraph:
    """The graph cut into groups, each one kernel."""
    applications = job.limits.of(FUSE)
    fused = fuse(graph, MOST_NODES if job.does(FUSE) else 1, applications.most)
    for node in fused.joined:
        applications.add(described(node))
    joins = job.does(FUSE) and not job.target.facts.binds_threads and job.does_whole(FUSE_ATTENTION)
    return fuse_attention(fused) if joins else fused


def laid_out_groups(fused: FusedGraph, job: CompileJob) -> LaidOut:
    """The groups, and how each tensor between them lies in memory."""
    laid_out = lay_out(fused, TargetLayoutCosts(job.target.facts), blocks=job.does_whole(BLOCK_LAYOUTS))
    made = replace(laid_out, in_place=job.does(IN_PLACE))
    if made.aliases:
        job.limits.of(IN_PLACE).are_all("the model")
    return made
