"""What a device gets of a model: the module of all its kernels, and which launches make up a run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import accumulate

from compiler.core.files import sha256_file
from compiler.core.target import TargetFacts
from compiler.graph.branches import Branches
from compiler.graph.memory import SAMPLE_ALIGNMENT
from compiler.render.host import DevicePlan, PlanLaunch, PlanStep, PlanTurn
from compiler.stages.dump import MODULE
from compiler.stages.job import CompileJob
from compiler.stages.kernels import Kernel
from compiler.targets.device import Module

_MODEL_DIGITS = 8


def device_module(kernels: Sequence[Kernel], job: CompileJob) -> Module | None:
    """All device functions of a model as one source; None where the host runs the kernels."""
    if job.target.device is None:
        return None
    text = job.target.vocabulary.module([kernel.text for kernel in kernels])
    job.dump.model(MODULE, text, job.target.device.suffix)
    launches = tuple(launch for kernel in kernels for launch in kernel.launches)
    return Module(text, launches, sha256_file(job.model)[:_MODEL_DIGITS])


def most_samples(kernels: Sequence[Kernel], facts: TargetFacts) -> int:
    """Of a free batch: as many as all grids have room for, along z."""
    blocks = max((launch.grid[2] for kernel in kernels for launch in kernel.launches), default=1)
    return (facts.limit("grid_z") or sys.maxsize) // blocks


def device_plan(
    target: str,
    kernels: Sequence[Kernel],
    steps: Sequence[PlanStep],
    counter_bytes: int,
    *,
    has_samples: bool = False,
    branches: Branches | None = None,
) -> DevicePlan:
    """The launches of one run: those of each step's kernel, on the step's arguments.

    counter_bytes: of what is zero between runs. has_samples: whether each is for one sample of a free batch.
    branches: which steps may be side by side.
    """
    numbers = {launch.name: n for n, launch in enumerate(one for item in kernels for one in item.launches)}
    firsts = accumulate((len(step.all_args) for step in steps), initial=0)
    launches = [
        PlanLaunch(
            function=numbers[launch.name],
            step=number,
            args=tuple(first + param for param in launch.params),
            grid=launch.grid,
            block=launch.block,
            shared_bytes=launch.shared_bytes,
            dynamic_bytes=launch.dynamic_bytes,
            elastic=launch.elastic,
            block_bytes=launch.block_bytes,
            ends=launch.ends,
        )
        for number, (step, first) in enumerate(zip(steps, firsts, strict=False))
        for launch in kernels[step.kernel].launches
    ]
    alignment = SAMPLE_ALIGNMENT if has_samples else 0
    turns: tuple[PlanTurn, ...] = ()
    if branches is not None and branches.count > 1:
        turns = tuple(map(PlanTurn, branches.of, branches.waits))
    return DevicePlan(target, tuple(numbers), tuple(launches), alignment, counter_bytes, turns)
