"""The process that times whole libraries: their kernels in the network, and two libraries in turns.

Request on standard input, answer on standard output, as `verify.child` has it.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.core.progress import Progress
from compiler.verify.child import serve

if TYPE_CHECKING:
    from compiler.runtime.loader import BoundRun

_PROFILED_SHARE = 0.5
"""Of the time for a comparison, the part in which kernels are timed one by one."""
_FEWEST_PROFILES = 8


def _compared(request: Any, tell: Progress) -> dict[str, Any]:
    """Time the libraries of a request.

    kernels: for each workload that all of them have the milliseconds of all its calls, in each library, and
    the interval of the ratio of the last to the first. whole: the median milliseconds of each. wrong: the
    first output of the second library that is not the first's within the tolerance; empty where all are.
    """
    from compiler.verify.device import load
    from compiler.verify.inputs import read_feeds
    from compiler.verify.sizes import sizes_of
    from compiler.verify.timing import difference, measure

    libraries = [load(Path(one), device=request["device"]) for one in request["libraries"]]
    first = libraries[0]
    sizes = sizes_of(first.manifest, first.inputs, {}, {})
    feeds = read_feeds(first.inputs, (), request["seed"], sizes=sizes)
    bound = [one.context(request["threads"]).bind(feeds) for one in libraries]
    wrong = _wrong(bound, request["reduction"])
    seconds = float(request["seconds"])
    kernels = _kernels(request["workloads"], bound, seconds * _PROFILED_SHARE, tell)
    runs = {str(number): one.run for number, one in enumerate(bound)}
    times = measure(runs, warmup=0.1, seconds=seconds, progress=tell)
    whole = [times[name].p50 for name in runs]
    compared = asdict(difference(times["1"], times["0"])) if len(bound) > 1 else None
    return {"kernels": kernels, "whole": whole, "difference": compared, "wrong": wrong}


def _wrong(bound: Sequence[BoundRun], reduction: int) -> str:
    """Which output of another library differs from the first one's."""
    from compiler.verify.compare import compare
    from compiler.verify.tolerance import tolerance_for

    results = []
    for one in bound:
        one.run()
        results.append({name: array.copy() for name, array in one.outputs().items()})
    for name, expected in results[0].items():
        for actual in results[1:]:
            found = compare(name, actual[name], expected, tolerance_for(expected.dtype, reduction))
            if not found.passed:
                return f"{name}: {found.problem or f'differs by {found.needed:.2g}'}"
    return ""


def _kernels(
    names: Sequence[Sequence[str]], bound: Sequence[BoundRun], seconds: float, tell: Progress
) -> list[dict[str, Any]]:
    """Times of each workload, all its calls together, from profiles in turns; `names` has each kernel's."""
    turns: list[list[dict[str, float]]] = []
    begun = time.perf_counter()
    while len(turns) < _FEWEST_PROFILES or time.perf_counter() < begun + seconds:
        turns.append([_sums(one, own) for one, own in zip(bound, names, strict=True)])
        tell("profiling", min(1.0, (time.perf_counter() - begun) / max(seconds, 1e-9)), 1.0)
    shared = set(names[0]).intersection(*names)  # with other layouts there are other kernels
    return [_kernel(name, turns) for name in dict.fromkeys(names[0]) if name in shared]


def _sums(bound: BoundRun, names: Sequence[str]) -> dict[str, float]:
    sums = dict.fromkeys(names, 0.0)
    for step in bound.profile():
        sums[names[step.kernel]] += step.nanoseconds * 1e-6
    return sums


def _kernel(name: str, turns: Sequence[Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    from compiler.verify.timing import median_interval

    times = [statistics.median(turn[library][name] for turn in turns) for library in range(len(turns[0]))]
    ratios = [turn[-1][name] / max(turn[0][name], 1e-9) for turn in turns]
    return {"workload": name, "ms": times, "interval": median_interval(ratios)}


def main() -> int:
    """Time the libraries of one request."""
    return serve(_compared)


if __name__ == "__main__":
    sys.exit(main())
