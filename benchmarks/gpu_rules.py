"""Rules of the compiler on and off beside each other on a device: what each is worth there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from gpu_jobs import Job, Row
from support import markdown_table

RULES: Mapping[str, tuple[str, ...]] = {
    "clusters,last-blocks": ("resnet50", "resnet50+tf32", "resnet50+f16", "squeezenet"),
    "clusters": ("resnet50",),
    "fused-winograd": ("vgg19", "resnet50", "unet"),
    "fuse-depthwise": ("mobilenetv2", "shufflenet", "efficientnet-lite4"),
    "parallel-branches": ("inception_v1", "squeezenet", "detector"),
    "fuse-elementwise": ("densenet121", "mobilenetv3-large", "resnet50-v2"),
    "fuse-chains": ("efficientnet-b0", "mobilenetv3-large"),
    "fuse-scores": ("bert-base+f16", "whisper-tiny-encoder+f16", "transformer-encoder", "bert-base"),
    "constants_first": ("resnet50+f16", "squeezenet"),
}
"""What `CompileOptions.without` calls them, each with jobs that it changes, the most telling first.

Without clusters alone, last blocks add chunks up; without both a launch does.
"""
TURNS = (True, False, False, True)
"""With and without, in an order in which what a device does later (its clock falls) weighs on both alike."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A job's milliseconds of kernels alone with a rule and without it, each time that it was measured."""

    rule: str
    job: str
    with_ms: tuple[float, ...] = ()
    without_ms: tuple[float, ...] = ()
    problem: str = ""

    @property
    def ratio(self) -> float | None:
        """The time with the rule as a part of that without it; None where a time is missing."""
        return mean(self.with_ms) / mean(self.without_ms) if self.with_ms and self.without_ms else None


def comparisons() -> tuple[tuple[str, Job], ...]:
    """Every rule with each of its jobs: the first jobs of all rules, then the second ones."""
    ranked = [(rank, rule, Job.parse(job)) for rule, jobs in RULES.items() for rank, job in enumerate(jobs)]
    return tuple((rule, job) for _, rule, job in sorted(ranked, key=lambda one: one[0]))


def jobs_of(wanted: Iterable[tuple[str, Job]]) -> tuple[Job, ...]:
    """The jobs whose libraries these comparisons take, each once."""
    both = (one for rule, job in wanted for one in (job, replace(job, without=rule)))
    return tuple(dict.fromkeys(both))


def compared(rule: str, job: Job, time_job: Callable[[Job], Row]) -> Comparison:
    """Time a job with and without a rule, in turns; `problem` says why there is no ratio."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for takes in TURNS:
        row = time_job(job if takes else replace(job, without=rule))
        if row.problem or row.kernels_ms is None:
            why = row.problem or "kernels alone were not timed"
            return Comparison(rule, str(job), problem=f"{row.job}: {why}")
        found[takes].append(row.kernels_ms)
    return Comparison(rule, str(job), tuple(found[True]), tuple(found[False]))


def table(rows: Sequence[Comparison]) -> str:
    """One row per comparison."""
    lines = [
        [
            row.rule,
            row.job,
            *(
                " ".join(f"{1e3 * one:.1f}" for one in times) or "-"
                for times in (row.with_ms, row.without_ms)
            ),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
            row.problem[:160],
        ]
        for row in rows
    ]
    return markdown_table(["rule", "network", "with, us", "without, us", "with/without", "problem"], lines)
