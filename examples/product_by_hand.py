"""A matrix product scheduled by hand, from three loops to most of what a processor can do.

docs/schedules.md explains each step; benchmarks/schedules.py measures them.
"""

from __future__ import annotations

from compiler.schedule import Builder, Func, Schedule

LANES = 8  # of float32 in a vector of 256 bits


def product(m: int, n: int, k: int) -> Func:
    b = Builder("product")
    A = b.input("A", (m, k))
    B = b.input("B", (k, n))
    C = b.reduce("C", (m, n), (k,), lambda i, j, r: A[i, r] * B[r, j])
    return b.finish([C])


def naive(m: int, n: int, k: int) -> Schedule:
    return Schedule(product(m, n, k))


def vectorised(m: int, n: int, k: int) -> Schedule:
    s = Schedule(product(m, n, k))
    i, j, r = s.loops("C")
    outer, lanes = s.split(j, (None, LANES))
    s.reorder(i, r, outer, lanes)
    s.vectorize(lanes)
    return s


def register_tiled(m: int, n: int, k: int) -> Schedule:
    s = Schedule(product(m, n, k))
    write = s.cache_write("C", "C", "register")
    i, j, r = s.loops("C")
    rows, row = s.split(i, (None, 6))
    columns, column, lanes = s.split(j, (None, 2, LANES))
    s.reorder(columns, rows, r, row, column, lanes)
    s.reverse_compute_at(write, rows)
    finish_tile(s, write)
    return s


def finish_tile(s: Schedule, write: str) -> None:
    """Let the tile of C live in registers: start it before the sum, unroll it, compute with vectors."""
    r = s.loops("C")[-4]
    start = s.decompose_reduction("C", r)
    s.split(s.loops(write)[-1], (None, LANES))
    for block in ("C", start, write):
        *_, row, column, lanes = s.loops(block)
        s.vectorize(lanes)
        s.unroll(column)
        s.unroll(row)


def packed(m: int, n: int, k: int) -> Schedule:
    s = Schedule(product(m, n, k))
    pack, panels = s.cache_operand("C", 1, (1, 2), "scratch")
    s.transform_layout(panels, "j, r -> j // 16, r, j % 16")
    s.transform_block_layout(pack, "j, r -> j // 16, r, j % 16")
    write = s.cache_write("C", "C", "register")
    i, j, r = s.loops("C")
    rows, row = s.split(i, (None, 6))
    columns, panel, column, lanes = s.split(j, (None, 2, 2, LANES))
    s.reorder(columns, rows, panel, r, row, column, lanes)
    s.reverse_compute_at(write, panel)
    s.compute_at(pack, columns)
    s.vectorize(s.loops(pack)[-1])
    finish_tile(s, write)
    return s


def parallel(m: int, n: int, k: int) -> Schedule:
    s = packed(m, n, k)
    s.parallel(s.loops("C")[0])
    return s


STEPS = (naive, vectorised, register_tiled, packed, parallel)
