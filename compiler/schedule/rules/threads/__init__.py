"""The rules for devices that bind loops to threads: each outermost loop nest becomes one launch."""

from __future__ import annotations

from compiler.core.target import TargetFacts
from compiler.schedule.chooser import Chooser
from compiler.schedule.rules.common import consumer
from compiler.schedule.rules.im2col import lay_out_columns
from compiler.schedule.rules.threads.chain import cluster_chain
from compiler.schedule.rules.threads.elementwise import elementwise_kernel
from compiler.schedule.rules.threads.follow_layouts import follow_layouts
from compiler.schedule.rules.threads.gemm import implicit_gemm
from compiler.schedule.rules.threads.made_factor import made_product
from compiler.schedule.rules.threads.matrix import matrix_gemm
from compiler.schedule.rules.threads.reduction import reduction
from compiler.schedule.rules.threads.rows import block_reduction
from compiler.schedule.rules.threads.split_k import split_k
from compiler.schedule.rules.threads.weighting import weighted_rows
from compiler.schedule.rules.threads.winograd import fused_winograd
from compiler.schedule.schedule import Schedule


def schedule_threads(schedule: Schedule, facts: TargetFacts, chooser: Chooser) -> None:
    """Schedule a kernel, whose parameters have their layouts, for a device that binds threads."""
    lay_out_columns(schedule, chooser)
    follow_layouts(schedule)
    whole = (fused_winograd, weighted_rows, made_product, cluster_chain)
    if not any(rule(schedule, facts, chooser) for rule in whole):
        block_reduction(schedule, facts, chooser)
    for name, block in schedule.program.blocks.items():
        if block.is_reduction and name in schedule.blocks() and not is_placed(schedule, name):
            _reduction(schedule, name, facts, chooser)
    for name, block in schedule.program.blocks.items():
        if not block.is_reduction and not is_placed(schedule, name):
            elementwise_kernel(schedule, consumer(schedule, name), facts, chooser)


def _reduction(schedule: Schedule, name: str, facts: TargetFacts, chooser: Chooser) -> None:
    """Schedule a sum and what follows it, by the first rule that takes it."""
    products = (split_k, matrix_gemm, implicit_gemm)
    if not any(rule(schedule, name, facts, chooser) for rule in products):
        reduction(schedule, name, facts, chooser)


def is_placed(schedule: Schedule, name: str) -> bool:
    """Whether a rule has already given a block its place: under a bound loop, or beside one."""
    outer = schedule.loops(name)[:1]
    return bool(outer) and any(getattr(item, "tag", None) for item in schedule.loop(outer[0]).walk())
