"""How much of the peak a matrix product reaches, step by step of the schedule in docs/schedules.md.

    python benchmarks/schedules.py [--size 768] [--turns 12]

Each step and the peak (`compiler/verify/peak.py`) are measured in turns. One thread: in processor time, so
that others on the machine count less; all threads: by the clock on the wall. Beside the median is the best
turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from support import ROOT, machine, markdown_table, save

sys.path.insert(0, str(ROOT / "examples"))

import numpy as np
import product_by_hand as by_hand

from compiler.core.settings import load_settings, usable_processors
from compiler.schedule import build
from compiler.verify.peak import Machine

BAR = 0.8
_PEAK_SECONDS = 0.03


@dataclass(frozen=True, slots=True)
class Result:
    """A step of the schedule: its threads, GFLOP/s and parts of the peak (median and best of the turns)."""

    step: str
    threads: int
    gflops: float
    median: float
    best: float


def measured(
    step: str, threads: int, run: Callable[[], None], clock: Callable[[], float], size: int, turns: int
) -> Result:
    """Run and peak in turns; the peak is the best that was seen, as nothing is above it."""
    peak, rates, here = 0.0, [], Machine(load_settings())
    run()
    for _ in range(turns):
        peak = max(peak, here.flops(threads, _PEAK_SECONDS))
        started = clock()
        run()
        rates.append(2 * size**3 / (clock() - started))
    best, middle = max(rates), statistics.median(rates)
    return Result(step, threads, middle / 1e9, middle / peak, best / peak)


def main() -> None:
    """Measure all steps on one thread and the last one on all, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", type=int, default=768, help="of the square matrices, a multiple of 96")
    parser.add_argument("--turns", type=int, default=12)
    options = parser.parse_args()
    size, everywhere = options.size, usable_processors()
    a, b = np.random.default_rng(0).standard_normal((2, size, size), dtype=np.float32)
    results = []
    for make in by_hand.STEPS:
        kernel = build(make(size, size, size), threads=1)
        assert np.allclose(kernel(a, b), a @ b, atol=1e-2), make.__name__
        turns = 2 if make is by_hand.naive else options.turns
        clock = time.thread_time
        results.append(measured(make.__name__, 1, kernel.bound(a, b), clock, size, turns))
    kernel = build(by_hand.parallel(size, size, size), threads=everywhere)
    last = (everywhere, kernel.bound(a, b), time.perf_counter, size, options.turns)
    results.append(measured("parallel", *last))
    rows = [(r.step, str(r.threads), f"{r.gflops:.1f}", f"{r.median:.1%}", f"{r.best:.1%}") for r in results]
    head = ("step", "threads", "GFLOP/s", "of the peak", "best turn")
    table = markdown_table(head, rows)
    print(table)
    busy = os.getloadavg()[0]
    if busy > everywhere / 2:
        print(f"the machine is busy (load {busy:.1f}): the last row, by the clock on the wall, says little")
    save("schedules", {"machine": machine(), "results": [asdict(one) for one in results]}, table)
    alone = results[-2]
    print(
        f"{alone.step} on one thread: {'reaches' if alone.median >= BAR else 'misses'} {BAR:.0%} of the peak"
    )


if __name__ == "__main__":
    main()
