"""All kernels of a library: made by several processes, and on to the compiler as they come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from compiler.core.copies import in_copies
from compiler.core.progress import Steps
from compiler.stages.job import STAGES, CompileJob
from compiler.stages.kernels import Kernel, KernelTask, Step, kernel_name, make_kernel
from compiler.targets.build import KernelBuild

_FEW = 256
"""Kernels that are a source each, so that a model's next version finds most of them compiled."""
_SHORTEST = 500
"""Lines of a source where there are more: to start the compiler takes as long as many a small kernel."""
_KERNELS_EACH, _MOST_PROCESSES = 2, 16
"""A copy takes 10 ms, a small kernel for the host 20, one for a GPU up to half a second."""

Made = Iterator[Kernel | None]
"""Kernels in the order of their numbers; None where the job ends before the source text."""


@contextmanager
def made_kernels(tasks: Sequence[KernelTask], job: CompileJob, steps: Sequence[Step] = ()) -> Iterator[Made]:
    """Make the kernels, by as many processes as the job may have; they end with the context.

    `steps` say what they compute, for whoever asks what a pass was applied to. See `in_copies` for what other
    threads must not do.
    """
    names = {step.kernel: kernel_name(step.group) for step in reversed(steps)}

    def make(number: int) -> Kernel | None:
        return make_kernel(number, tasks[number], job, names.get(number, ""))

    with in_copies(make, len(tasks), processes_for(len(tasks), job)) as made:
        yield made


def processes_for(kernels: int, job: CompileJob) -> int:
    """How many processes make the kernels: this one alone where it dumps, counts or asks the user's code."""
    options = job.options
    watched = job.dump or job.edit or options.limits or job.target.plugins.loaded or job.last != STAGES[-1]
    most = job.settings.jobs if options.processes is None else options.processes
    return 1 if watched else max(1, min(most, kernels // _KERNELS_EACH, _MOST_PROCESSES))


def build_kernels(
    made: Made, count: int, job: CompileJob, build: KernelBuild | None
) -> tuple[list[Kernel], list[Future[Path]]]:
    """All `count` kernels, and their objects to come where the host runs them: `build` starts with each text.

    Making a kernel's text and compiling it are told as a half each.
    """
    kernels: list[Kernel] = []
    done = Steps(job.progress, "kernels", count)
    compiles = build is not None and job.target.device is None
    sources = _Sources(build, done, _SHORTEST if count > _FEW else 1) if build and compiles else None
    for kernel in made:
        if kernel is not None:
            kernels.append(kernel)
        if kernel is not None and sources is not None:
            done.advance(0.5)
            sources.add(kernel)
        else:
            done.advance()
    if job.edit is not None:
        job.edit.check_applied(count)
    return kernels, sources.finish() if sources is not None else []


@dataclass(slots=True)
class _Sources:
    """Kernels on their way to the compiler, several to a source of at least `shortest` lines."""

    build: KernelBuild
    done: Steps
    shortest: int
    waiting: list[Kernel] = field(default_factory=list)
    objects: list[Future[Path]] = field(default_factory=list)

    def add(self, kernel: Kernel) -> None:
        self.waiting.append(kernel)
        if sum(item.text.count("\n") for item in self.waiting) >= self.shortest:
            self._submit()

    def finish(self) -> list[Future[Path]]:
        """The objects of all kernels, in order."""
        if self.waiting:
            self._submit()
        return self.objects

    def _submit(self) -> None:
        kernels, self.waiting = self.waiting, []
        first, last, count = kernels[0].number, kernels[-1].number, len(kernels)
        name = f"kernel {first}" if count == 1 else f"kernels {first} to {last}"
        self.objects.append(self.build.submit(name, "\n".join(item.text for item in kernels), count))
        self.objects[-1].add_done_callback(lambda _: self.done.advance(0.5 * count))
