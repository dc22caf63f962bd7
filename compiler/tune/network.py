"""The network around the kernels: untuned and tuned libraries, what each kernel takes there, and in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import CrashError
from compiler.core.progress import Progress, silent
from compiler.frontend.proto import read_model
from compiler.graph.edit import described
from compiler.pipeline import run_job
from compiler.stages.compilation import Compilation
from compiler.stages.job import CompileJob
from compiler.stages.kernels import Kernel
from compiler.stages.tuned import Records, Tuned
from compiler.stages.workload import Workload
from compiler.verify.isolate import answer_in, python_module, run_child
from compiler.verify.report import Difference
from compiler.verify.tolerance import reduction_length

_PATIENCE = 60.0
"""Seconds that a comparison may take beside the time for which it measures."""
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class BuiltLibrary:
    """A library of the network, and the kernels in it."""

    path: Path
    kernels: Sequence[Kernel]


@dataclass(frozen=True, slots=True)
class NetworkKernel:
    """One workload of the network: its operators and first node, how often it is called in an inference."""

    workload: Workload
    name: str
    calls: int
    decisions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Compared:
    """Libraries timed in one process.

    ms: of all calls of each workload, in each library; intervals: of the ratio of the last to the first, at
    95 %. whole: median milliseconds of each library. wrong: what differs between their outputs.
    """

    ms: Mapping[str, tuple[float, ...]]
    intervals: Mapping[str, tuple[float, float]]
    whole: tuple[float, ...]
    difference: Difference | None
    wrong: str


Timing = Callable[[Mapping[str, Any], Sequence[Path], Progress], Mapping[str, Any]]
"""Times libraries as a request says; returns what `_compared` reads. Raises CrashError."""


def time_here(request: Mapping[str, Any], libraries: Sequence[Path], progress: Progress) -> Mapping[str, Any]:
    """Time libraries on this machine, in a process of its own: a `Timing`."""
    timeout = _PATIENCE + 4 * len(libraries) * request["seconds"]
    argv = python_module("compiler.tune.network_child")
    asked = {**request, "libraries": [str(one) for one in libraries]}
    done = run_child(argv, asked, timeout=timeout, progress=progress)
    where = str(libraries[-1])
    if done.returncode < 0:
        raise CrashError(
            f"the library crashed with signal {-done.returncode}",
            where=where,
            why="it ran in a process of its own, to be timed",
            hint="see whether `tk verify` of the untuned library ends well, and report the model",
        )
    return answer_in(done, "the measuring process", where)


class Network:
    """A model whose kernels are tuned; libraries are made in `directory`, and timed by `timing`.

    graph: what all of them are told of the graph itself, by the key of its workload.
    """

    def __init__(
        self,
        job: CompileJob,
        directory: Path,
        *,
        threads: int | None,
        seed: int,
        timing: Timing = time_here,
    ) -> None:
        self.job = job
        self._directory = directory
        self._threads, self._seed, self._timing = threads, seed, timing
        self._reduction = reduction_length(read_model(job.model))
        self.graph: Mapping[str, Tuned] = {}

    def build(self, name: str, records: Records) -> tuple[BuiltLibrary, Compilation]:
        """Compile the model with what `records` say; raises as a compile does."""
        path = self._directory / f"{name}.so"
        seen: list[Compilation] = []
        options = replace(self.job.options, output=path)

        def known(workload: Workload) -> Tuned:
            return self.graph.get(workload.key) or records(workload)

        run_job(replace(self.job, options=options, records=known), seen.append)
        return BuiltLibrary(path, seen[0].kernels), seen[0]

    def compare(
        self, libraries: Sequence[BuiltLibrary], seconds: float, progress: Progress = silent
    ) -> Compared:
        """Time libraries for about `seconds` each, in a process of its own.

        Raises CrashError where that process crashes or does not end.
        """
        request = {
            "workloads": [[kernel.workload.key for kernel in one.kernels] for one in libraries],
            "device": self.job.settings.device,
            "threads": self._threads,
            "seed": self._seed,
            "seconds": seconds,
            "reduction": self._reduction,
        }
        return _compared(self._timing(request, [one.path for one in libraries], progress))


def _compared(answer: Mapping[str, Any]) -> Compared:
    rows = answer["kernels"]
    made = answer["difference"]
    return Compared(
        ms={row["workload"]: tuple(row["ms"]) for row in rows},
        intervals={row["workload"]: (row["interval"][0], row["interval"][1]) for row in rows},
        whole=tuple(answer["whole"]),
        difference=None if made is None else Difference(**made),
        wrong=str(answer["wrong"]),
    )


def kernels_of(compilation: Compilation) -> list[NetworkKernel]:
    """The workloads of a network, in the order of their first calls."""
    found: dict[str, NetworkKernel] = {}
    for step in compilation.steps:
        kernel = compilation.kernels[step.kernel]
        known = found.get(kernel.workload.key)
        if known is not None:
            found[known.workload.key] = replace(known, calls=known.calls + 1)
            continue
        nodes = step.group.nodes
        shown = " + ".join(described(node) for node in nodes[:_SHOWN])
        name = shown if len(nodes) <= _SHOWN else f"{shown} + {len(nodes) - _SHOWN} more"
        found[kernel.workload.key] = NetworkKernel(kernel.workload, name, 1, kernel.decisions)
    return list(found.values())
