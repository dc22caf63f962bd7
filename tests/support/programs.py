"""Small programs for the lowering and printing tests, and random schedules of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from compiler.core.diagnostics import TkError
from compiler.core.types import F32
from compiler.loops.build import Builder
from compiler.loops.ir import Func, Select, all_of, call, const, maximum
from compiler.schedule.schedule import Schedule
from tests.support.schedules import conv_direct, padded_conv_pool


def softmax(rows: int = 3, size: int = 21) -> Func:
    b = Builder("softmax")
    x = b.input("X", (rows, size))
    top = b.reduce("M", (rows,), (size,), lambda i, r: x[i, r], "max")
    e = b.compute("E", (rows, size), lambda i, j: call("exp", x[i, j] - top[i]))
    total = b.reduce("S", (rows,), (size,), lambda i, r: e[i, r])
    y = b.compute("Y", (rows, size), lambda i, j: e[i, j] / total[i])
    return b.finish([y])


def padded(h: int = 7, w: int = 19) -> Func:
    b = Builder("pad")
    x = b.input("X", (2, h, w))
    y = b.compute(
        "Y",
        (2, h + 3, w + 5),
        lambda c, i, j: Select(
            all_of(i.ge(1), i.lt(h + 1), j.ge(2), j.lt(w + 2)),  # type: ignore[arg-type]
            x[c, i - 1, j - 2],
            const(0, F32),
        ),
    )
    return b.finish([y])


def matmul(m: int = 6, n: int = 19, k: int = 11) -> Func:
    b = Builder("matmul")
    a, w = b.input("A", (m, k)), b.constant("W", (k, n))
    c = b.reduce("C", (m, n), (k,), lambda i, j, r: a[i, r] * w[r, j])
    y = b.compute("Y", (m, n), lambda i, j: maximum(c[i, j], 0.0))
    return b.finish([y])


def rows_sum(m: int = 5, k: int = 43) -> Func:
    b = Builder("rows")
    x = b.input("X", (m, k))
    return b.finish([b.reduce("Y", (m,), (k,), lambda i, r: x[i, r])])


def strided(size: int = 18) -> Func:
    b = Builder("strided")
    x = b.input("X", (3, 2 * size + 1))
    y = b.compute("Y", (3, size), lambda c, i: x[c, i * 2 + 1] - x[2 - c, 2 * size - i])
    return b.finish([y])


PROGRAMS: dict[str, Callable[[], Func]] = {
    "conv": lambda: conv_direct(h=5, w=17, k=3, c=2),
    "conv_strided": lambda: conv_direct(h=3, w=5, k=5, c=2, stride=2, dilation=2, pad=0),
    "chain": padded_conv_pool,
    "softmax": softmax,
    "pad": padded,
    "matmul": matmul,
    "rows_sum": rows_sum,
    "strided": strided,
}


def vectorised(func: Func) -> Func:
    """The innermost loop of every block that can be is vectorised."""
    schedule = Schedule(func)
    for block in schedule.blocks():
        for loop in reversed(schedule.loops(block)):
            try:
                schedule.vectorize(loop)
            except TkError:
                continue
            break
    return schedule.func


def random_schedule(func: Func, source: random.Random, steps: int = 14) -> Func:
    """Apply random primitives; those that do not fit refuse."""
    schedule = Schedule(func)
    for _ in range(steps):
        block = source.choice(schedule.blocks())
        loops = schedule.loops(block)
        loop = source.choice(loops)
        try:
            _random_step(schedule, block, loop, loops, source)
        except TkError:
            continue
    return schedule.func


def _random_step(
    schedule: Schedule, block: str, loop: str, loops: tuple[str, ...], source: random.Random
) -> None:
    kind = source.choice(
        (
            "split",
            "split",
            "fuse",
            "reorder",
            "parallel",
            "vectorize",
            "vectorize",
            "unroll",
            "at",
            "rat",
            "cache",
            "scope",
        )
    )
    if kind == "split":
        schedule.split(loop, (None, source.choice((2, 3, 4, 8, 16))), tail=source.choice(("guard", "mask")))
    elif kind == "fuse" and len(loops) > 1:
        at = source.randrange(len(loops) - 1)
        schedule.fuse(loops[at], loops[at + 1])
    elif kind == "reorder":
        schedule.reorder(*source.sample(loops, len(loops)))
    elif kind == "parallel":
        schedule.parallel(loop)
    elif kind == "vectorize":
        schedule.vectorize(loops[-1])
    elif kind == "unroll":
        schedule.unroll(loop)
    elif kind in ("at", "rat"):
        other = source.choice(schedule.blocks())
        target = source.choice(schedule.loops(other))
        (schedule.compute_at if kind == "at" else schedule.reverse_compute_at)(block, target)
    elif kind == "cache":
        written = schedule.block(block).writes[0].buffer.name
        schedule.cache_write(block, written, source.choice(("scratch", "register", "global")))
    elif kind == "scope" and schedule.func.allocs:
        schedule.set_scope(source.choice(schedule.func.allocs).name, source.choice(("scratch", "register")))
