"""Graphs in processes of their own, which may crash or hang, some of them side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing import get_context
from typing import Any

from compiler.core.diagnostics import InternalError
from compiler.core.forked import Forked, Tell, run_forked
from tests.fuzz.attempt import PLAIN, How, attempt
from tests.fuzz.graphs import TOGETHER, FuzzGraph, graph_of
from tests.fuzz.outcome import Outcome, State

_GRAPH_SECONDS = 60.0
_MEMORY = 2 << 30


def blocks(first: int, count: int, each: int) -> Iterator[list[int]]:
    """Seeds by profile, at most `each` of one."""
    while count > 0:
        last = (first // TOGETHER + 1) * TOGETHER
        seeds = list(range(first, last))[: min(each, count)]
        yield seeds
        first, count = last, count - len(seeds)


def having(op: str, wanted: Iterator[list[int]], count: int) -> Iterator[list[int]]:
    """Of these seeds the first `count` whose graphs have an operator."""
    for seeds in wanted:
        if count <= 0:
            return
        found = [seed for seed in seeds if op in {node.op_type for node in graph_of(seed).proto.graph.node}]
        if found:
            yield found[:count]
        count -= len(found)


def of_blocks(
    wanted: Iterator[list[int]], known: Mapping[int, Outcome], jobs: int, how: How, seconds: float | None
) -> Iterator[Outcome]:
    """Outcomes as they come; what was begun when time is over is ended."""
    started = time.monotonic()
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("forkserver"))
    running: set[Future[list[Outcome]]] = set()
    try:
        for seeds in wanted:
            if seconds is not None and time.monotonic() - started > seconds:
                break
            yield from (known[seed] for seed in seeds if seed in known)
            if left := [seed for seed in seeds if seed not in known]:
                running.add(pool.submit(_of_seeds, left, how))
            while len(running) > jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (outcome for one in done for outcome in one.result())
        yield from (outcome for one in running for outcome in one.result())
    finally:
        pool.shutdown(cancel_futures=True)


def _of_seeds(seeds: Sequence[int], how: How) -> list[Outcome]:
    return outcomes_of([graph_of(seed) for seed in seeds], how)


def outcomes_of(graphs: Sequence[FuzzGraph], how: How) -> list[Outcome]:
    """How graphs of one profile end, in a copy of this process, which may crash or hang; then in halves."""
    seconds = _GRAPH_SECONDS * max(2, len(graphs) / 2)
    # The address sanitizer reserves terabytes.
    memory = _MEMORY if how == PLAIN else 1 << 46
    try:
        ended = run_forked(partial(_answer, graphs, how), seconds=seconds, memory=memory)
    except InternalError as error:  # it ended itself, as a sanitizer does
        ended = Forked(None, "", 0, timed_out=False, said=error.why, seconds=0.0)
    if ended.answer is not None:
        return [
            Outcome(seed, State(state), reason, tuple(company))
            for seed, state, reason, company in ended.answer["outcomes"]
        ]
    if len(graphs) == 1:
        return [_end(graphs[0], ended)]
    middle = len(graphs) // 2
    return [*outcomes_of(graphs[:middle], how), *outcomes_of(graphs[middle:], how)]


def _answer(graphs: Sequence[FuzzGraph], how: How, _tell: Tell) -> Mapping[str, Any]:
    found = attempt(graphs, how)
    return {"outcomes": [(one.seed, one.state.value, one.reason, one.company) for one in found]}


def _end(graph: FuzzGraph, ended: Forked) -> Outcome:
    if ended.timed_out:
        return Outcome(graph.seed, State.TIMED_OUT, f"after {ended.seconds:.0f} s")
    return Outcome(graph.seed, State.CRASHED, f"signal {ended.signal}: {ended.said[-1500:]}")
