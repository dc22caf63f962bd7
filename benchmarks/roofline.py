"""This machine's bounds: fused multiply-adds, and reading and copying memory at several sizes.

    python benchmarks/roofline.py [--threads 1 2]

Every number is the best of many passes over buffers of each thread's own, all threads together.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import Literal

from support import machine, markdown_table, save

from compiler.core.settings import load_settings
from compiler.verify.peak import Machine, peak_gflops

# Working set of one thread.
SIZES = {"L1": 16 << 10, "L2": 768 << 10, "8 MiB": 8 << 20, "128 MiB": 128 << 20, "1 GiB": 1 << 30}


@dataclass(frozen=True, slots=True)
class Roofline:
    """GFLOP/s of f32 multiply-adds; GB/s by working set, a copy counting what it reads and what it writes."""

    threads: int
    gflops: float
    read: dict[str, float]
    copy: dict[str, float]


def memory_rate(kind: Literal["read", "copy"], threads: int, size: int, seconds: float = 0.3) -> float:
    """GB/s of `threads` threads that each read or copy `size` bytes of their own again and again."""
    return Machine(load_settings()).memory(kind, size, threads=threads, seconds=seconds) / 1e9


def measure(threads: int) -> Roofline:
    """Measure with `threads` threads; some five seconds."""
    read = {name: memory_rate("read", threads, size) for name, size in SIZES.items()}
    copy = {name: memory_rate("copy", threads, size) for name, size in SIZES.items()}
    return Roofline(threads, peak_gflops(threads, load_settings()), read, copy)


def main() -> None:
    """Print and save the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="*", default=list(range(1, load_settings().jobs + 1)))
    arguments = parser.parse_args()
    found = [measure(threads) for threads in arguments.threads]
    head = ["threads", "GFLOP/s", *(f"read {size}" for size in SIZES), *(f"copy {size}" for size in SIZES)]
    rows = [
        [
            str(one.threads),
            f"{one.gflops:.0f}",
            *(f"{one.read[size]:.1f}" for size in SIZES),
            *(f"{one.copy[size]:.1f}" for size in SIZES),
        ]
        for one in found
    ]
    text = f"f32 multiply-adds in GFLOP/s, memory in GB/s.\n\n{markdown_table(head, rows)}"
    print(text)
    save("roofline", {"machine": machine(), "rooflines": [asdict(one) for one in found]}, text)


if __name__ == "__main__":
    main()
